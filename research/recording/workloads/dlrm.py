"""DLRM (Naumov et al. 2019): embedding tables sharded over the ranks, multilayer perceptrons replicated.

indices [T, B, P] -> lookup -> transfer begins ................... ends -.
dense [B, 13] ----------------------> bottom MLP (DDP) ------------------> interaction -> top MLP (DDP) -> loss
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import cycle, pairwise

import torch
import torch.distributed as dist
from torch import nn

from research.recording.workloads import workload
from research.recording.workloads.exchange import Blocking, Transfer
from research.recording.workloads.replicate import NUM_BATCHES, replicated
from research.recording.workloads.sharded_tables import Sharding, sharded

DENSE_FEATURES = 13  # as in the Criteo data
LEARNING_RATE = 0.01


@dataclass(frozen=True)
class Dlrm(workload.Workload, kind="dlrm", width="dim",
           letters={"tables": "t", "rows": "r", "dim": "d", "batch": "b"}, otherwise={
    "pooling": "p", "skew": "s", "bottom": "bottom", "top": "top", "sharding": "", "overlap": "overlap",
    "repeats": "rep", "repeating_rank": "on", "precision": "", "accumulation": "acc",
}):  # fmt: skip
    """A recommendation model."""

    tables: int = 8  # embedding tables of the whole model; sharded by table: a multiple of the number of ranks
    rows: int = 100_000  # rows per table
    dim: int = 32  # columns per table, and width of the bottom MLP's result; sharded by column: a multiple of the ranks
    batch: int = 256  # samples per rank and micro-batch
    pooling: int = 4  # indices per sample and table, summed
    skew: float = 4.0  # exponent s of the index distribution: index ~ rows * u**s with u uniform; 1 is uniform
    bottom: tuple[int, ...] = (128, 64)  # hidden widths of the bottom MLP
    top: tuple[int, ...] = (128, 64)  # hidden widths of the top MLP
    sharding: Sharding = Sharding.TABLE  # what of the tables a rank holds
    # the bottom MLP runs, forward and backward, while vectors travel; else ranks wait for them first
    overlap: bool = False
    repeats: int = 1  # how often the interaction's bmm runs in the forward
    repeating_rank: int | None = None  # the only rank that repeats it; None all do
    precision: str = "float32"  # of the MLPs' products, float32 or bfloat16 (autocast)
    accumulation: int = 1  # micro-batches per step

    @property
    def parallelism(self) -> dict[str, int]:
        """Perceptrons are replicated, tables sharded over the same ranks."""
        return {"dp": dist.get_world_size(), f"{self.sharding}_wise": dist.get_world_size()}

    def build(self) -> workload.Trainer:
        torch.sparse.check_sparse_tensor_invariants.disable()  # stated aloud, else torch warns at every start
        torch.manual_seed(workload.SEED)
        network = Network(self)
        torch.manual_seed(workload.SEED + 1 + dist.get_rank())
        tables = sharded(self, self.sharding)
        batches = [self._batch() for _ in range(NUM_BATCHES)]
        turn = cycle(batches)
        transfer = Transfer if self.overlap else Blocking

        def forward() -> torch.Tensor:
            dense, indices, clicked = next(turn)
            vectors = tables.begin(indices, transfer)
            logits = network(dense, vectors)
            return nn.functional.binary_cross_entropy_with_logits(logits, clicked)

        replicated = [*network.bottom.parameters(), *network.top.parameters()]
        # Of tables, only rows that were requested have a gradient; there is no fused optimizer for those.
        optimizers = (torch.optim.SGD(tables.parameters(), lr=LEARNING_RATE),
                      torch.optim.SGD(replicated, lr=LEARNING_RATE, fused=True))  # fmt: skip
        statistics = index_statistics((indices for _, indices, _ in batches), self.rows, self.dim)
        return workload.LossTrainer((network.bottom, network.top), forward, optimizers, self.accumulation, statistics)

    def _batch(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Dense features [B, 13], indices [T, B, P] int64, labels [B]."""
        uniform = torch.rand(self.tables, self.batch, self.pooling, dtype=torch.float64)
        indices = (self.rows * uniform**self.skew).long().clamp_(max=self.rows - 1)
        dense, clicked = torch.rand(self.batch, DENSE_FEATURES), torch.randint(0, 2, (self.batch,)).float()
        return dense.to(workload.device()), indices.to(workload.device()), clicked.to(workload.device())


