"""A variational autoencoder of images (Kingma, Welling 2014), convolutions down and transposed ones up; replicated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F

from research.recording.workloads.replicate import ReplicatedWorkload, Tensors

STAGES = 2  # each halves the image and doubles the channels


@dataclass(frozen=True)
class Autoencoder(ReplicatedWorkload, kind="autoencoder", width="channels",
                  letters={"channels": "c", "image": "i", "latent": "z", "batch": "b"}):  # fmt: skip
    """A generator of images.

    Attributes:
        channels: after the first convolution.
        image: height and width; a multiple of 4.
        latent: numbers that an image becomes.
    """

    channels: int = 16
    image: int = 16
    latent: int = 32
    batch: int = 16
    bucket_mb: float = 1.0

    def model(self) -> nn.Module:
        return Vae(self)

    def draw(self) -> Tensors:
        """Discs at random positions, [B, 1, I, I]."""
        center = self.image * torch.rand(self.batch, 2, 1, 1)
        at = torch.arange(self.image)
        distance = (at[:, None] - center[:, :1]) ** 2 + (at[None, :] - center[:, 1:]) ** 2  # [B, 1, I, I]
        return ((distance < (self.image / 4) ** 2).float(),)

    def loss(self, model: nn.Module, batch: Tensors) -> torch.Tensor:
        """Of the pixels, and the divergence of the latent distribution."""
        (images,) = batch
        restored, mean, log_variance = model(images)
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(dim=1).mean()
        return F.binary_cross_entropy_with_logits(restored, images) + 1e-3 * divergence

    def optimizer(self, weights: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(weights, lr=1e-3)


class Vae(nn.Module):
    """Encoder, a sample around what it says, decoder."""

    def __init__(self, size: Autoencoder) -> None:
        super().__init__()
        widths = [1, *(size.channels * 2**stage for stage in range(STAGES))]
        self.side = size.image // 2**STAGES
        self.down = nn.Sequential(*(part for before, after in pairwise(widths) for part in (
            nn.Conv2d(before, after, 4, stride=2, padding=1), nn.BatchNorm2d(after), nn.LeakyReLU(0.2))))  # fmt: skip
        flat = widths[-1] * self.side**2
        self.encode = nn.Linear(flat, 2 * size.latent)
        self.decode = nn.Linear(size.latent, flat)
        upward = widths[::-1]
        self.up = nn.Sequential(*(part for before, after in pairwise(upward) for part in (
            nn.LeakyReLU(0.2), nn.ConvTranspose2d(before, after, 4, stride=2, padding=1))))  # fmt: skip

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """[B, 1, I, I] -> logits of pixels [B, 1, I, I], mean and log variance [B, latent]."""
        mean, log_variance = self.encode(self.down(images).flatten(1)).chunk(2, dim=1)
        sample = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        hidden = self.decode(sample).unflatten(1, (-1, self.side, self.side))
        return self.up(hidden), mean, log_variance
