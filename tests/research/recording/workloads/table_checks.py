"""What the tests of sharded tables run in ranks of their own; found by name in the new processes."""

from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from research.recording.workloads.dlrm import Dlrm
from research.recording.workloads.exchange import Blocking, Transfer
from research.recording.workloads.sharded_tables import SHARDED, ShardedTables, Sharding
from tests.research.recording.workloads.ranks import part_of, write

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
