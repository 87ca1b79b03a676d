"""A residual network (He et al. 2016, basic blocks, CIFAR layout) under DistributedDataParallel."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from gnnperf.record.workloads.workload import SEED, Trainer

NUM_BATCHES = 4  # made before the first step and used in turn
CLASSES = 10
STAGES = 3  # each halves the image and doubles the channels


@dataclass(frozen=True)
class Cnn:
    """An image classifier.

    Attributes:
        blocks: residual blocks per stage.
        channels: of the first stage.
        image: height and width.
        batch: samples per rank and step.
        bucket_mb: DDP's bucket: smaller ones give more, earlier all-reduces.
    """

    blocks: int = 1
    channels: int = 16
    image: int = 32
    batch: int = 16
    bucket_mb: float = 1.0

    @property
    def kind(self) -> str:
        """Which program this is."""
        return "cnn"

    @property
    def name(self) -> str:
        """What differs between the runs of the plan."""
        return f"resnet_n{self.blocks}_c{self.channels}_i{self.image}_b{self.batch}"

    @property
    def width(self) -> int:
        """Channels of the first stage."""
        return self.channels

    @property
    def parallelism(self) -> dict[str, int]:
        """Replicated."""
        return {"dp": dist.get_world_size()}

    def build(self) -> Trainer:
        """The replicated model and batches."""
        torch.manual_seed(SEED)
        model = DistributedDataParallel(ResNet(self), bucket_cap_mb=self.bucket_mb)
        torch.manual_seed(SEED + 1 + dist.get_rank())
        batches = cycle([self._batch() for _ in range(NUM_BATCHES)])

        def forward() -> torch.Tensor:
            images, labels = next(batches)
            return F.cross_entropy(model(images), labels)

        return Trainer((model,), forward, (torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),))

    def _batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Images [B, 3, I, I] and labels [B] int64."""
        return torch.randn(self.batch, 3, self.image, self.image), torch.randint(0, CLASSES, (self.batch,))


class ResNet(nn.Module):
    """Stem, stages of residual blocks, average, output layer."""

    def __init__(self, size: Cnn) -> None:
        super().__init__()
        widths = [size.channels * 2**stage for stage in range(STAGES)]
        blocks: list[nn.Module] = []
        for stage, width in enumerate(widths):
            before = widths[max(stage - 1, 0)]
            blocks.append(Residual(before, width, stride=1 if stage == 0 else 2))
            blocks += [Residual(width, width, stride=1) for _ in range(size.blocks - 1)]
        self.stem = nn.Sequential(
            nn.Conv2d(3, size.channels, 3, padding=1, bias=False), nn.BatchNorm2d(size.channels), nn.ReLU()
        )
        self.blocks = nn.Sequential(*blocks)
        self.output = nn.Linear(widths[-1], CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """[B, 3, I, I] -> logits [B, 10]."""
        features = self.blocks(self.stem(images))  # [B, 4C, I/4, I/4]
        logits: torch.Tensor = self.output(features.mean(dim=(2, 3)))
        return logits


class Residual(nn.Module):
    """Two convolutions with batch norm around a shortcut."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut = nn.Identity() if stride == 1 and before == width else nn.Conv2d(before, width, 1, stride=stride)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """[B, before, I, I] -> [B, width, I/stride, I/stride]."""
        hidden = F.relu(self.norm1(self.conv1(images)))
        return F.relu(self.norm2(self.conv2(hidden)) + self.shortcut(images))
