"""DLRM (Naumov et al. 2019): tables sharded whole over the ranks, multilayer perceptrons replicated.

dense [B, 13] -> bottom MLP (DDP) ----------------------------------.
                                                                     > interaction -> top MLP (DDP) -> loss
indices [T, B, P] -> all-to-all -> own tables, B of every rank -> all-to-all -'
                                                  backward: the gradient goes the same way back
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle, pairwise

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gnnperf.record.workloads.exchange import exchange
from gnnperf.record.workloads.workload import SEED, Trainer

DENSE_FEATURES = 13  # as in the Criteo data
NUM_BATCHES = 4  # made before the first step and used in turn


@dataclass(frozen=True)
class Dlrm:
    """A recommendation model.

    Attributes:
        tables: embedding tables of the whole model; a multiple of the number of ranks.
        rows: rows per table.
        dim: columns per table, and width of the bottom MLP's result.
        batch: samples per rank and step.
        pooling: indices per sample and table, summed.
        skew: exponent s of the index distribution: index ~ rows * u**s with u uniform; 1 is uniform.
        bottom: hidden widths of the bottom MLP.
        top: hidden widths of the top MLP.
    """

    tables: int = 8
    rows: int = 100_000
    dim: int = 32
    batch: int = 256
    pooling: int = 4
    skew: float = 4.0
    bottom: tuple[int, ...] = (128, 64)
    top: tuple[int, ...] = (128, 64)

    @property
    def kind(self) -> str:
        """Which program this is."""
        return "dlrm"

    @property
    def name(self) -> str:
        """What differs between the runs of the plan."""
        return f"dlrm_t{self.tables}_r{self.rows // 1000}k_d{self.dim}_b{self.batch}"

    @property
    def width(self) -> int:
        """Columns per table."""
        return self.dim

    @property
    def parallelism(self) -> dict[str, int]:
        """Perceptrons are replicated, tables sharded over the same ranks."""
        return {"dp": dist.get_world_size(), "table_wise": dist.get_world_size()}

    def build(self) -> Trainer:
        """This rank's tables, the replicated perceptrons, and batches."""
        torch.sparse.check_sparse_tensor_invariants.disable()  # said aloud, else torch warns at every start
        torch.manual_seed(SEED)
        bottom = DistributedDataParallel(_perceptron((DENSE_FEATURES, *self.bottom, self.dim), last_relu=True))
        pairs = self.tables * (self.tables + 1) // 2
        top = DistributedDataParallel(_perceptron((self.dim + pairs, *self.top, 1), last_relu=False))
        torch.manual_seed(SEED + 1 + dist.get_rank())
        tables = ShardedTables(self)
        batches = cycle([self._batch() for _ in range(NUM_BATCHES)])

        def forward() -> torch.Tensor:
            dense, indices, clicked = next(batches)
            below = bottom(dense)  # [B, D]
            crossed = interact(torch.cat([below.unsqueeze(1), tables(indices)], dim=1))  # [B, pairs]
            logits = top(torch.cat([below, crossed], dim=1)).squeeze(1)  # [B]
            return nn.functional.binary_cross_entropy_with_logits(logits, clicked)

        replicated = [*bottom.parameters(), *top.parameters()]
        optimizers = (torch.optim.Adagrad(tables.parameters(), lr=0.01), torch.optim.SGD(replicated, lr=0.01))
        return Trainer((bottom, top), forward, optimizers)

    def _batch(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Dense features [B, 13], indices [T, B, P] int64, labels [B]."""
        uniform = torch.rand(self.tables, self.batch, self.pooling, dtype=torch.float64)
        indices = (self.rows * uniform**self.skew).long().clamp_(max=self.rows - 1)
        return torch.rand(self.batch, DENSE_FEATURES), indices, torch.randint(0, 2, (self.batch,)).float()


class ShardedTables(nn.Module):
    """The tables of this rank; looks up every rank's samples in them, and gets its own samples' rows of all tables."""

    def __init__(self, size: Dlrm) -> None:
        super().__init__()
        self.ranks, self.own = dist.get_world_size(), size.tables // dist.get_world_size()
        self.bags = nn.ModuleList(
            nn.EmbeddingBag(size.rows, size.dim, mode="sum", sparse=True) for _ in range(self.own)
        )

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        """[T, B, P] int64 of this rank's samples -> [B, T, D]."""
        tables, batch, pooling = indices.shape
        received = torch.empty_like(indices)
        dist.all_to_all_single(received, indices)
        by_table = received.view(self.ranks, self.own, batch, pooling).transpose(0, 1)  # [own, ranks, B, P]
        pooled = [bag(by_table[i].reshape(-1, pooling)) for i, bag in enumerate(self.bags)]  # own x [ranks * B, D]
        rows = exchange(torch.stack(pooled, dim=1))  # [ranks * B, own, D]: ordered by the rank that looked up
        by_rank = rows.view(self.ranks, batch, self.own, -1)
        return by_rank.transpose(0, 1).reshape(batch, tables, -1)  # [B, T, D]


def interact(vectors: torch.Tensor) -> torch.Tensor:
    """Products of all pairs: [B, V, D] -> [B, V * (V - 1) / 2]."""
    lower = torch.tril_indices(vectors.shape[1], vectors.shape[1], offset=-1)  # [2, pairs]
    products = torch.bmm(vectors, vectors.transpose(1, 2))  # [B, V, V]
    return products[:, lower[0], lower[1]]


def _perceptron(widths: tuple[int, ...], *, last_relu: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(pairwise(widths)):
        layers.append(nn.Linear(inputs, outputs))
        if last_relu or i < len(widths) - 2:
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)
