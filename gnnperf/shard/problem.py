"""What is searched for: a place for each table of a model on a cluster's devices, within their memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gnnperf.core import require
from gnnperf.generate import (
    COLUMN_MULTIPLE,
    FLOAT_BYTES,
    STATES,
    Placed,
    Placement,
    RecommendationPlan,
    Split,
    Table,
    dense_parameters,
)
from gnnperf.hardware import ClusterSpec

RESERVE_SHARE = 0.15  # of a device's memory for activations and libraries: torchrec's storage reservation by default
GRADIENT_AND_BUCKET = 2  # float32 copies next to a replicated parameter


@dataclass(frozen=True)
class Problem:
    """A model, its batch and number of ranks, and where they are.

    Attributes:
        plan: with any placement; others take its place.
        cluster: devices and links; its `ranks_per_node` holds for the plan's ranks.
        reserve_share: of a device's memory that tables do not get.
    """

    plan: RecommendationPlan
    cluster: ClusterSpec
    reserve_share: float = RESERVE_SHARE

    def __post_init__(self) -> None:
        require(self.cluster.device.kind == "gpu", "hardware", self.cluster.device.name,
                "a GPU: batched lookups with a fused optimizer are kernels of GPUs")  # fmt: skip
        require(0 <= self.reserve_share < 1, "reserve", self.reserve_share, "a share from 0 up, below 1")

    @property
    def tables(self) -> Sequence[Table]:
        """To be placed."""
        return self.plan.model.tables

    @property
    def ranks(self) -> int:
        """That hold them."""
        return self.plan.ranks

    @property
    def capacity_bytes(self) -> float:
        """For tables, of one device: its memory without the reserve and what is replicated of the perceptrons."""
        model = self.plan.model
        copies = 1 + GRADIENT_AND_BUCKET + STATES[model.optimizer]
        perceptrons = float(dense_parameters(model) * FLOAT_BYTES * copies)
        return self.cluster.device.memory_bytes * (1.0 - self.reserve_share) - perceptrons

    def placed(self, placement: Placement) -> RecommendationPlan:
        """The plan with another placement."""
        return replace(self.plan, placement=placement)


def ways(problem: Problem, table: Table) -> tuple[tuple[Split, int], ...]:
    """How a table may be held, (split, ranks): whole; rows over all, or as many as a machine has; columns; copies."""
    ranks = problem.ranks
    if ranks == 1:
        return ((Split.TABLE, 1),)
    node = min(problem.cluster.ranks_per_node, ranks)
    by_row = [(Split.ROW, n) for n in sorted({node, ranks}) if 1 < n <= table.rows]
    powers = [2**k for k in range(1, 13) if 2**k <= ranks]
    by_column = [(Split.COLUMN, n) for n in powers if table.dim % n == 0 and table.dim // n % COLUMN_MULTIPLE == 0]
    return ((Split.TABLE, 1), *by_row, *by_column, (Split.REPLICATED, ranks))


def on_ranks(split: Split, ranks: Sequence[int]) -> Placed:
    """A place on these ranks."""
    return Placed(split, tuple(sorted(ranks)))
