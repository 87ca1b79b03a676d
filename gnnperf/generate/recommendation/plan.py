"""What is requested of a recommendation model that never ran: tables, perceptrons, and which rank holds what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gnnperf.core import InputError, require
from gnnperf.generate.tables import Placed, Placement, Split, Table

DTYPES = ("float32", "float16", "bfloat16")
MOST_RANKS = 4096
COLUMN_MULTIPLE = 4  # fbgemm's batched tables take columns in multiples of four (split_table_batched_embeddings_ops)


class Interaction(StrEnum):
    """How vectors of tables and of the bottom perceptron meet (Naumov et al. 2019, section 2.1.3)."""

    DOT = "dot"  # products of all pairs
    CAT = "cat"  # side by side


class Optimizer(StrEnum):
    """Of tables, fused with their backward pass; perceptrons have the elementwise one of the same name."""

    SGD = "sgd"
    ROWWISE_ADAGRAD = "rowwise_adagrad"  # one number per row
    ADAGRAD = "adagrad"
    ADAM = "adam"


STATES = {Optimizer.SGD: 0, Optimizer.ROWWISE_ADAGRAD: 1, Optimizer.ADAGRAD: 1, Optimizer.ADAM: 2}  # per parameter
FLOAT_BYTES = 4


@dataclass(frozen=True)
class Recommender:
    """A deep learning recommendation model (DLRM, Naumov et al. 2019).

    Attributes:
        tables: embedding tables, float32; lookups are summed.
        bottom: widths of the bottom perceptron; with `dot`, the last is the dimension of all tables.
        top: widths of the top perceptron, the last is 1.
        dense_features: numbers per sample, input of the bottom perceptron.
        interaction: between the two.
        dtype: of the perceptrons' products; the tables, and what travels, stay float32.
        optimizer: of everything.
    """

    tables: tuple[Table, ...]
    bottom: tuple[int, ...]
    top: tuple[int, ...]
    dense_features: int = 13
    interaction: Interaction = Interaction.DOT
    dtype: str = "float32"
    optimizer: Optimizer = Optimizer.SGD

    def __post_init__(self) -> None:
        require(bool(self.tables), "model.tables", [], "at least one table")
        names = [table.name for table in self.tables]
        twice = sorted({name for name in names if names.count(name) > 1})
        require(not twice, "model.tables", ", ".join(twice), "a name of its own for each table")
        for widths in ("bottom", "top"):
            result = getattr(self, widths)
            require(
                bool(result) and min(result) >= 1, f"model.{widths}", list(result), "widths from 1 up, at least one"
            )
        require(self.top[-1] == 1, "model.top", list(self.top), "1 as the last width: one logit per sample")
        require(self.dense_features >= 1, "model.dense_features", self.dense_features, "a whole number from 1 up")
        require(self.dtype in DTYPES, "model.dtype", self.dtype, ", ".join(DTYPES))
        if self.interaction is Interaction.DOT:
            _equal_widths(self.tables, self.bottom[-1])


def _equal_widths(tables: Sequence[Table], width: int) -> None:
    for table in tables:
        require(table.dim == width, f"dim of table {table.name!r}", table.dim,
                f"{width}, the last width of model.bottom, with model.interaction dot")  # fmt: skip


@dataclass(frozen=True)
class RecommendationPlan:
    """One configuration.

    Attributes:
        name: of the graph.
        model: see there.
        batch: samples of a step, over all ranks.
        ranks: that share the work; perceptrons are replicated over them.
        placement: of each table.
    """

    name: str
    model: Recommender
    batch: int
    ranks: int
    placement: Placement

    def __post_init__(self) -> None:
        check_sizes(self.batch, self.ranks)
        count = len(self.model.tables)
        require(len(self.placement) == count, "placement", len(self.placement), f"an entry for each of {count} tables")
        for table, placed in zip(self.model.tables, self.placement, strict=True):
            check_placed(table, placed, self.ranks)

    @property
    def samples(self) -> int:
        """Of one rank."""
        return self.batch // self.ranks


def check_sizes(batch: int, ranks: int) -> None:
    """Refuse a number of ranks that cannot be, or that does not divide the batch."""
    require(1 <= ranks <= MOST_RANKS, "ranks", ranks, f"a whole number from 1 to {MOST_RANKS}")
    require(batch >= 1, "batch", batch, "a whole number from 1 up")
    if batch % ranks:
        raise InputError(
            f"{ranks} ranks do not divide the batch, {batch}", where="ranks", allowed=f"divisors of {batch}"
        )


def check_placed(table: Table, placed: Placed, ranks: int) -> None:
    """Refuse a place that the table cannot have."""
    where, number = f"placement of table {table.name!r}", len(placed.ranks)
    require(placed.ranks[0] >= 0 and placed.ranks[-1] < ranks, where, placed.ranks, f"ranks from 0 to {ranks - 1}")
    if placed.split is Split.ROW:
        require(number <= table.rows, where, number, f"at most {table.rows} ranks, a row for each")
    if placed.split is Split.COLUMN:
        good = table.dim % number == 0 and (number == 1 or table.dim // number % COLUMN_MULTIPLE == 0)
        require(good, where, number, f"ranks that divide {table.dim} columns into multiples of {COLUMN_MULTIPLE}")
    if placed.split is Split.REPLICATED:
        require(number == ranks, where, placed.ranks, f"all {ranks} ranks")
