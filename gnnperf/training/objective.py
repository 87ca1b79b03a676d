"""What training minimizes: a sum of terms, each made once from the configuration. A weight of 0 leaves its term out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from gnnperf.models.gnn import WORK, NodeAnswer
from gnnperf.training.config import OptimConfig
from gnnperf.training.loss import NodeLoss, build_loss, weighted_mean
from gnnperf.training.step_target import StepTarget
from gnnperf.training.step_time import ranking_error, robust_step_error, step_times

Answers = Mapping[str, NodeAnswer]
MAX_BEYOND = 3.0  # log(measured / mean): a stall of more than 20 times the mean counts as 20 times


class Term(Protocol):
    """A part of the loss of one batch."""

    def __call__(self, batch: HeteroData, answers: Answers) -> Tensor:
        """Batch and the network's answers for it -> scalar."""
        ...


@dataclass(frozen=True)
class LabeledNodes:
    """The labeled nodes of all work types, [n] each.

    Attributes:
        residual, log_spread, mean_residual: answered.
        target: log(latency / base).
        time_share: share of the step's busy time, scaled to mean 1.
    """

    residual: Tensor
    log_spread: Tensor
    mean_residual: Tensor
    target: Tensor
    time_share: Tensor


def labeled(batch: HeteroData, answers: Answers) -> LabeledNodes:
    """Answers and labels of the nodes that have a label."""
    target = torch.cat([batch[t].target for t in WORK])  # [num work nodes]
    use = torch.isfinite(target)  # [num work nodes]
    return LabeledNodes(
        residual=torch.cat([answers[t].residual for t in WORK])[use],
        log_spread=torch.cat([answers[t].log_spread for t in WORK])[use],
        mean_residual=torch.cat([answers[t].mean_residual for t in WORK])[use],
        target=target[use],
        time_share=torch.cat([batch[t].time_share for t in WORK])[use],
    )


@dataclass(frozen=True)
class NodeTerm:
    """Mean error of labeled nodes.

    Attributes:
        loss: error per node.
        share_weight: how much a node's time counts (loss.weighted_mean).
    """

    loss: NodeLoss
    share_weight: float

    def __call__(self, batch: HeteroData, answers: Answers) -> Tensor:
        """Scalar."""
        nodes = labeled(batch, answers)
        errors = self.loss(nodes.residual, nodes.log_spread, nodes.target)  # [n]
        assert errors.shape == nodes.target.shape
        return weighted_mean(errors, nodes.time_share, self.share_weight)


@dataclass(frozen=True)
class MeanTerm:
    """How far off means are: the deviance of a gamma distribution, which is least at the mean (McCullagh, Nelder 1989).

    Attributes:
        weight: of the term.
        share_weight: how much a node's time counts (loss.weighted_mean).
    """

    weight: float
    share_weight: float

    def __call__(self, batch: HeteroData, answers: Answers) -> Tensor:
        """Scalar."""
        nodes = labeled(batch, answers)
        beyond = (nodes.target - nodes.mean_residual).clamp(-MAX_BEYOND, MAX_BEYOND)  # [n] log(measured / mean)
        return self.weight * weighted_mean(beyond.exp() - 1 - beyond, nodes.time_share, self.share_weight)


@dataclass(frozen=True)
class StepTerm:
    """Error of step times through the critical path, and of their order within a workload.

    Attributes:
        targets: of all steps.
        step_weight, ranking_weight: of the two.
        delta: |log error| of a step from which its loss is linear.
        noise: |log ratio| up to which two measured steps are not told apart.
    """

    targets: Sequence[StepTarget]
    step_weight: float
    ranking_weight: float
    delta: float
    noise: float

    def __call__(self, batch: HeteroData, answers: Answers) -> Tensor:
        """Scalar."""
        times = step_times(batch, answers, self.targets)
        distance, order = robust_step_error(times, self.delta), ranking_error(times, self.noise)
        return self.step_weight * distance + self.ranking_weight * order


def build_terms(config: OptimConfig, targets: Sequence[StepTarget]) -> tuple[Term, ...]:
    """The terms that the configuration asks for."""
    nodes: tuple[Term, ...] = (NodeTerm(build_loss(config), config.share_weight),)
    if config.mean_weight > 0:
        nodes = (*nodes, MeanTerm(config.mean_weight, config.share_weight))
    if config.step_weight == config.ranking_weight == 0:
        return nodes
    steps = StepTerm(targets, config.step_weight, config.ranking_weight, config.huber_delta, config.ranking_noise)
    return *nodes, steps
