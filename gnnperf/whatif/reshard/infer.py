"""Tables and where they are, read off a recorded graph: what its lookups take on every rank.

by row      the number of rows looked up changes from step to step: each rank takes those that are its own
by column   every rank looks up the same number in parts of one size, and the run's card counts a table as wide as all
table       anything else
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean

from gnnperf.core import InputError, require
from gnnperf.generate import Placed, Placement, Shape, Split, Table
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.edit import Edited, refusal
from gnnperf.whatif.reshard.edit import PlaceTables
from gnnperf.whatif.reshard.units import LOOKUPS, Lane, Model, lane_of


@dataclass(frozen=True)
class Seen:
    """One part of a table as a rank looks it up."""

    rows: int  # rows, columns: of the part
    columns: int
    lookups: tuple[int, ...]  # rows looked up, one number per step
    samples: int  # vectors that come out

    @property
    def by_row(self) -> bool:
        """Whether only some of the indices are this rank's."""
        return any(number % self.samples for number in self.lookups)


def infer(graph: ExecutionGraph) -> tuple[Model, Placement]:
    """The tables of a recorded run in the order in which ranks look them up, with uniform indices, and their places.

    Raises InputError: nothing is looked up, or ranks do so for different numbers of samples.
    """
    lanes = {rank: [lane_of(graph, rank, step.step) for step in graph.steps] for rank in graph.ranks}
    heads = [_seen(lanes[rank]) for rank in graph.ranks]
    samples = {seen.samples for own in heads for seen in own}
    ranks = len(heads)
    if len(samples) != 1 or min(samples) % ranks:
        raise InputError(f"lookups for {', '.join(map(str, sorted(samples)))} samples", where=f"graph {graph.name!r}",
                         allowed="one number, the same share of every rank")  # fmt: skip
    wide = {(counts.rows, counts.dim) for counts in graph.tables}
    tables: list[Table] = []
    placement: list[Placed] = []
    while any(heads):
        table, placed = _next(heads, wide, str(len(tables)))
        for rank in placed.ranks:
            heads[rank] = heads[rank][1:]
        tables.append(table)
        placement.append(placed)
    return Model(tuple(tables), ranks, min(samples) // ranks), tuple(placement)


def _seen(lanes: Sequence[Lane]) -> list[Seen]:
    """A rank's parts, in order."""
    calls = [[lane.shapes[c] for c, name in enumerate(lane.name) if name in LOOKUPS] for lane in lanes]
    return [_part(same) for same in zip(*calls, strict=True)]


def _part(calls: Sequence[tuple[Shape, ...]]) -> Seen:
    """From the shapes of its lookup in every step: weight, indices, offsets.

    Raises InputError: they were not recorded, or it is another kind of lookup.
    """
    if any(len(shapes) < 3 or len(shapes[0]) != 2 or not shapes[1] or not shapes[2] for shapes in calls):
        raise InputError("a lookup without weight, indices and offsets", where="the recorded placement",
                         allowed="aten::embedding_bag with recorded shapes")  # fmt: skip
    (rows, columns), _, (samples, *_) = calls[0][:3]
    return Seen(rows, columns, tuple(indices[0] for _, indices, *_ in calls), samples)


def _next(heads: Sequence[Sequence[Seen]], wide: set[tuple[int, int]], name: str) -> tuple[Table, Placed]:
    """The table that some ranks look up next: a whole one of the first rank that is at one, else one of all ranks."""
    everybody = tuple(range(len(heads)))
    divided = [bool(own) and (own[0].by_row or _by_column(own[0], heads, wide)) for own in heads]
    for rank, own in enumerate(heads):
        if own and not divided[rank]:
            seen = own[0]
            return Table(name, seen.rows, seen.columns, seen.lookups[0] / seen.samples), Placed(Split.TABLE, (rank,))
    firsts = [own[0] for own in heads if own]
    seen, ranks = firsts[0], len(everybody)
    if len(firsts) < ranks:
        raise InputError(f"a table of {seen.rows} rows that some ranks hold a part of", where="the recorded placement",
                         allowed="tables on one rank, or divided over all")  # fmt: skip
    if seen.by_row:
        pooling = mean(map(sum, zip(*(first.lookups for first in firsts), strict=True))) / seen.samples
        rows = next(
            (r for r, d in sorted(wide) if d == seen.columns and -(-r // ranks) == seen.rows), seen.rows * ranks
        )
        return Table(name, rows, seen.columns, pooling), Placed(Split.ROW, everybody)
    pooling = seen.lookups[0] / seen.samples
    return Table(name, seen.rows, seen.columns * ranks, pooling), Placed(Split.COLUMN, everybody)


def _by_column(seen: Seen, heads: Sequence[Sequence[Seen]], wide: set[tuple[int, int]]) -> bool:
    """Whether the run counts a table of these rows that is as wide as all parts, and none as wide as one."""
    return (seen.rows, seen.columns * len(heads)) in wide and (seen.rows, seen.columns) not in wide


EVEN = "how often each row of table {} is looked up: all rows alike"
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
        require(self.split in OFFERED, "split of a table", self.split, ", ".join(OFFERED))
        whole = self.split == Split.TABLE
        require((self.rank is not None) == whole, "rank of a table", self.rank, "a rank for a whole table, else none")

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Apply the edit."""
        model, before = infer(graph)
        if not 0 <= self.table < len(before):
            known = "; ".join(map(_sentences, range(len(before)), model.tables, before))
            raise refusal(graph, f"no table {self.table}", known)
        ranks = tuple(range(model.ranks)) if self.rank is None else (self.rank,)
        placed = Placed(Split(self.split), ranks)
        after = (*before[: self.table], placed, *before[self.table + 1 :])
        edited = PlaceTables(model.tables, before, after, model.batch)(graph)
        even = (EVEN.format(self.table),) if placed.split is Split.ROW else ()
        return replace(edited, unknown=(*edited.unknown, *even))


def _sentences(number: int, table: Table, placed: Placed) -> str:
    where = f"rank {placed.ranks[0]}" if placed.split is Split.TABLE else f"by {placed.split}"
    return f"{number}: {table.rows} x {table.dim}, {where}"
