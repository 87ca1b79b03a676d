"""What training minimizes: a sum of terms, each made once from the configuration. A weight of 0 leaves its term out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from gnnperf.gnn.models.gnn import WORK, NodeAnswer
from gnnperf.gnn.training.config import LossKind, OptimConfig
from gnnperf.gnn.training.step_time import StepTarget, ranking_error, robust_step_error, step_times

# How far off an answer is, in log space: one class per kind, chosen once.


class NodeLoss(Protocol):
    """Error of each node, [n], from its residual, log spread and target log(latency / base)."""

    def __call__(self, residual: Tensor, log_spread: Tensor, target: Tensor) -> Tensor:
        """[n], [n], [n] -> [n]."""
        ...


class HuberLoss:
    """|error| beyond `delta`, quadratic below (Huber 1964, over delta): robust, and symmetric in log space."""

    def __init__(self, delta: float) -> None:
        self.delta = delta

    def __call__(self, residual: Tensor, log_spread: Tensor, target: Tensor) -> Tensor:
        """[n], unused, [n] -> [n]."""
        return torch.nn.functional.huber_loss(residual, target, reduction="none", delta=self.delta) / self.delta


class GaussianLoss:
    """Negative log likelihood of a normal error with standard deviation exp(log_spread)."""

    def __call__(self, residual: Tensor, log_spread: Tensor, target: Tensor) -> Tensor:
        """[n], [n], [n] -> [n]."""
        return 0.5 * ((target - residual) * torch.exp(-log_spread)).square() + log_spread + 0.5 * math.log(2 * math.pi)


class LaplaceLoss:
    """Negative log likelihood of a Laplace error with scale exp(log_spread)."""

    def __call__(self, residual: Tensor, log_spread: Tensor, target: Tensor) -> Tensor:
        """[n], [n], [n] -> [n]."""
        return (target - residual).abs() * torch.exp(-log_spread) + log_spread + math.log(2)


def build_loss(config: OptimConfig) -> NodeLoss:
    """The loss the configuration asks for."""
    match config.loss:
        case LossKind.huber:
            return HuberLoss(config.huber_delta)
        case LossKind.gaussian:
            return GaussianLoss()
        case LossKind.laplace:
            return LaplaceLoss()


def weighted_mean(errors: Tensor, time_share: Tensor, share_weight: float) -> Tensor:
    """Mean error, [n] -> scalar; a node counts (1 - share_weight) for itself and share_weight for its time.

    The root of the time share, because a step has thousands of short nodes and some that are ten thousand times
    longer: by the share itself a handful of nodes would be all that is learned.

    Args:
        errors: [n].
        time_share: [n] share of the step's busy time, scaled to mean 1.
        share_weight: 0 to 1.
    """
    weight = (1.0 - share_weight) + share_weight * time_share.sqrt()  # [n]
    return (errors * weight).sum() / weight.sum().clamp_min(1e-12)


Answers = Mapping[str, NodeAnswer]


class Term(Protocol):
    """A part of the loss of one batch."""

    def __call__(self, batch: HeteroData, answers: Answers) -> Tensor:
        """Batch and the network's answers for it -> scalar."""
        ...


@dataclass(frozen=True)
class LabeledNodes:
    """The labeled nodes of all work types, [n] each.

    Attributes:
        residual, log_spread, scheduled_residual: answered.
        target, steady_target: log(latency / base), of isolated ops: over all steps, and as a schedule adds it up.
        time_share: share of the step's busy time, scaled to mean 1.
    """

    residual: Tensor
    log_spread: Tensor
    scheduled_residual: Tensor
    target: Tensor
    steady_target: Tensor
    time_share: Tensor


def labeled(batch: HeteroData, answers: Answers) -> LabeledNodes:
    """Answers and labels of the nodes that have a label."""
    target, steady = (torch.cat([batch[t][name] for t in WORK]) for name in ("target", "steady_target"))
    use = torch.isfinite(target)  # [num work nodes]
    return LabeledNodes(
        residual=torch.cat([answers[t].residual for t in WORK])[use],
        log_spread=torch.cat([answers[t].log_spread for t in WORK])[use],
        scheduled_residual=torch.cat([answers[t].scheduled_residual for t in WORK])[use],
        target=target[use],
        steady_target=torch.where(torch.isfinite(steady), steady, target)[use],  # 0 in the steady steps: no target
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
class ScheduledTerm:
    """Mean error of what a schedule adds up.

    Attributes:
        loss: error per node.
        weight: of the term.
        share_weight: how much a node's time counts (loss.weighted_mean).
    """

    loss: HuberLoss
    weight: float
    share_weight: float

    def __call__(self, batch: HeteroData, answers: Answers) -> Tensor:
        """Scalar."""
        nodes = labeled(batch, answers)
        errors = self.loss(nodes.scheduled_residual, nodes.log_spread, nodes.steady_target)  # [n]
        return self.weight * weighted_mean(errors, nodes.time_share, self.share_weight)


@dataclass(frozen=True)
class StepTerm:
    """Error of step times through the critical path, and of their order within a workload.

    Attributes:
        targets: of all steps.
        step_weight, ranking_weight: of the two.
        delta: |log error| of a step from which its loss is linear.
        noise: |log ratio| up to which two measured steps are not distinguished.
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
    if config.scheduled_weight > 0:
        scheduled = ScheduledTerm(HuberLoss(config.huber_delta), config.scheduled_weight, config.share_weight)
        nodes = (*nodes, scheduled)
    if config.step_weight == config.ranking_weight == 0:
        return nodes
    steps = StepTerm(targets, config.step_weight, config.ranking_weight, config.huber_delta, config.ranking_noise)
    return *nodes, steps
