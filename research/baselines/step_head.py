"""States of nodes -> one number per step: reduced by mean, maximum and time-weighted mean, then a small perceptron.

Reductions of Kaufman et al. 2021 ("A learned performance model for tensor processing units", column-wise mean and
maximum). Next to them a mean weighted by the base's latencies, since a step's time is nearly that of its long nodes.
The
answer multiplies the schedule of the base: it starts where every learner starts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from gnnperf.gnn import Step
from gnnperf.gnn.data.step_time import contended_step_time_us

MAX_RESIDUAL = 5.0  # largest |log(step / base step)|, as the network's for nodes


@dataclass(frozen=True)
class Reduction:
    """Which node belongs to which step of a batch.

    Attributes:
        step: [num_nodes] int64 row of the node's step in the batch.
        share: [num_nodes] float32 the node's share of the base latencies of its step.
        log_base_step: [num_steps] float32 log of the base's step time in us.
    """

    step: Tensor
    share: Tensor
    log_base_step: Tensor


class StepHead(nn.Module):
    """Reduced states -> log(step / base step). The last layer starts at zero: untrained, it answers the base's."""

    def __init__(self, hidden_channels: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(3 * hidden_channels + 1, hidden_channels)
        self.last = nn.Linear(hidden_channels, 1)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, state: Tensor, reduction: Reduction) -> Tensor:
        """[num_nodes, hidden_channels] -> [num_steps]."""
        of, num_steps = reduction.step, len(reduction.log_base_step)
        zeros = state.new_zeros(num_steps, state.shape[1])  # [num_steps, hidden_channels]
        count = torch.bincount(of, minlength=num_steps).clamp_min(1)[:, None]
        mean = zeros.index_add(0, of, state) / count
        highest = zeros.scatter_reduce(0, of[:, None].expand_as(state), state, "amax", include_self=False)
        weighted = zeros.index_add(0, of, state * reduction.share[:, None])
        size = (reduction.log_base_step[:, None] - math.log(1e4)) / math.log(10)  # decades from 10 ms
        reduced = torch.cat([mean, highest, weighted, size], dim=1)  # [num_steps, 3 * hidden_channels + 1]
        answer = self.last(torch.relu(self.hidden(reduced)))[:, 0]  # [num_steps]
        return MAX_RESIDUAL * torch.tanh(answer / MAX_RESIDUAL)


def base_step_us(step: Step) -> float:
    """Step time of the base's latencies, stretched where work overlaps."""
    return contended_step_time_us(step, np.full(step.graph.num_nodes, np.nan))


def base_share(base_us: np.ndarray) -> Tensor:
    """[num_nodes] float32 share of the base latencies of one step."""
    return torch.from_numpy((base_us / max(base_us.sum(), 1e-12)).astype(np.float32))


def joined(parts: Sequence[Reduction]) -> Reduction:
    sizes = torch.tensor([len(p.step) for p in parts])
    return Reduction(
        torch.repeat_interleave(torch.arange(len(parts)), sizes),
        torch.cat([p.share for p in parts]),
        torch.cat([p.log_base_step for p in parts]),
    )


def one_step(step: Step, base_us: np.ndarray) -> Reduction:
    """One step, its nodes in the order of `base_us` [num_nodes]."""
    log_base = torch.tensor([math.log(base_step_us(step))])
    return Reduction(torch.zeros(len(base_us), dtype=torch.int64), base_share(base_us), log_base)
