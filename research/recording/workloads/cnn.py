"""A residual network (He et al. 2016; basic blocks in the CIFAR layout, or bottlenecks), replicated on every rank."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from gnnperf.core import require
from research.recording.workloads.accelerate import Batch, model_trainer
from research.recording.workloads.replicate import own_batches, replicate
from research.recording.workloads.transformer import own_samples
from research.recording.workloads.workload import SEED, Trainer, Workload, device, repeated, repeats_here

CLASSES = 10
STAGES = 3  # each halves the image and doubles the channels
WIDENED = 4  # a bottleneck gives so many times its inner channels


class Layout(StrEnum):
    """What a residual block is made of."""

    BASIC = "basic"  # two 3 x 3 convolutions
    BOTTLENECK = "bottleneck"  # 1 x 1 to few channels, 3 x 3, 1 x 1 to four times as many


@dataclass(frozen=True)
class Cnn(Workload, kind="cnn", label="resnet", width="channels",
          letters={"blocks": "n", "channels": "c", "image": "i", "batch": "b"}, otherwise={
    "bucket_mb": "mb", "layout": "", "precision": "", "accumulation": "acc", "repeats": "rep", "repeating_rank": "on",
    "uneven": "uneven", "blocking": "blocking", "compile": "compile", "cuda_graph": "graph",
}):  # fmt: skip
    """An image classifier."""

    blocks: int = 1  # residual blocks per stage
    channels: int = 16  # of the first stage
    image: int = 32  # height and width
    batch: int = 16  # samples per rank and micro-batch
    bucket_mb: float = 1.0  # DDP's bucket: smaller ones give more, earlier all-reduces
    layout: Layout = Layout.BASIC  # of a residual block
    precision: str = "float32"  # of products, float32 or bfloat16 (autocast)
    accumulation: int = 1  # micro-batches per step
    repeats: int = 1  # how often the first convolution of every block runs in the forward
    repeating_rank: int | None = None  # the only rank that repeats it; None all do
    uneven: float = 1.0  # the last rank has `uneven` times the batch
    blocking: bool = False  # ranks wait for a bucket of gradients where they send it
    compile: bool = False  # with torch.compile (CUDA only)
    cuda_graph: bool = False  # the step is captured once and replayed (one CUDA device only)

    def build(self) -> Trainer:
        """The replicated model and batches."""
        require(dist.get_world_size() == 1 or not self.cuda_graph, "cuda_graph", self.cuda_graph,
                "false with several ranks")  # fmt: skip
        torch.manual_seed(SEED)
        times = repeats_here(self.repeats, self.repeating_rank)
        model = replicate(ResNet(self, times).to(device()), self.bucket_mb, blocking=self.blocking)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
        return model_trainer(self, model, _batches(self), optimizer,
                             lambda logits, labels: F.cross_entropy(logits.float(), labels), (model,))  # fmt: skip


def _batches(size: Cnn) -> Iterator[Batch]:
    samples = own_samples(size.batch, size.uneven)
    return own_batches(lambda: _batch(size, samples))


def _batch(size: Cnn, samples: int) -> Batch:
    """Images [B, 3, I, I] and labels [B] int64."""
    images = torch.randn(samples, 3, size.image, size.image)
    return images.to(device()), torch.randint(0, CLASSES, (samples,)).to(device())


class ResNet(nn.Module):
    """Stem, stages of residual blocks, average, output layer."""

    def __init__(self, size: Cnn, times: int) -> None:
        super().__init__()
        block = BLOCKS[size.layout]
        before = size.channels
        blocks: list[Residual] = []
        for stage in range(STAGES):
            for number in range(size.blocks):
                stride = 2 if stage > 0 and number == 0 else 1
                blocks.append(block(before, size.channels * 2**stage, stride, times))
                before = blocks[-1].channels
        self.stem = nn.Sequential(
            nn.Conv2d(3, size.channels, 3, padding=1, bias=False), nn.BatchNorm2d(size.channels), nn.ReLU()
        )
        self.blocks = nn.Sequential(*blocks)
        self.output = nn.Linear(before, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """[B, 3, I, I] -> logits [B, 10]."""
        features = self.blocks(self.stem(images))  # [B, 4C, I/4, I/4], bottlenecks: [B, 16C, I/4, I/4]
        logits: torch.Tensor = self.output(features.mean(dim=(2, 3)))
        return logits


class Residual(nn.Module):
    """Convolutions with batch norm around a shortcut; `times` the first one runs.

    Attributes:
        channels: of what it gives.
    """

    def __init__(self, before: int, inner: int, stride: int, times: int) -> None:
        super().__init__()
        self.times = times
        convolutions = self._convolutions(before, inner, stride)
        self.convolutions = nn.ModuleList(convolutions)
        self.norms = nn.ModuleList(nn.BatchNorm2d(convolution.out_channels) for convolution in convolutions)
        self.channels: int = convolutions[-1].out_channels
        same = stride == 1 and before == self.channels
        self.shortcut = nn.Identity() if same else nn.Conv2d(before, self.channels, 1, stride=stride)

    def _convolutions(self, before: int, inner: int, stride: int) -> list[nn.Conv2d]:
        return [_conv(before, inner, 3, stride), _conv(inner, inner, 3)]

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """[B, before, I, I] -> [B, channels, I/stride, I/stride]."""
        hidden = repeated(self.convolutions[0], self.times, images)
        for convolution, norm in zip(list(self.convolutions)[1:], self.norms, strict=False):
            hidden = convolution(F.relu(norm(hidden)))
        return F.relu(self.norms[-1](hidden) + self.shortcut(images))


class Bottleneck(Residual):
    """1 x 1, 3 x 3, 1 x 1."""

    def _convolutions(self, before: int, inner: int, stride: int) -> list[nn.Conv2d]:
        return [_conv(before, inner, 1), _conv(inner, inner, 3, stride), _conv(inner, WIDENED * inner, 1)]


def _conv(before: int, after: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, after, kernel, stride=stride, padding=kernel // 2, bias=False)


BLOCKS: dict[Layout, type[Residual]] = {Layout.BASIC: Residual, Layout.BOTTLENECK: Bottleneck}
