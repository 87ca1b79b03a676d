"""A classifier of point clouds (PointNet, Qi et al. 2017): shared layers, a maximum over points, a head; replicated."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from research.recording.workloads.batches import own_batches
from research.recording.workloads.device import device
from research.recording.workloads.names import name_of
from research.recording.workloads.replicate import replicate
from research.recording.workloads.workload import SEED, LossTrainer, Trainer

CLASSES = 5
DROPOUT = 0.3
Batch = tuple[torch.Tensor, torch.Tensor]  # points [B, P, 3], labels [B] int64


@dataclass(frozen=True)
class PointCloud:
    """A classifier of clouds.

    Attributes:
        points: of a cloud.
        hidden: width of the first two layers; the others double it.
        layers: shared by points, at least two.
        batch: clouds per rank.
        bucket_mb: DDP's bucket.
    """

    points: int = 256
    hidden: int = 32
    layers: int = 4
    batch: int = 8
    bucket_mb: float = 1.0

    @property
    def kind(self) -> str:
        """Which program this is."""
        return "point_cloud"

    @property
    def name(self) -> str:
        """Sizes: point_cloud_p256_h32_l4_b8."""
        return name_of(self, {"points": "p", "hidden": "h", "layers": "l", "batch": "b"}, {"bucket_mb": "mb"})

    @property
    def width(self) -> int:
        """Of the first layers."""
        return self.hidden

    @property
    def parallelism(self) -> dict[str, int]:
        """Replicated."""
        return {"dp": dist.get_world_size()}

    def build(self) -> Trainer:
        """The replicated model and batches."""
        torch.manual_seed(SEED)
        model = replicate(Classifier(self).to(device()), self.bucket_mb)
        batches = own_batches(lambda: _batch(self))

        def forward() -> torch.Tensor:
            points, labels = next(batches)
            return F.cross_entropy(model(points), labels)

        return LossTrainer((model,), forward, (torch.optim.AdamW(model.parameters(), lr=1e-3),))


def _batch(size: PointCloud) -> Batch:
    """A class says how far a cloud is stretched along its first axis."""
    labels = torch.randint(0, CLASSES, (size.batch,))
    stretch = torch.stack([1.0 + labels, torch.ones(size.batch), torch.ones(size.batch)], dim=1)  # [B, 3]
    return (torch.randn(size.batch, size.points, 3) * stretch[:, None]).to(device()), labels.to(device())


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
