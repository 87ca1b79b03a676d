"""Embedding tables and where they are placed: what a sharding decides.

split        a rank holds                        over ranks
table        the whole table                     one
row          rows i with i mod n = its place     n, partial sums are added up
column       dim / n columns                     n
replicated   the whole table, gradients summed   all
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gnnperf.core import require


class Split(StrEnum):
    """What of a table a rank holds."""

    TABLE = "table"
    ROW = "row"
    COLUMN = "column"
    REPLICATED = "replicated"


@dataclass(frozen=True)
class Table:
    """One embedding table, float32.

    Attributes:
        name: unique in its model.
        rows: how many it has.
        dim: columns.
        pooling: indices per sample, summed.
        skew: exponent s of the index distribution: index ~ rows * u**s with u uniform; 1 is uniform.
    """

    name: str
    rows: int
    dim: int
    pooling: float = 1.0
    skew: float = 1.0

    def __post_init__(self) -> None:
        """Refuse sizes that no table has."""
        for field in ("rows", "dim", "pooling", "skew"):
            require(getattr(self, field) > 0, f"{field} of table {self.name!r}", getattr(self, field), "above 0")


@dataclass(frozen=True)
class Placed:
    """Where one table is.

    Attributes:
        split: what a rank holds of it.
        ranks: the ranks that hold a part, ascending.
    """

    split: Split
    ranks: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse a table on no rank, on one rank twice, or whole on several."""
        good = bool(self.ranks) and self.ranks == tuple(sorted(set(self.ranks)))
        require(good, "ranks of a table", self.ranks, "at least one rank, ascending, each once")
        if self.split is Split.TABLE:
            require(len(self.ranks) == 1, "ranks of a table that is not split", self.ranks, "one rank")


Placement = tuple[Placed, ...]  # one per table, in the order of the tables
