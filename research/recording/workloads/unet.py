"""A denoiser: U-Net (Ronneberger et al. 2015) with group norm and a time embedding (Ho et al. 2020), replicated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from research.recording.workloads.replicate import ReplicatedWorkload, Tensors

GROUPS = 4  # of a group norm


@dataclass(frozen=True)
class Unet(ReplicatedWorkload, kind="unet", width="channels",
           letters={"levels": "l", "channels": "c", "image": "i", "batch": "b"}):  # fmt: skip
    """A denoiser of images.

    Attributes:
        levels: each below the first halves the image and doubles the channels.
        channels: of the first level; a multiple of 4.
        image: height and width; a multiple of 2^(levels - 1).
    """

    levels: int = 2
    channels: int = 16
    image: int = 16
    batch: int = 8
    bucket_mb: float = 1.0

    def model(self) -> nn.Module:
        return Denoiser(self)

    def draw(self) -> Tensors:
        """Images are waves; the noise goes in by the time: noisy images, noise, both [B, 3, I, I], and times [B, 1]."""
        noise = torch.randn(self.batch, 3, self.image, self.image)
        times = torch.rand(self.batch, 1)
        waves = torch.sin(torch.arange(self.image) + 6 * torch.rand(self.batch, 3, 1, 1)).expand_as(noise)
        share = times[:, :, None, None]
        return (1 - share) * waves + share * noise, noise, times

    def loss(self, model: nn.Module, batch: Tensors) -> torch.Tensor:
        noisy, noise, times = batch
        return F.mse_loss(model(noisy, times), noise)

    def optimizer(self, weights: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(weights, lr=1e-3)


class Denoiser(nn.Module):
    """Levels down, levels up; each level up sees what its level down gave."""

    def __init__(self, size: Unet) -> None:
        super().__init__()
        widths = [size.channels * 2**level for level in range(size.levels)]
        times = 4 * size.channels
        self.embed = nn.Sequential(nn.Linear(1, times), nn.SiLU(), nn.Linear(times, times))
        self.stem = nn.Conv2d(3, size.channels, 3, padding=1)
        self.down = nn.ModuleList(Block(width, width, times) for width in widths)
        self.shrink = nn.ModuleList(nn.Conv2d(w, 2 * w, 3, stride=2, padding=1) for w in widths[:-1])
        self.grow = nn.ModuleList(nn.Conv2d(2 * w, w, 3, padding=1) for w in reversed(widths[:-1]))
        self.up = nn.ModuleList(Block(2 * w, w, times) for w in reversed(widths[:-1]))
        self.output = nn.Conv2d(size.channels, 3, 1)

    def forward(self, images: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        """Noisy images [B, 3, I, I], times [B, 1] -> noise [B, 3, I, I]."""
        embedded = self.embed(times)  # [B, 4C]
        hidden, retained = self.stem(images), []
        for block, shrink in zip(list(self.down)[:-1], self.shrink, strict=True):
            retained.append(block(hidden, embedded))
            hidden = shrink(retained[-1])
        hidden = self.down[-1](hidden, embedded)  # [B, C * 2^(levels - 1), I / 2^(levels - 1), ...]
        for grow, block in zip(self.grow, self.up, strict=True):
            larger = grow(F.interpolate(hidden, scale_factor=2.0, mode="nearest"))
            hidden = block(torch.cat([larger, retained.pop()], dim=1), embedded)
        noise: torch.Tensor = self.output(hidden)
        return noise


class Block(nn.Module):
    """Two convolutions, each after group norm and SiLU, the time in between, around a shortcut."""

    def __init__(self, before: int, after: int, times: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(GROUPS, before), nn.GroupNorm(GROUPS, after)])
        self.first = nn.Conv2d(before, after, 3, padding=1)
        self.second = nn.Conv2d(after, after, 3, padding=1)
        self.time = nn.Linear(times, after)
        self.shortcut = nn.Identity() if before == after else nn.Conv2d(before, after, 1)

    def forward(self, images: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        """[B, before, I, I], [B, times] -> [B, after, I, I]."""
        hidden = self.first(F.silu(self.norms[0](images))) + self.time(embedded)[:, :, None, None]
        result: torch.Tensor = self.second(F.silu(self.norms[1](hidden))) + self.shortcut(images)
        return result
