"""A recommendation model whose tables differ in size and are placed one by one.

indices per table -> MixedTables ---------------------.
dense [B, 13] ----> bottom MLP (DDP) -> concatenation -> top MLP (DDP) -> loss
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, cycle

import torch
import torch.distributed as dist
from torch import nn

from research.recording.workloads.device import device
from research.recording.workloads.dlrm import DENSE_FEATURES, LEARNING_RATE, index_statistics, perceptron
from research.recording.workloads.mixed_tables import MixedTables, PlacedTable, Weights
from research.recording.workloads.replicate import NUM_BATCHES
from research.recording.workloads.workload import SEED, LossTrainer, Trainer

Batch = tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]  # dense [B, 13], indices [B, P] per table, labels [B]


@dataclass(frozen=True)
class MixedDlrm:
    """The model and where its tables are.

    Attributes:
        label: what tells it from others, for its name.
        tables: with their places.
        batch: samples per rank.
        hidden: widths of both perceptrons.
    """

    label: str
    tables: tuple[PlacedTable, ...]
    batch: int = 256
    hidden: tuple[int, ...] = (64, 32)

    @property
    def kind(self) -> str:
        """Which program this is."""
        return "mixed_dlrm"

    @property
    def name(self) -> str:
        """Kind and label: the tables are in the card."""
        return f"{self.kind}_{self.label}_t{len(self.tables)}_b{self.batch}"

    @property
    def width(self) -> int:
        """Columns of all tables."""
        return sum(table.dim for table in self.tables)

    @property
    def parallelism(self) -> dict[str, int]:
        """Perceptrons are replicated, tables placed over the same ranks."""
        return dict.fromkeys(("dp", *(f"{table.sharding}_wise" for table in self.tables)), dist.get_world_size())

    def build(self) -> Trainer:
        """This rank's part of the tables, the replicated perceptrons, and batches."""
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
