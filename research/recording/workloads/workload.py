"""What every workload offers: a name, its parameters, and a training step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SEED = 20260  # of weights and data; ranks add their number where they must differ


class Place(StrEnum):
    """Where in a step an intervention may act.

    START | zero_grad, forward | BACKWARD | backward | OPTIMIZER | optimizers step
    """

    START = "start"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


At = Callable[[Place], None]


def nothing(place: Place) -> None:
    """Act at no place."""


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


class Trainer(Protocol):
    """One rank of a training program."""

    @property
    def replicated(self) -> tuple[nn.Module, ...]:
        """Modules whose weights are the same on every rank."""
        ...

    def step(self, at: At = nothing) -> torch.Tensor:
        """One training step; the loss, [] float32 (0 on ranks that do not compute one).

        Args:
            at: called at every Place the program passes, once per step (with accumulation: in the first micro-batch).
        """
        ...


@dataclass(frozen=True)
class LossTrainer:
    """A program whose rank computes a loss and its gradients: everything but pipelines.

    Attributes:
        replicated: modules whose weights are the same on every rank; DDP or FSDP modules synchronize their gradients.
        forward: runs the next micro-batch; the loss, [] float32.
        optimizers: stepped in this order.
        accumulation: micro-batches per step; gradients are synchronized in the last one.
        index_statistics: how embedding tables are accessed, one entry per table, for the card.
    """

    replicated: tuple[nn.Module, ...]
    forward: Callable[[], torch.Tensor]
    optimizers: tuple[torch.optim.Optimizer, ...]
    accumulation: int = 1
    index_statistics: tuple[dict[str, object], ...] = ()

    def step(self, at: At = nothing) -> torch.Tensor:
        """Zero gradients, forward and backward of every micro-batch, optimizers."""
        at(Place.START)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        for micro_batch in range(self.accumulation):
            with synchronized(self.replicated, micro_batch == self.accumulation - 1):
                loss = self.forward()
                if micro_batch == 0:
                    at(Place.BACKWARD)
                loss.backward()
        at(Place.OPTIMIZER)
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.detach()


@contextmanager
def synchronized(modules: tuple[nn.Module, ...], wanted: bool) -> Iterator[None]:
    """Whether a backward inside exchanges the gradients of these DDP modules."""
    with ExitStack() as stack:
        for module in modules:
            if not wanted and isinstance(module, DistributedDataParallel):
                stack.enter_context(module.no_sync())
        yield
