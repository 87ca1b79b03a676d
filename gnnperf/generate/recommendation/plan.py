"""What is requested of a recommendation model that never ran: tables, perceptrons, and which rank holds what."""

import math
from dataclasses import dataclass
from enum import StrEnum

from gnnperf.core import InputError, require

# Embedding tables and where they are placed: what a sharding decides.
#
# split        a rank holds                        over ranks
# table        the whole table                     one
# row          rows i with i mod n = its place     n, partial sums are added up
# column       dim / n columns                     n
# replicated   the whole table, gradients summed   all


class Split(StrEnum):
    """What of a table a rank holds."""

    TABLE = "table"
    ROW = "row"
    COLUMN = "column"
    REPLICATED = "replicated"


@dataclass(frozen=True)
class Table:
    """One embedding table, float32."""

    name: str  # unique in its model
    rows: int  # how many it has
    dim: int  # columns
    pooling: float = 1.0  # indices per sample, summed
    skew: float = 1.0  # exponent s of the index distribution: index ~ rows * u**s with u uniform; 1 is uniform
    # rows and optimizer state lie in pinned host memory; kernels read and write rows over the host link, none is cached
    # (Min et al. 2021, PyTorch-Direct; fbgemm's managed tables)
    host: bool = False

    def __post_init__(self) -> None:
        """Refuse sizes that no table has."""
        for field in ("rows", "dim", "pooling", "skew"):
            require(getattr(self, field) > 0, f"{field} of table {self.name!r}", getattr(self, field), "above 0")


@dataclass(frozen=True)
class Placed:
    """Where one table is."""

    split: Split  # what a rank holds of it
    ranks: tuple[int, ...]  # the ranks that hold a part, ascending

    def __post_init__(self) -> None:
        """Refuse a table on no rank, on one rank twice, or whole on several."""
        good = bool(self.ranks) and self.ranks == tuple(sorted(set(self.ranks)))
        require(good, "ranks of a table", self.ranks, "at least one rank, ascending, each once")
        if self.split is Split.TABLE:
            require(len(self.ranks) == 1, "ranks of a table that is not split", self.ranks, "one rank")


Placement = tuple[Placed, ...]  # one per table, in the order of the tables

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
    """A deep learning recommendation model (DLRM, Naumov et al. 2019)."""

    tables: tuple[Table, ...]  # embedding tables, float32; lookups are summed
    bottom: tuple[int, ...]  # widths of the bottom perceptron; with `dot`, the last is the dimension of all tables
    top: tuple[int, ...]  # widths of the top perceptron, the last is 1
    dense_features: int = 13  # numbers per sample, input of the bottom perceptron
    interaction: Interaction = Interaction.DOT  # between the two
    dtype: str = "float32"  # of the perceptrons' products; the tables, and what travels, stay float32
    optimizer: Optimizer = Optimizer.SGD  # of everything

    def __post_init__(self) -> None:
        require(bool(self.tables), "model.tables", [], "at least one table")
        names = [table.name for table in self.tables]
        twice = sorted({name for name in names if names.count(name) > 1})
        require(not twice, "model.tables", ", ".join(twice), "a name of its own for each table")
        for widths in ("bottom", "top"):
            result = getattr(self, widths)
            good = bool(result) and min(result) >= 1
            require(good, f"model.{widths}", list(result), "widths from 1 up, at least one")
        require(self.top[-1] == 1, "model.top", list(self.top), "1 as the last width: one logit per sample")
        require(self.dense_features >= 1, "model.dense_features", self.dense_features, "a whole number from 1 up")
        require(self.dtype in DTYPES, "model.dtype", self.dtype, ", ".join(DTYPES))
        for table in self.tables if self.interaction is Interaction.DOT else ():
            require(table.dim == self.bottom[-1], f"dim of table {table.name!r}", table.dim,
                    f"{self.bottom[-1]}, the last width of model.bottom, with model.interaction dot")  # fmt: skip


@dataclass(frozen=True)
class RecommendationPlan:
    """One configuration."""

    name: str  # of the graph
    model: Recommender  # see there
    batch: int  # samples of a step, over all ranks
    ranks: int  # that share the work; perceptrons are replicated over them
    placement: Placement  # of each table

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
        allowed = f"divisors of {batch}"
        raise InputError(f"{ranks} ranks do not divide the batch, {batch}", where="ranks", allowed=allowed)


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
        good = not table.host or ranks == 1
        require(good, where, str(placed.split), "another split of a table of the host: replicas have gradients")


# What a rank holds of a table, how much is looked up in it, and how its vectors reach the ranks of their samples.
#
# travel    placed                          vectors                                     gradients
# pooled    table, column, some rows        uneven all-to-all; partial sums are added   the same way back
#           on a part of the ranks          by the receiver
# summed    row on all ranks                reduce-scatter                              all-gather
# stays     replicated, or a single rank    looked up where they are needed             all-reduce of the whole table
#
# Rows of a row-wise table lie in turn (row i on its rank i mod n): each rank has 1/n of the lookups, hot rows too.


class Travel(StrEnum):
    """How vectors get to their samples."""

    POOLED = "pooled"
    SUMMED = "summed"
    STAYS = "stays"


@dataclass(frozen=True)
class Part:
    """What each of a table's ranks holds of it."""

    table: Table  # the whole
    travel: Travel  # of its vectors
    rows: int  # here
    dim: int  # columns here
    indices: float  # per sample of the batch, here; a mean
    ranks: tuple[int, ...]  # that hold a part each
    added_up: int = 1  # partial sums come from so many ranks, and the receiver adds them; 1: whole sums

    def lookups(self, batch: int, ranks: int) -> int:
        """Indices of one step here, of all ranks' samples, or of the own ones where the table stays."""
        return max(round(self.samples(batch, ranks) * self.indices), 1)

    def samples(self, batch: int, ranks: int) -> int:
        """Samples that it is looked up for."""
        return batch // ranks if self.travel is Travel.STAYS else batch

    def host_bytes(self, batch: int, ranks: int, updated_by: Optimizer | None = None) -> int:
        """Rows of one step that cross the host link in one direction; where they are updated, with their state."""
        state_bytes = self.state_bytes_per_row(updated_by) if updated_by is not None else 0
        return self.lookups(batch, ranks) * (self.dim * FLOAT_BYTES + state_bytes) if self.table.host else 0

    def state_bytes_per_row(self, optimizer: Optimizer) -> int:
        """Of the optimizer."""
        columns = 1 if optimizer is Optimizer.ROWWISE_ADAGRAD else self.dim
        return FLOAT_BYTES * STATES[optimizer] * columns

    def memory_bytes(self, optimizer: Optimizer) -> float:
        """Parameters and optimizer state; where the table stays, its gradient as well; of the device."""
        if self.table.host:
            return 0.0
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
