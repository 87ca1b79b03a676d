"""What every workload offers: a name, its parameters, and a training step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import nn

SEED = 20260  # of weights and data; ranks add their number where they must differ


class Workload(Protocol):
    """The parameters of a training program. A dataclass; `dataclasses.asdict` of it goes into the card."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def name(self) -> str:
        """Short and unique within a plan: dlrm_t8_r100k_d32_b256."""
        ...

    @property
    def kind(self) -> str:
        """Which program: dlrm, transformer, cnn."""
        ...

    @property
    def batch(self) -> int:
        """Samples per rank and step."""
        ...

    @property
    def width(self) -> int:
        """Size of the vectors the program works on: the axis of a split by size."""
        ...

    @property
    def parallelism(self) -> dict[str, int]:
        """Ranks by kind of parallelism; the process group must be up."""
        ...

    def build(self) -> Trainer:
        """Weights, optimizers and batches on this rank; the process group must be up."""
        ...


@dataclass(frozen=True)
class Trainer:
    """One rank of a training program.

    Attributes:
        replicated: modules whose weights are the same on every rank.
        forward: runs the next batch; the loss, [] float32.
        optimizers: stepped in this order.
    """

    replicated: tuple[nn.Module, ...]
    forward: Callable[[], torch.Tensor]
    optimizers: tuple[torch.optim.Optimizer, ...]

    def step(self) -> torch.Tensor:
        """One training step: forward, loss, backward, optimizer; the loss, [] float32."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss = self.forward()
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.detach()
