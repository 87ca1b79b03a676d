"""What a rank holds of a table, how much is looked up in it, and how its vectors reach the ranks of their samples.

travel    placed                          vectors                                     gradients
pooled    table, column, some rows        uneven all-to-all; partial sums are added   the same way back
          on a part of the ranks          by the receiver
summed    row on all ranks                reduce-scatter                              all-gather
stays     replicated, or a single rank    looked up where they are needed             all-reduce of the whole table

Rows of a row-wise table lie in turn (row i on its rank i mod n), so each rank has 1/n of the lookups, hot rows too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from gnnperf.generate.recommendation.plan import FLOAT_BYTES, STATES, Optimizer, RecommendationPlan
from gnnperf.generate.tables import Placed, Split, Table


class Travel(StrEnum):
    """How vectors get to their samples."""

    POOLED = "pooled"
    SUMMED = "summed"
    STAYS = "stays"


@dataclass(frozen=True)
class Part:
    """What each of a table's ranks holds of it.

    Attributes:
        table: the whole.
        travel: of its vectors.
        rows: here.
        dim: columns here.
        indices: per sample of the batch, here; a mean.
        ranks: that hold a part each.
        added_up: partial sums come from so many ranks, and the receiver adds them; 1: whole sums.
    """

    table: Table
    travel: Travel
    rows: int
    dim: int
    indices: float
    ranks: tuple[int, ...]
    added_up: int = 1

    def lookups(self, batch: int, ranks: int) -> int:
        """Indices of one step here, of all ranks' samples, or of the own ones where the table stays."""
        return max(round(self.samples(batch, ranks) * self.indices), 1)

    def samples(self, batch: int, ranks: int) -> int:
        """Samples that it is looked up for."""
        return batch // ranks if self.travel is Travel.STAYS else batch

    def state_bytes_per_row(self, optimizer: Optimizer) -> int:
        """Of the optimizer."""
        columns = 1 if optimizer is Optimizer.ROWWISE_ADAGRAD else self.dim
        return FLOAT_BYTES * STATES[optimizer] * columns

    def memory_bytes(self, optimizer: Optimizer) -> float:
        """Parameters and optimizer state; where the table stays, its gradient as well."""
        copies = 2 if self.travel is Travel.STAYS and len(self.ranks) > 1 else 1
        return float(self.rows * (copies * self.dim * FLOAT_BYTES + self.state_bytes_per_row(optimizer)))


def part_of(table: Table, placed: Placed, ranks: int) -> Part:
    """What each rank of `placed` holds, among `ranks` of the job."""
    number = len(placed.ranks)
    if ranks == 1 or placed.split is Split.REPLICATED:
        return Part(table, Travel.STAYS, table.rows, table.dim, table.pooling, placed.ranks)
    if placed.split is Split.ROW:
        travel = Travel.SUMMED if number == ranks else Travel.POOLED
        added_up = 1 if travel is Travel.SUMMED else number
        return Part(table, travel, math.ceil(table.rows / number), table.dim, table.pooling / number, placed.ranks,
                    added_up)  # fmt: skip
    columns = number if placed.split is Split.COLUMN else 1
    return Part(table, Travel.POOLED, table.rows, table.dim // columns, table.pooling, placed.ranks)


def parts_of(plan: RecommendationPlan) -> tuple[Part, ...]:
    """Of each table."""
    return tuple(part_of(t, p, plan.ranks) for t, p in zip(plan.model.tables, plan.placement, strict=True))


def here(parts: tuple[Part, ...], rank: int, travel: Travel) -> tuple[Part, ...]:
    """Those that a rank holds, by the way of their vectors."""
    return tuple(part for part in parts if part.travel is travel and rank in part.ranks)
