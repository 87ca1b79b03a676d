"""What a rank holds of a table, and what it has to do for it: sizes that follow from a placement alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from gnnperf.core import InputError
from gnnperf.generate import Placed, Placement, Split, Table

INDEX_BYTES, VALUE_BYTES = 8.0, 4.0


@dataclass(frozen=True)
class Model:
    """Tables and who uses them.

    Attributes:
        tables: all of them.
        ranks: number of ranks; every rank has samples of its own.
        batch: samples per rank.
    """

    tables: tuple[Table, ...]
    ranks: int
    batch: int

    def parts(self, placement: Placement, rank: int) -> tuple[Part, ...]:
        """What a rank holds, in the order of the tables."""
        pairs = enumerate(zip(self.tables, placement, strict=True))
        return tuple(self._part(t, table, placed, rank) for t, (table, placed) in pairs if rank in placed.ranks)

    def _part(self, t: int, table: Table, placed: Placed, rank: int) -> Part:
        over, place = len(placed.ranks), placed.ranks.index(rank)
        lookups = self.batch * self.ranks * table.pooling
        if placed.split is Split.ROW:
            return Part(
                t, Split.ROW, ceil(table.rows / over), table.dim, lookups * row_share(table, over, place), table.pooling
            )
        if placed.split is Split.COLUMN:
            return Part(t, Split.COLUMN, table.rows, table.dim // over, lookups, table.pooling)
        return Part(t, placed.split, table.rows, table.dim, lookups, table.pooling)

    def check(self, placement: Placement) -> None:
        """Refuse a placement of other tables, on ranks that are not there, of a kind that ops do not show, or uneven.

        Raises:
            InputError: names the table.
        """
        if len(placement) != len(self.tables):
            raise InputError(f"{len(placement)} places for {len(self.tables)} tables", where="a placement of tables",
                             allowed="one for each")  # fmt: skip
        for table, placed in zip(self.tables, placement, strict=True):
            where = f"the place of table {table.name!r}"
            if placed.split is Split.REPLICATED:
                raise InputError("a replicated table", where=where, allowed="table, row or column",
                                 remedy="the recording does not show the buckets of its gradients")  # fmt: skip
            if max(placed.ranks) >= self.ranks:
                raise InputError(f"rank {max(placed.ranks)}", where=where, allowed=f"0 to {self.ranks - 1}")
            if placed.split is Split.COLUMN and table.dim % len(placed.ranks):
                raise InputError(f"{table.dim} columns over {len(placed.ranks)} ranks", where=where,
                                 allowed="ranks that divide the columns")  # fmt: skip
        for rank in range(self.ranks):
            if not self.parts(placement, rank):
                raise InputError(
                    f"rank {rank} holds no table", where="a placement of tables", allowed="a part on every rank"
                )


@dataclass(frozen=True)
class Part:
    """What a rank holds of one table.

    Attributes:
        table: number of the table.
        split: how the table is divided.
        rows, columns: that are here.
        lookups: rows that a step is expected to look up here, over the samples of all ranks.
        pooling: indices per sample.
    """

    table: int
    split: Split
    rows: int
    columns: int
    lookups: float
    pooling: float


def row_share(table: Table, over: int, place: int) -> float:
    """Share of lookups that fall on rows i with i mod over = place; P(index <= i) = ((i + 1) / rows)**(1 / skew)."""
    below = (np.arange(table.rows + 1) / table.rows) ** (1.0 / table.skew)
    return float(np.diff(below)[place::over].sum())


@dataclass(frozen=True)
class Traffic:
    """Elements of one all-to-all: what each rank sends to and gets from each.

    Attributes:
        sent: [ranks, ranks] elements, from row to column.
    """

    sent: np.ndarray

    def of_rank(self, rank: int) -> float:
        """Elements of the buffer that a rank sends, its own included."""
        return float(self.sent[rank].sum())

    @property
    def even(self) -> float:
        """Elements per rank of the even exchange that keeps the busiest rank as busy (gnnperf.graph.matching)."""
        ranks = len(self.sent)
        away = self.sent * (1.0 - np.eye(ranks))
        return float(max(away.sum(axis=0).max(), away.sum(axis=1).max())) * ranks / (ranks - 1)


def index_traffic(model: Model, placement: Placement) -> Traffic:
    """Indices: every rank sends those of its samples to whoever holds a part."""
    own = [model.batch * sum(part.pooling for part in model.parts(placement, rank)) for rank in range(model.ranks)]
    return Traffic(np.tile(np.array(own, dtype=float), (model.ranks, 1)))


def vector_traffic(model: Model, placement: Placement) -> Traffic:
    """Looked up vectors: every rank sends the columns it holds to the rank of each sample."""
    own = [model.batch * _columns(model.parts(placement, rank)) for rank in range(model.ranks)]
    return Traffic(np.tile(np.array(own, dtype=float)[:, None], (1, model.ranks)))


def _columns(parts: Sequence[Part]) -> float:
    return float(sum(part.columns for part in parts))
