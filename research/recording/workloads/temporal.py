"""A forecaster of series: dilated causal convolutions (Bai et al. 2018) with dropout, around shortcuts; replicated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from research.recording.workloads.replicate import ReplicatedWorkload, Tensors

SENSORS = 4  # values per time step
WINDOW = 3  # of a convolution
DROPOUT = 0.1


@dataclass(frozen=True)
class Temporal(ReplicatedWorkload, kind="temporal", width="channels",
               letters={"blocks": "n", "channels": "c", "length": "s", "batch": "b"}):  # fmt: skip
    """A forecaster of the next values.

    Attributes:
        blocks: each looks twice as far back as the one before.
        channels: of every block.
        length: time steps of a series.
    """

    blocks: int = 4
    channels: int = 32
    length: int = 128
    batch: int = 16
    bucket_mb: float = 1.0

    def model(self) -> nn.Module:
        return Forecaster(self)

    def draw(self) -> Tensors:
        """Each sensor its own frequency, phase and noise, [B, SENSORS, S + 1]."""
        rates, phases = 0.1 + torch.rand(self.batch, SENSORS, 1), 6.0 * torch.rand(self.batch, SENSORS, 1)
        waves = torch.sin(rates * torch.arange(self.length + 1) + phases)
        return (waves + 0.1 * torch.randn_like(waves),)

    def loss(self, model: nn.Module, batch: Tensors) -> torch.Tensor:
        (series,) = batch  # [B, SENSORS, S + 1]
        return F.mse_loss(model(series[:, :, :-1]), series[:, :, 1:])

    def optimizer(self, weights: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(weights, lr=2e-3)


class Forecaster(nn.Module):
    """Sensors to channels, blocks, channels to sensors."""

    def __init__(self, size: Temporal) -> None:
        super().__init__()
        self.stem = nn.Conv1d(SENSORS, size.channels, 1)
        self.blocks = nn.Sequential(*(Block(size.channels, 2**place) for place in range(size.blocks)))
        self.output = nn.Conv1d(size.channels, SENSORS, 1)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        """[B, SENSORS, S] -> the next values, [B, SENSORS, S]."""
        following: torch.Tensor = self.output(self.blocks(self.stem(series)))
        return following


class Block(nn.Module):
    """Two convolutions that see `reach` steps apart, and no step of the future; each with ReLU and dropout."""

    def __init__(self, channels: int, reach: int) -> None:
        super().__init__()
        self.past = (WINDOW - 1) * reach
        self.convolutions = nn.ModuleList(nn.Conv1d(channels, channels, WINDOW, dilation=reach) for _ in range(2))
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        """[B, C, S] -> the same."""
        hidden = series
        for convolution in self.convolutions:
            hidden = self.dropout(F.relu(convolution(F.pad(hidden, (self.past, 0)))))
        return F.relu(hidden + series)
