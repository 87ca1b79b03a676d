"""The edit as it is requested on the command line: one table of a recording goes elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gnnperf.core import InputError, require
from gnnperf.generate import Placed, Split, Table
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.edit import Edited
from gnnperf.whatif.reshard.edit import PlaceTables
from gnnperf.whatif.reshard.infer import infer

EVEN = "how often each row of table {} is asked for: all rows alike"
OFFERED = (Split.TABLE, Split.ROW, Split.COLUMN)


@dataclass(frozen=True)
class PlaceTable:
    """One embedding table on another rank, or divided otherwise; the recording tells tables and places.

    Attributes:
        table: its number, in the order in which the ranks look tables up (whole ones first, by rank).
        split: table, row or column.
        rank: where it goes, if it is whole; None otherwise.
    """

    table: int
    split: str = "table"
    rank: int | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown way to divide a table, a whole one without a rank, and a divided one with one."""
        require(self.split in OFFERED, "split of a table", self.split, ", ".join(OFFERED))
        whole = self.split == Split.TABLE
        require((self.rank is not None) == whole, "rank of a table", self.rank, "a rank for a whole table, else none")

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Place it.

        Raises:
            InputError: no such table, with those that there are, or PlaceTables cannot do it.
        """
        model, before = infer(graph)
        if not 0 <= self.table < len(before):
            raise InputError(f"no table {self.table}", where=f"graph {graph.name!r}",
                             allowed="; ".join(map(_sentences, range(len(before)), model.tables, before)))  # fmt: skip
        ranks = tuple(range(model.ranks)) if self.rank is None else (self.rank,)
        placed = Placed(Split(self.split), ranks)
        after = (*before[: self.table], placed, *before[self.table + 1 :])
        edited = PlaceTables(model.tables, before, after, model.batch)(graph)
        even = (EVEN.format(self.table),) if placed.split is Split.ROW else ()
        return replace(edited, unknown=(*edited.unknown, *even))


def _sentences(number: int, table: Table, placed: Placed) -> str:
    where = f"rank {placed.ranks[0]}" if placed.split is Split.TABLE else f"by {placed.split}"
    return f"{number}: {table.rows} x {table.dim}, {where}"
