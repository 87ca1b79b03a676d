"""A classifier of point clouds (PointNet, Qi et al. 2017): shared layers, a maximum over points, a head; replicated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F

from research.recording.workloads.replicate import ReplicatedWorkload, Tensors

CLASSES = 5
DROPOUT = 0.3


@dataclass(frozen=True)
class PointCloud(ReplicatedWorkload, kind="point_cloud", width="hidden",
                 letters={"points": "p", "hidden": "h", "layers": "l", "batch": "b"}):  # fmt: skip
    """A classifier of clouds.

    Attributes:
        points: of a cloud.
        hidden: width of the first two layers; the others double it.
        layers: shared by points, at least two.
    """

    points: int = 256
    hidden: int = 32
    layers: int = 4
    batch: int = 8
    bucket_mb: float = 1.0

    def model(self) -> nn.Module:
        return Classifier(self)

    def draw(self) -> Tensors:
        """Points [B, P, 3], labels [B] int64: how far a cloud is stretched along its first axis."""
        labels = torch.randint(0, CLASSES, (self.batch,))
        stretch = torch.stack([1.0 + labels, torch.ones(self.batch), torch.ones(self.batch)], dim=1)  # [B, 3]
        return torch.randn(self.batch, self.points, 3) * stretch[:, None], labels

    def loss(self, model: nn.Module, batch: Tensors) -> torch.Tensor:
        points, labels = batch
        return F.cross_entropy(model(points), labels)

    def optimizer(self, weights: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(weights, lr=1e-3)


class Classifier(nn.Module):
    """Layers over each point, the maximum over points, layers over the cloud."""

    def __init__(self, size: PointCloud) -> None:
        super().__init__()
        widths = [3, size.hidden, *(size.hidden * 2**place for place in range(size.layers - 1))]
        self.shared = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(widths))
        self.norms = nn.ModuleList(nn.BatchNorm1d(after) for after in widths[1:])
        self.head = nn.Sequential(nn.Linear(widths[-1], 2 * size.hidden), nn.ReLU(), nn.Dropout(DROPOUT),
                                  nn.Linear(2 * size.hidden, CLASSES))  # fmt: skip

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """[B, P, 3] -> logits [B, CLASSES]."""
        hidden = points.flatten(0, 1)  # [B P, 3]
        for layer, norm in zip(self.shared, self.norms, strict=True):
            hidden = F.relu(norm(layer(hidden)))
        largest = hidden.unflatten(0, points.shape[:2]).max(dim=1).values  # [B, C]
        logits: torch.Tensor = self.head(largest)
        return logits
