from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from research.recording.workloads.dlrm import Dlrm, index_statistics, interact
from research.recording.workloads.exchange import Blocking, Transfer
from research.recording.workloads.sharded_tables import SHARDED, ShardedTables, Sharding
from tests.research.recording.workloads.ranks import Ranks, part_of, results_of, write

SIZE = Dlrm(tables=4, rows=7, dim=4, batch=3, pooling=2, bottom=(8,), top=(8,))
TRANSFERS = {"blocking": Blocking, "overlapped": Transfer}


def compare(folder: Path) -> None:
    """Write how far every sharding is from unsharded tables: vectors and gradients, as rank_<r>.json."""
    torch.sparse.check_sparse_tensor_invariants.disable()
    result = {f"{s} {name}": _differences(s, kind) for s in Sharding for name, kind in TRANSFERS.items()}
    write(folder, result)


def train(folder: Path) -> None:
    """Write the losses of every sharding under every change, as rank_<r>.json."""
    write(folder, {s: _losses(s) for s in Sharding})


def _differences(sharding: Sharding, kind: type[Transfer]) -> dict[str, float]:
    weights, indices, weighing = _everybodys()
    sharded, rank = SHARDED[sharding](SIZE), dist.get_rank()
    for table, bag in _held(sharded, sharding):
        bag.weight.data = part_of(weights[table], sharding)
    vectors = sharded.begin(indices[rank], kind)()
    (vectors * weighing[rank]).sum().backward()
    whole = weights.clone().requires_grad_()
    rows = torch.stack([whole[t][indices[:, t]].sum(dim=2) for t in range(SIZE.tables)], dim=2)  # [ranks, B, T, D]
    (rows * weighing).sum().backward()
    assert whole.grad is not None
    gradients = [
        (bag.weight.grad.to_dense() - part_of(whole.grad[table], sharding)).abs().max()
        for table, bag in _held(sharded, sharding)
        if bag.weight.grad is not None
    ]
    return {
        "vectors": float((vectors - rows[rank]).abs().max()),
        "gradients": float(torch.stack(gradients).max()),
        "tables": len(gradients),
        "magnitude": float(whole.grad.abs().max()),
    }


def _everybodys() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same on every rank: weights [T, rows, D], indices [ranks, T, B, P], weights of the loss [ranks, B, T, D]."""
    torch.manual_seed(0)
    ranks = dist.get_world_size()
    indices = torch.randint(0, SIZE.rows, (ranks, SIZE.tables, SIZE.batch, SIZE.pooling))
    indices[:, 1] = 1  # no rank but the one of row 1 holds any row of this table
    weights = torch.randn(SIZE.tables, SIZE.rows, SIZE.dim)
    return weights, indices, torch.randn(ranks, SIZE.batch, SIZE.tables, SIZE.dim)


def _held(sharded: ShardedTables, sharding: Sharding) -> list[tuple[int, nn.EmbeddingBag]]:
    """(number among all tables, this rank's part of it)."""
    first = dist.get_rank() * len(sharded.bags) if sharding == Sharding.TABLE else 0
    return [(first + i, bag) for i, bag in enumerate(sharded.bags) if isinstance(bag, nn.EmbeddingBag)]


def _losses(sharding: Sharding) -> dict[str, list[float]]:
    """Of six steps by what is changed; no change may change a loss."""
    base = replace(SIZE, batch=16, sharding=sharding)
    changed = {
        "none": base, "overlap": replace(base, overlap=True), "repeats": replace(base, repeats=3),
        "repeating_rank": replace(base, repeats=3, repeating_rank=1),
        "bfloat16": replace(base, precision="bfloat16"), "accumulation": replace(base, accumulation=2),
    }  # fmt: skip
    return {name: [float(trainer.step()) for _ in range(6)] for name, w in changed.items() for trainer in [w.build()]}


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    return results_of(train, tmp_path_factory.mktemp("trained"))


@pytest.mark.parametrize("world_size", [2, 4])
def test_sharded_tables_are_as_unsharded_ones(tmp_path: Path, world_size: int) -> None:
    for rank in results_of(compare, tmp_path, world_size=world_size):
        assert set(rank) == {f"{s} {transfer}" for s in Sharding for transfer in ("blocking", "overlapped")}
        for kind, result in rank.items():
            assert result["vectors"] < 1e-5 and result["gradients"] < 1e-5 < result["magnitude"]
            assert result["tables"] == (4 // world_size if kind.startswith("table") else 4)


@pytest.mark.parametrize("sharding", list(Sharding))
def test_known_changes_leave_the_losses(losses: Ranks, sharding: Sharding) -> None:
    for rank in losses:
        of = rank[sharding]
        assert of["none"][4] < of["none"][0]  # four batches take turns
        for change in ("overlap", "repeats", "repeating_rank"):
            assert of[change] == of["none"]
        assert of["bfloat16"] == pytest.approx(of["none"], abs=0.02) and of["bfloat16"] != of["none"]
        assert of["accumulation"] != of["none"]  # two batches per step


def test_reuse_is_counted_by_powers_of_two() -> None:
    # table 0: row 5 once, 6 twice, 7 three times | table 1: row 1 six times; and the same batch again
    batch = torch.tensor([[[5, 6], [6, 7], [7, 7]], [[1, 1], [1, 1], [1, 1]]])  # [T, B, P]
    first, second = index_statistics([batch, batch], rows=10, dim=4)
    assert first["reuse_histogram"] == [2, 2, 2] and second["reuse_histogram"] == [0, 0, 0, 2]
    assert first["pooling_factor"] == 2.0 and first["lookups_per_batch"] == 6 and first["batches"] == 2
    assert first["distinct_rows_per_batch"] == 3.0 and second["table"] == 1 and second["rows"] == 10


def test_interaction_repeats_without_a_trace_in_the_gradient() -> None:
    vectors = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]], requires_grad=True)  # [1, 3, 2]
    with torch.profiler.profile() as profile:
        products = interact(vectors, 3)
    assert products.tolist() == [[11.0, 17.0, 39.0]]  # 1·0, 2·0, 2·1
    assert sum(event.name == "aten::bmm" for event in profile.events()) == 3
    products.sum().backward()
    assert vectors.grad is not None and vectors.grad.tolist() == [[[8.0, 10.0], [6.0, 8.0], [4.0, 6.0]]]
