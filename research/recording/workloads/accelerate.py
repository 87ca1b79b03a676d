"""Programs of one model, with fewer launches: compiled models and captured steps. Both only on CUDA."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING

import torch
from torch import nn

from gnnperf.core import InputError
from research.recording.workloads.replicate import shared_by_ranks
from research.recording.workloads.workload import At, LossTrainer, Place, Trainer, arithmetic, device, nothing

if TYPE_CHECKING:
    from research.recording.workloads.cnn import Cnn
    from research.recording.workloads.transformer import Transformer

Batch = tuple[torch.Tensor, torch.Tensor]  # inputs and what the loss compares with
EAGER_STEPS = 3  # before capturing: libraries choose algorithms and workspaces in them


def compiled(model: nn.Module, wanted: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    """The model, compiled if that is wanted."""
    if not wanted:
        return model
    _require_cuda("compile")
    run: Callable[[torch.Tensor], torch.Tensor] = torch.compile(model)
    return run


def model_trainer(
    size: "Cnn | Transformer", model: nn.Module, batches: Iterator[Batch], optimizer: torch.optim.Optimizer,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], replicated: tuple[nn.Module, ...],
) -> Trainer:  # fmt: skip
    """Trains a model by what `loss` makes of its result and the targets."""
    precision, run = arithmetic(size.precision), compiled(model, size.compile)

    def forward(batch: Batch) -> torch.Tensor:
        inputs, targets = batch
        with precision():
            result = loss(run(inputs), targets)
        return shared_by_ranks(result) if size.blocking else result

    if size.cuda_graph:
        return captured(replicated, forward, batches, (optimizer,), size.accumulation)
    return LossTrainer(replicated, lambda: forward(next(batches)), (optimizer,), size.accumulation)


def captured(
    replicated: tuple[nn.Module, ...],
    forward: Callable[[Batch], torch.Tensor],
    batches: Iterator[Batch],
    optimizers: tuple[torch.optim.Optimizer, ...],
    accumulation: int,
) -> Trainer:
    """The LossTrainer of these, its step captured in a CUDA graph."""
    _require_cuda("cuda_graph")
    read = tuple((inputs.clone(), targets.clone()) for inputs, targets in islice(batches, accumulation))
    again = cycle(read)
    eager = LossTrainer(replicated, lambda: forward(next(again)), optimizers, accumulation)
    return CapturedTrainer(eager, batches, read)


def _require_cuda(key: str) -> None:
    if device().type != "cuda":
        raise InputError("needs a CUDA device", where=key, allowed="false on the CPU")


@dataclass
class CapturedTrainer:
    """Replays a captured step; new batches are copied into the tensors that it reads."""

    eager: LossTrainer  # the program
    batches: Iterator[Batch]  # micro-batches without end
    read: tuple[Batch, ...]  # one micro-batch per accumulation: the memory that the captured step reads

    def __post_init__(self) -> None:
        """Run a few steps next to the current stream, then capture one."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(EAGER_STEPS):
                self.eager.step()
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._loss = self.eager.step()

    @property
    def replicated(self) -> tuple[nn.Module, ...]:
        return self.eager.replicated

    def step(self, at: At = nothing) -> torch.Tensor:
        """New batches, one launch. `at` is called at the start: the host passes no other place."""
        at(Place.START)
        for to, batch in zip(self.read, self.batches, strict=False):
            for old, new in zip(to, batch, strict=True):
                old.copy_(new)
        self._graph.replay()
        return self._loss
