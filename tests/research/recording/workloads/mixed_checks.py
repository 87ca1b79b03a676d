"""What the tests of tables placed one by one run in ranks of their own; found by name in the new processes."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

from research.recording.workloads.mixed_dlrm import MixedDlrm, MixedTables, PlacedTable
from research.recording.workloads.sharded_tables import Sharding
from tests.research.recording.workloads.ranks import part_of, write

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
    placed = MixedTables(TABLES, BATCH, lambda t, *_: part_of(whole[t].detach(), TABLES[t].sharding))
    vectors = placed([each[rank] for each in indices])
    sum((v * w[rank]).sum() for v, w in zip(vectors, weighing, strict=True)).backward()  # type: ignore[union-attr]
    expected = [table[each].sum(dim=2) for table, each in zip(whole, indices, strict=True)]  # [ranks, B, D]
    sum((v * w).sum() for v, w in zip(expected, weighing, strict=True)).backward()  # type: ignore[union-attr]
    gradients = []
    for t, bag in zip(placed.on[rank], placed.bags, strict=True):
        own, all_of_it = bag.weight.grad, whole[t].grad
        assert isinstance(own, torch.Tensor) and all_of_it is not None
        gradients.append(float((own.to_dense() - part_of(all_of_it, TABLES[t].sharding)).abs().max()))
    result = {
        "vectors": max(float((v - e[rank]).abs().max()) for v, e in zip(vectors, expected, strict=True)),
        "gradients": gradients,
        "magnitude": min(float(e.abs().max()) for e in expected),
    }
    write(folder, result)


def train(folder: Path) -> None:
    """Write the losses of eight steps, as rank_<r>.json."""
    trainer = MixedDlrm("small", TABLES, BATCH, (4, 4)).build()
    write(folder, {"losses": [float(trainer.step()) for _ in range(8)]})


def without_a_table(folder: Path) -> None:
    """Rank 1 holds nothing."""
    MixedTables(WHOLE_ON_TWO[:1], BATCH)
