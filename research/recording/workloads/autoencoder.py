"""A variational autoencoder of images (Kingma, Welling 2014), convolutions down and transposed ones up; replicated."""

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

STAGES = 2  # each halves the image and doubles the channels


@dataclass(frozen=True)
class Autoencoder:
    """A generator of images.

    Attributes:
        channels: after the first convolution.
        image: height and width; a multiple of 4.
        latent: numbers that an image becomes.
        batch: samples per rank.
        bucket_mb: DDP's bucket.
    """

    channels: int = 16
    image: int = 16
    latent: int = 32
    batch: int = 16
    bucket_mb: float = 1.0

    @property
    def kind(self) -> str:
        """Which program this is."""
        return "autoencoder"

    @property
    def name(self) -> str:
        """Sizes: autoencoder_c16_i16_z32_b16."""
        letters = {"channels": "c", "image": "i", "latent": "z", "batch": "b"}
        return name_of(self, letters, {"bucket_mb": "mb"})

    @property
    def width(self) -> int:
        """Channels after the first convolution."""
        return self.channels

    @property
    def parallelism(self) -> dict[str, int]:
        """Replicated."""
        return {"dp": dist.get_world_size()}

    def build(self) -> Trainer:
        """The replicated model and batches."""
        torch.manual_seed(SEED)
        model = replicate(Vae(self).to(device()), self.bucket_mb)
        batches = own_batches(lambda: _discs(self).to(device()))

        def forward() -> torch.Tensor:
            images = next(batches)
            restored, mean, log_variance = model(images)
            divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(dim=1).mean()
            return F.binary_cross_entropy_with_logits(restored, images) + 1e-3 * divergence

        return LossTrainer((model,), forward, (torch.optim.Adam(model.parameters(), lr=1e-3),))


def _discs(size: Autoencoder) -> torch.Tensor:
    """Of random places, [B, 1, I, I]."""
    center = size.image * torch.rand(size.batch, 2, 1, 1)
    at = torch.arange(size.image)
    distance = (at[:, None] - center[:, :1]) ** 2 + (at[None, :] - center[:, 1:]) ** 2  # [B, 1, I, I]
    return (distance < (size.image / 4) ** 2).float()


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
