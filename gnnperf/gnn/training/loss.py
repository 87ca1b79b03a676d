"""How far off an answer is, in log space: one class per kind, chosen once."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

from gnnperf.gnn.training.config import LossKind, OptimConfig


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
