"""A recommendation model of torch on one rank, on tensors without data: what a recommendation plan states.

Perceptrons, interaction and loss are torch's own modules. Tables are looked up by a function that keeps the indices and
updates its table in the backward pass, as fbgemm's batched tables do; exchanges make what arrives.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from gnnperf.generate import INDEX_BYTES, STATES, Part, RecommendationPlan, Travel, parts_of
from gnnperf.generate.recommendation.lookups import SORTED_BYTES
from gnnperf.generate.recommendation.network import bottom_widths, top_widths, vectors
from research.benchmarks._plan_programs import Context, Exchange, StorageTracker, fake_ranks


class LookUp(torch.autograd.Function):
    """Pooled vectors of own tables; its backward pass sorts the indices and updates the rows."""

    @staticmethod
    def forward(ctx: Context, indices: Tensor, samples: int, width: int, anchor: Tensor) -> Tensor:
        """[lookups] to [samples, width]; `anchor` makes autograd follow it."""
        ctx.save_for_backward(indices)
        return torch.empty(samples, width)

    @staticmethod
    def backward(ctx: Context, *grad: Tensor) -> tuple[None, ...]:
        """Sorted rows, then nothing is left."""
        (indices,) = ctx.saved_tensors
        rows = torch.empty(indices.numel() * INDEX_BYTES, dtype=torch.uint8)
        ordered = torch.empty(2 * indices.numel() * SORTED_BYTES, dtype=torch.uint8)
        del rows, ordered
        return None, None, None, None


def perceptron(widths: Sequence[int], *, sigmoid: bool) -> nn.Sequential:
    """Linear layers with ReLU; the last one has a sigmoid if stated."""
    layers: list[nn.Module] = []
    for place, (inputs, outputs) in enumerate(pairwise(widths)):
        last = sigmoid and place == len(widths) - 2
        layers += [nn.Linear(inputs, outputs), nn.Sigmoid() if last else nn.ReLU()]
    return nn.Sequential(*layers)


@dataclass
class Recommender:
    """One rank."""

    plan: RecommendationPlan  # tables whole or by columns, exchanged all to all
    parts: tuple[Part, ...]  # of tables on this rank
    # bottom, top: perceptrons
    bottom: nn.Sequential
    top: nn.Sequential

    def step(self, anchor: Tensor) -> None:
        """Forward and backward; gradients stay."""
        plan = self.plan
        samples, width = plan.samples, plan.model.bottom[-1]
        numbers, labels = torch.empty(samples, plan.model.dense_features), torch.empty(samples, 1)
        every = torch.empty(round(samples * sum(t.pooling for t in plan.model.tables)), dtype=torch.int64)
        arrived = torch.empty(round(plan.batch * sum(p.indices for p in self.parts)), dtype=torch.int64)
        mine = torch.empty_like(arrived)
        del arrived
        own = sum(part.dim for part in self.parts)
        vectors_of_all = sum(table.dim for table in plan.model.tables)
        looked_up = LookUp.apply(mine, plan.batch, own, anchor)  # type: ignore[no-untyped-call]
        given = Exchange.apply(looked_up, samples, vectors_of_all)  # type: ignore[no-untyped-call]
        del looked_up, mine
        below = self.bottom(numbers)
        number = vectors(plan.model)
        stacked = torch.cat([below, given], 1).view(samples, number, width)
        del given
        square = torch.bmm(stacked, stacked.transpose(1, 2))
        rows = torch.arange(number * (number - 1) // 2)
        crossed = torch.cat([below, square[:, rows % number, rows // number]], 1)
        del square, stacked, below
        F.binary_cross_entropy(self.top(crossed), labels).backward()  # type: ignore[no-untyped-call]
        del every


def counted_peak_bytes(plan: RecommendationPlan, rank: int = 0) -> int:
    """What torch's tracker counts at the peak of a step of one rank."""
    parts = tuple(part for part in parts_of(plan) if rank in part.ranks)
    assert all(part.travel is Travel.POOLED for part in parts), "other exchanges are not in this program"
    tracker = StorageTracker()
    with fake_ranks(plan.ranks), FakeTensorMode():
        bottom = perceptron(bottom_widths(plan.model), sigmoid=False)
        top = perceptron(top_widths(plan.model), sigmoid=True)
        model = nn.ModuleList([bottom, top])
        tables = [torch.empty(part.rows, part.dim) for part in parts]
        states = [torch.empty(part.rows * part.state_bytes_per_row(plan.model.optimizer) // 4) for part in parts]
        dense = list(model.parameters())
        states += [torch.empty_like(p) for p in dense for _ in range(STATES[plan.model.optimizer])]
        buckets = [torch.empty_like(p) for p in dense]
        anchor = torch.empty(1, requires_grad=True)
        tracker.track_external(model, *tables, *states, *buckets)
        with tracker:
            Recommender(plan, parts, bottom, top).step(anchor)
    (snapshot,) = tracker.get_tracker_snapshot("peak").values()
    return int(snapshot["Total"])
