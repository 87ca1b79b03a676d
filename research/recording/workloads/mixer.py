"""An image classifier of linear layers only (MLP-Mixer, Tolstikhin et al. 2021), with dropout; replicated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from research.recording.workloads.replicate import ReplicatedWorkload, Tensors

CLASSES, SIDE = 10, 32  # of images
DROPOUT = 0.1


@dataclass(frozen=True)
class Mixer(ReplicatedWorkload, kind="mixer", width="hidden",
            letters={"layers": "l", "hidden": "h", "patch": "p", "batch": "b"}):  # fmt: skip
    """A classifier of images.

    Attributes:
        layers: each mixes over patches, then over channels.
        hidden: channels of a patch.
        patch: height and width of a patch; divides 32.
    """

    layers: int = 2
    hidden: int = 64
    patch: int = 4
    batch: int = 8
    bucket_mb: float = 1.0

    def model(self) -> nn.Module:
        return Classifier(self)

    def draw(self) -> Tensors:
        """Images [B, 3, SIDE, SIDE], labels [B] int64."""
        return torch.randn(self.batch, 3, SIDE, SIDE), torch.randint(0, CLASSES, (self.batch,))

    def loss(self, model: nn.Module, batch: Tensors) -> torch.Tensor:
        images, labels = batch
        return F.cross_entropy(model(images), labels, label_smoothing=0.1)

    def optimizer(self, weights: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(weights, lr=1e-3, fused=True)


class Classifier(nn.Module):
    """Patches, mixing layers, average, output layer."""

    def __init__(self, size: Mixer) -> None:
        super().__init__()
        patches = (SIDE // size.patch) ** 2
        self.patches = nn.Unfold(size.patch, stride=size.patch)
        self.embed = nn.Linear(3 * size.patch**2, size.hidden)
        self.layers = nn.Sequential(*(Mixing(patches, size.hidden) for _ in range(size.layers)))
        self.norm = nn.LayerNorm(size.hidden)
        self.output = nn.Linear(size.hidden, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """[B, 3, SIDE, SIDE] -> logits [B, CLASSES]."""
        hidden = self.embed(self.patches(images).transpose(1, 2))  # [B, patches, H]
        logits: torch.Tensor = self.output(self.norm(self.layers(hidden)).mean(dim=1))
        return logits


class Mixing(nn.Module):
    """An MLP over patches, then one over channels, each around a shortcut."""

    def __init__(self, patches: int, hidden: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(hidden), nn.LayerNorm(hidden)])
        self.over_patches, self.over_channels = _mlp(patches), _mlp(hidden)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, patches, H] -> the same."""
        mixed = hidden + self.over_patches(self.norms[0](hidden).transpose(1, 2)).transpose(1, 2)
        result: torch.Tensor = mixed + self.over_channels(self.norms[1](mixed))
        return result


def _mlp(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(DROPOUT), nn.Linear(2 * width, width))
