"""Errors of labeled nodes, in log space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from gnnperf.gnn.models.gnn import WORK, NodeAnswer

Answers = Mapping[str, NodeAnswer]


@dataclass(frozen=True)
class LabeledNodes:
    """The labeled nodes of all work types, [n] each.

    Attributes:
        residual, scheduled_residual: predicted.
        target, steady_target: log(latency / base), of isolated ops: over all steps, and as a schedule adds it up.
        time_share: share of the step's busy time, scaled to mean 1.
    """

    residual: Tensor
    scheduled_residual: Tensor
    target: Tensor
    steady_target: Tensor
    time_share: Tensor


def labeled(batch: HeteroData, answers: Answers) -> LabeledNodes:
    """Predictions and labels of the nodes that have a label."""
    target, steady = (torch.cat([batch[t][name] for t in WORK]) for name in ("target", "steady_target"))
    use = torch.isfinite(target)  # [num work nodes]
    return LabeledNodes(
        residual=torch.cat([answers[t].residual for t in WORK])[use],
        scheduled_residual=torch.cat([answers[t].scheduled_residual for t in WORK])[use],
        target=target[use],
        steady_target=torch.where(torch.isfinite(steady), steady, target)[use],  # 0 in the steady steps: no target
        time_share=torch.cat([batch[t].time_share for t in WORK])[use],
    )


def robust(predicted: Tensor, target: Tensor, delta: float) -> Tensor:
    """[n], [n] -> [n] |error| beyond `delta`, quadratic below (Huber 1964, over delta): symmetric in log space."""
    return torch.nn.functional.huber_loss(predicted, target, reduction="none", delta=delta) / delta


def node_error(errors: Tensor, nodes: LabeledNodes, share_weight: float) -> Tensor:
    """Weighted mean of errors, [n] -> scalar.

    A node counts (1 - share_weight) for itself and share_weight for the root of its time share. The share itself would
    let a handful of nodes dominate: a step has thousands of short nodes, and some that are ten thousand times longer.
    """
    weight = (1.0 - share_weight) + share_weight * nodes.time_share.sqrt()  # [n]
    return (errors * weight).sum() / weight.sum().clamp_min(1e-12)
