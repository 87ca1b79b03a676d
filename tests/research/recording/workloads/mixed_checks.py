"""What the tests of tables placed one by one run in ranks of their own; found by name in the new processes."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.distributed as dist

from research.recording.workloads.mixed_dlrm import MixedDlrm, MixedTables, PlacedTable
from research.recording.workloads.sharded_tables import Sharding

BATCH = 3
TABLES = (
    PlacedTable(7, 4, 2, 1.0, rank=1), PlacedTable(5, 8, 3, 1.0, Sharding.ROW), PlacedTable(6, 4, 1, 1.0, rank=0),
    PlacedTable(9, 8, 2, 1.0, Sharding.COLUMN), PlacedTable(3, 2, 2, 1.0, rank=1),
)  # fmt: skip
WHOLE_ON_TWO = (PlacedTable(7, 4, 2, 1.0, rank=0), PlacedTable(5, 8, 3, 1.0, rank=1))


def compare(folder: Path) -> None:
    """Write how far placed tables are from whole ones: vectors, and weights after one step of SGD, as rank_<r>.json."""
    torch.sparse.check_sparse_tensor_invariants.disable()
    torch.manual_seed(0)
    ranks, rank = dist.get_world_size(), dist.get_rank()
    whole = [torch.randn(table.rows, table.dim, requires_grad=True) for table in TABLES]
    indices = [torch.randint(0, table.rows, (ranks, BATCH, table.pooling)) for table in TABLES]
    weighing = [torch.randn(ranks, BATCH, table.dim) for table in TABLES]
    placed = MixedTables(TABLES, BATCH, lambda t, rows, _: _part(t, whole[t].detach(), rows))
    vectors = placed([each[rank] for each in indices])
    sum((v * w[rank]).sum() for v, w in zip(vectors, weighing, strict=True)).backward()  # type: ignore[union-attr]
    expected = [table[each].sum(dim=2) for table, each in zip(whole, indices, strict=True)]  # [ranks, B, D]
    sum((v * w).sum() for v, w in zip(expected, weighing, strict=True)).backward()  # type: ignore[union-attr]
    gradients = []
    for t, bag in zip(placed.on[rank], placed.bags, strict=True):
        own, all_of_it = bag.weight.grad, whole[t].grad
        assert isinstance(own, torch.Tensor) and all_of_it is not None
        gradients.append(float((own.to_dense() - _part(t, all_of_it, own.shape[0])).abs().max()))
    result = {
        "vectors": max(float((v - e[rank]).abs().max()) for v, e in zip(vectors, expected, strict=True)),
        "gradients": gradients,
        "magnitude": min(float(e.abs().max()) for e in expected),
    }
    (folder / f"rank_{rank}.json").write_text(json.dumps(result))


def _part(t: int, table: torch.Tensor, rows: int) -> torch.Tensor:
    """Of [rows, D]: what this rank holds."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    if TABLES[t].sharding == Sharding.COLUMN:
        return table.chunk(ranks, dim=1)[rank].contiguous()
    if TABLES[t].sharding == Sharding.ROW:
        held = torch.zeros(rows, table.shape[1])
        own = table[rank::ranks]
        held[: len(own)] = own
        return held
    return table.clone()


def train(folder: Path) -> None:
    """Write the losses of eight steps, as rank_<r>.json."""
    trainer = MixedDlrm("small", TABLES, BATCH, (4, 4)).build()
    losses = [float(trainer.step()) for _ in range(8)]
    (folder / f"rank_{dist.get_rank()}.json").write_text(json.dumps({"losses": losses}))


def without_a_table(folder: Path) -> None:
    """Rank 1 holds nothing."""
    MixedTables(WHOLE_ON_TWO[:1], BATCH)