class Network:
    """The replicated perceptrons, and the interaction between them."""

    def __init__(self, size: Dlrm) -> None:
        pairs = size.tables * (size.tables + 1) // 2
        self.bottom = perceptron((DENSE_FEATURES, *size.bottom, size.dim), last_relu=True)
        self.top = perceptron((size.dim + pairs, *size.top, 1), last_relu=False)
        self.arithmetic = workload.arithmetic(size.precision)
        self.repeats = workload.repeats_here(size.repeats, size.repeating_rank)

    def __call__(self, dense: torch.Tensor, vectors: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Dense features [B, 13], and what gives vectors [B, T, D] when they are needed -> logits [B]."""
        with self.arithmetic():
            below = self.bottom(dense).float()  # [B, D]
        crossed = interact(torch.cat([below.unsqueeze(1), vectors()], dim=1), self.repeats)  # [B, pairs]
        with self.arithmetic():
            logits: torch.Tensor = self.top(torch.cat([below, crossed], dim=1)).float()
        return logits.squeeze(1)


def interact(vectors: torch.Tensor, times: int = 1) -> torch.Tensor:
    """Products of all pairs: [B, V, D] -> [B, V * (V - 1) / 2]."""
    number, where = vectors.shape[1], vectors.device
    lower = torch.tril_indices(number, number, offset=-1, device=where)  # [2, pairs]
    products = workload.repeated(torch.bmm, times, vectors, vectors.transpose(1, 2))  # [B, V, V]
    return products[:, lower[0], lower[1]]


def perceptron(widths: tuple[int, ...], *, last_relu: bool) -> nn.Module:
    """Linear layers of these widths with ReLU between them, replicated over the ranks."""
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(pairwise(widths)):
        layers.append(nn.Linear(inputs, outputs))
        if last_relu or i < len(widths) - 2:
            layers.append(nn.ReLU())
    return replicated(nn.Sequential(*layers))


def index_statistics(batches: Iterable[torch.Tensor], rows: int, dim: int) -> tuple[dict[str, object], ...]:
    """One entry per table, of one rank's samples; `batches` are indices, [T, B, P] int64 each.

    Per table its number, `rows`, `dim`, `pooling_factor` (indices per sample), `batches`, `lookups_per_batch`,
    `distinct_rows_per_batch` (mean) and `reuse_histogram`: of all batches together, the number of rows that a batch
    looks up once, twice, 3 to 4, 5 to 8, ... times.
    """
    results = torch.stack(list(batches))  # [batches, T, B, P]
    number, tables, batch, pooling = results.shape
    result: list[dict[str, object]] = []
    for table in range(tables):
        histogram = _reuse(results[:, table])
        result.append({
            "table": table, "rows": rows, "dim": dim, "pooling_factor": float(pooling), "batches": number,
            "lookups_per_batch": batch * pooling, "distinct_rows_per_batch": sum(histogram) / number,
            "reuse_histogram": histogram,
        })  # fmt: skip
    return tuple(result)


def _reuse(indices: torch.Tensor) -> list[int]:
    """[batches, B, P] int64 -> number of rows by the power of two (rounded up) of their accesses within a batch."""
    accesses = torch.cat([batch.unique(return_counts=True)[1] for batch in indices])
    powers: list[int] = torch.bincount(accesses.double().log2().ceil().long()).tolist()
    return powers
