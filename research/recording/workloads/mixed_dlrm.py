"""A recommendation model whose tables differ in size and are placed one by one.

indices per table -> MixedTables ---------------------.
dense [B, 13] ----> bottom MLP (DDP) -> concatenation -> top MLP (DDP) -> loss
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, cycle

import torch
import torch.distributed as dist
from torch import nn

from gnnperf.core import InputError
from research.recording.workloads.dlrm import DENSE_FEATURES, LEARNING_RATE, index_statistics, perceptron
from research.recording.workloads.exchange import Blocking, start_uneven_all_to_all
from research.recording.workloads.replicate import NUM_BATCHES
from research.recording.workloads.sharded_tables import Sharding
from research.recording.workloads.workload import SEED, LossTrainer, Trainer, device

# Embedding tables of different sizes, each placed by itself: whole on one rank, or its rows or columns over all ranks.
#
# indices [B, P] per table -> all-to-all: to each rank those of the tables of which it holds a part
# own parts, samples of every rank: lookups [ranks * B, columns] -> all-to-all: to each rank its samples' vectors
# vectors [B, D] per table: the one that came (table), side by side (column), added up (row)
#                                                                     backward: the gradient goes the same way back

Weights = Callable[[int, int, int], torch.Tensor]  # table, rows and columns that are here -> [rows, columns]


@dataclass(frozen=True)
class PlacedTable:
    """One table.

    Attributes:
        rows: how many it has.
        dim: columns; sharded by column: a multiple of the number of ranks.
        pooling: indices per sample, summed.
        skew: exponent s of the index distribution: index ~ rows * u**s with u uniform; 1 is uniform.
        sharding: what a rank holds of it.
        rank: which rank holds it, if it is whole.
    """

    rows: int
    dim: int
    pooling: int
    skew: float
    sharding: Sharding = Sharding.TABLE
    rank: int = 0

    def is_on(self, rank: int) -> bool:
        return self.sharding != Sharding.TABLE or self.rank == rank

    def columns(self, ranks: int) -> int:
        """Columns of the part that a rank holds."""
        return self.dim // ranks if self.sharding == Sharding.COLUMN else self.dim


class MixedTables(nn.Module):
    """This rank's parts of all tables.

    Args:
        tables: all of the model.
        weights: gives the memory of each part; None: new.

    Raises:
        InputError: a rank would hold nothing, or columns cannot be shared equally.
    """

    def __init__(self, tables: Sequence[PlacedTable], batch: int, weights: Weights | None = None) -> None:
        super().__init__()
        self.tables, self.batch = tuple(tables), batch
        self.ranks, self.rank = dist.get_world_size(), dist.get_rank()
        _check(self.tables, self.ranks)
        self.on = [[t for t, table in enumerate(tables) if table.is_on(rank)] for rank in range(self.ranks)]
        self.widths = [[tables[t].columns(self.ranks) for t in on] for on in self.on]
        self.bags = nn.ModuleList(self._bag(t, weights or _new) for t in self.on[self.rank])
        sent = [batch * sum(self.widths[self.rank])] * self.ranks
        received = [batch * sum(widths) for widths in self.widths]
        self.starts = (start_uneven_all_to_all(sent, received), start_uneven_all_to_all(received, sent))

    def _bag(self, t: int, weights: Weights) -> nn.EmbeddingBag:
        table = self.tables[t]
        rows = -(-table.rows // self.ranks) if table.sharding == Sharding.ROW else table.rows
        weight = weights(t, rows, table.columns(self.ranks))
        here, columns = weight.shape
        return nn.EmbeddingBag(here, columns, mode="sum", sparse=True, _weight=weight)

    def forward(self, indices: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Indices [B, P] int64 per table, of this rank's samples -> vectors [B, D] per table."""
        requested = self._requested(indices)
        pooled = torch.cat(
            [self._look_up(*one) for one in zip(self.on[self.rank], self.bags, requested, strict=True)], dim=1
        )
        transfer = Blocking(*self.starts)
        received = transfer.end(transfer.begin(pooled.flatten()))  # [B * columns of all parts]
        return self._arranged(received)

    def _requested(self, indices: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Indices of everybody's samples for the own parts, [ranks, B * P] each."""
        rows = [[self.batch * self.tables[t].pooling for t in on] for on in self.on]
        sent = torch.cat([indices[t].flatten() for on in self.on for t in on])
        own = rows[self.rank]
        received, work = start_uneven_all_to_all([*map(sum, rows)], [sum(own)] * self.ranks)(sent)
        work.wait()
        return received.view(self.ranks, -1).split(own, dim=1)

    def _look_up(self, t: int, bag: nn.Module, requested: torch.Tensor) -> torch.Tensor:
        """[ranks, B * P] -> [ranks * B, columns]; of rows, those that are here."""
        requested = requested.reshape(self.ranks * self.batch, -1)  # [ranks * B, P]
        if self.tables[t].sharding != Sharding.ROW:
            pooled: torch.Tensor = bag(requested)
            return pooled
        own = requested % self.ranks == self.rank
        ends = own.sum(dim=1).cumsum(dim=0)  # [ranks * B]
        pooled = bag((requested // self.ranks)[own], nn.functional.pad(ends[:-1], (1, 0)))
        return pooled

    def _arranged(self, received: torch.Tensor) -> list[torch.Tensor]:
        """What came from each rank, [B, columns] one after another -> vectors [B, D] per table."""
        result: list[list[torch.Tensor]] = [[] for _ in self.tables]
        by_rank = received.split([self.batch * sum(widths) for widths in self.widths])
        for on, widths, part in zip(self.on, self.widths, by_rank, strict=True):
            for t, vectors in zip(on, part.view(self.batch, -1).split(widths, dim=1), strict=True):
                result[t].append(vectors)
        return [_joined(table, parts) for table, parts in zip(self.tables, result, strict=True)]


def _joined(table: PlacedTable, parts: list[torch.Tensor]) -> torch.Tensor:
    """A table's vectors [B, D] from what its ranks gave."""
    if table.sharding == Sharding.COLUMN:
        return torch.cat(parts, dim=1)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _new(_: int, rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, columns, device=device())


def _check(tables: Sequence[PlacedTable], ranks: int) -> None:
    for rank in range(ranks):
        if not any(table.is_on(rank) for table in tables):
            raise InputError(f"rank {rank} would hold no table", where="tables", allowed="a part of one on every rank")
    for t, table in enumerate(tables):
        if table.sharding == Sharding.COLUMN and table.dim % ranks:
            raise InputError(f"{table.dim} columns cannot be shared by {ranks} ranks", where=f"table {t}",
                             allowed=f"multiples of {ranks}")  # fmt: skip


Batch = tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]  # dense [B, 13], indices [B, P] per table, labels [B]


@dataclass(frozen=True)
class MixedDlrm:
    """The model and where its tables are.

    Attributes:
        label: what tells it from others, for its name.
        tables: with their places.
        hidden: widths of both perceptrons.
    """

    label: str
    tables: tuple[PlacedTable, ...]
    batch: int = 256
    hidden: tuple[int, ...] = (64, 32)

    @property
    def kind(self) -> str:
        return "mixed_dlrm"

    @property
    def name(self) -> str:
        """Kind and label: the tables are in the card."""
        return f"{self.kind}_{self.label}_t{len(self.tables)}_b{self.batch}"

    @property
    def width(self) -> int:
        return sum(table.dim for table in self.tables)

    @property
    def parallelism(self) -> dict[str, int]:
        """Perceptrons are replicated, tables placed over the same ranks."""
        return dict.fromkeys(("dp", *(f"{table.sharding}_wise" for table in self.tables)), dist.get_world_size())

    def build(self) -> Trainer:
        torch.manual_seed(SEED)
        network = Network(self)
        return trainer(self, network, batches(self), None)


class Network:
    """The replicated perceptrons."""

    def __init__(self, size: MixedDlrm) -> None:
        self.bottom = perceptron((DENSE_FEATURES, *size.hidden), last_relu=True)
        self.top = perceptron((size.hidden[-1] + size.width, *size.hidden, 1), last_relu=False)

    def __call__(self, dense: torch.Tensor, vectors: Iterable[torch.Tensor]) -> torch.Tensor:
        """Dense features [B, 13], vectors [B, D] per table -> logits [B]."""
        logits: torch.Tensor = self.top(torch.cat([self.bottom(dense), *vectors], dim=1))
        return logits.squeeze(1)


def batches(size: MixedDlrm) -> list[Batch]:
    """What a rank trains on, in turn: the same for every placement of the tables."""
    torch.manual_seed(SEED + 1 + dist.get_rank())
    return [_batch(size) for _ in range(NUM_BATCHES)]


def _batch(size: MixedDlrm) -> Batch:
    dense, clicked = torch.rand(size.batch, DENSE_FEATURES), torch.randint(0, 2, (size.batch,)).float()
    return dense.to(device()), [_indices(table, size.batch).to(device()) for table in size.tables], clicked.to(device())


def _indices(table: PlacedTable, batch: int) -> torch.Tensor:
    """[B, P] int64."""
    uniform = torch.rand(batch, table.pooling, dtype=torch.float64)
    return (table.rows * uniform**table.skew).long().clamp_(max=table.rows - 1)


def trainer(size: MixedDlrm, network: Network, data: list[Batch], weights: Weights | None) -> LossTrainer:
    """A training loop over tables placed as `size` says; the network may have served another placement before."""
    torch.sparse.check_sparse_tensor_invariants.disable()  # stated aloud, else torch warns at every start
    tables, turn = MixedTables(size.tables, size.batch, weights), cycle(data)

    def forward() -> torch.Tensor:
        dense, indices, clicked = next(turn)
        return nn.functional.binary_cross_entropy_with_logits(network(dense, tables(indices)), clicked)

    replicated = [*network.bottom.parameters(), *network.top.parameters()]
    optimizers = (torch.optim.SGD(tables.parameters(), lr=LEARNING_RATE),
                  torch.optim.SGD(replicated, lr=LEARNING_RATE, fused=True))  # fmt: skip
    return LossTrainer((network.bottom, network.top), forward, optimizers, 1, _statistics(size, data))


def _statistics(size: MixedDlrm, data: list[Batch]) -> tuple[dict[str, object], ...]:
    """One entry per table, for the card."""
    entries = (
        index_statistics((indices[t].unsqueeze(0) for _, indices, _ in data), table.rows, table.dim)
        for t, table in enumerate(size.tables)
    )
    return tuple({**entry, "table": t} for t, entry in enumerate(chain.from_iterable(entries)))
