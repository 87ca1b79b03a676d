"""Pipeline parallelism: every rank holds some of the layers; micro-batches pass from rank to rank.

gpipe   0 | F0 F1 F2 F3          B0 B1 B2 B3       1f1b   0 | F0 F1       B0 F2 B1 F3 B2    B3
        1 |    F0 F1 F2 F3 B0 B1 B2 B3                    1 |    F0 B0 F1 B1 F2 B2 F3 B3

GPipe: Huang et al. 2019. One forward, one backward: Narayanan et al. 2019; no rank keeps more micro-batches than there
are stages. Sends are started and left to themselves until the step's end, receives are waited for.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

import torch
import torch.distributed as dist
from torch import nn

from research.recording.workloads.workload import At, Place, nothing


class Order(StrEnum):
    """In which order a stage does its forwards and backwards."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"


class Turn(StrEnum):
    """What a stage does next."""

    FORWARD = "forward"
    BACKWARD = "backward"


def gpipe(stage: int, stages: int, micro_batches: int) -> list[Turn]:
    """All forwards, then all backwards."""
    return [Turn.FORWARD] * micro_batches + [Turn.BACKWARD] * micro_batches


def one_forward_one_backward(stage: int, stages: int, micro_batches: int) -> list[Turn]:
    """As many forwards ahead as there are stages after this one, then in turns."""
    ahead = min(stages - 1 - stage, micro_batches)
    turns = [Turn.FORWARD, Turn.BACKWARD] * (micro_batches - ahead)
    return [Turn.FORWARD] * ahead + turns + [Turn.BACKWARD] * ahead


ORDERS: dict[Order, Callable[[int, int, int], list[Turn]]] = {
    Order.GPIPE: gpipe,
    Order.ONE_F_ONE_B: one_forward_one_backward,
}


def layers_of_stage(model: nn.Sequential, stage: int, stages: int) -> nn.Sequential:
    """This stage's part of [inputs, blocks ..., head]; the number of blocks is a multiple of `stages`."""
    blocks = (len(model) - 2) // stages
    first = 0 if stage == 0 else 1 + stage * blocks
    end = len(model) if stage == stages - 1 else 1 + (stage + 1) * blocks
    return nn.Sequential(*list(model)[first:end])


@dataclass
class PipelineTrainer:
    """One stage; rank and stage are the same number."""

    # of this stage: [B, S] tokens on the first, else [N, W] -> [N, W], logits [N, V] on the last
    layers: Callable[[torch.Tensor], torch.Tensor]
    # logits and targets -> the mean over a micro-batch, [] float32
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    # tokens and targets, [B, S] int64 each; the same on all stages
    batches: Iterator[tuple[torch.Tensor, torch.Tensor]]
    shape: tuple[int, ...]  # of what passes between stages, float32
    optimizer: torch.optim.Optimizer  # of this stage's weights
    turns: list[Turn]  # of one step
    stage: int  # number of this one
    stages: int  # how many
    device: torch.device  # of this stage
    replicated: tuple[nn.Module, ...] = ()  # always none
    _in_flight: deque[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=deque)  # inputs and results
    _sent: list[tuple[dist.Work, torch.Tensor]] = field(default_factory=list)

    def step(self, at: At = nothing) -> torch.Tensor:
        """All micro-batches, then the optimizer; the last micro-batch's loss on the last stage, else 0."""
        at(Place.START)
        self.optimizer.zero_grad()
        result = torch.zeros((), device=self.device)
        first_backward = self.turns.index(Turn.BACKWARD)
        for i, turn in enumerate(self.turns):
            if i == first_backward:
                at(Place.BACKWARD)
            if turn == Turn.FORWARD:
                result = self._forward()
            else:
                self._backward()
        self._await_sends()
        at(Place.OPTIMIZER)
        self.optimizer.step()
        return result.detach() if self._is_last else torch.zeros((), device=self.device)

    @property
    def _is_last(self) -> bool:
        return self.stage == self.stages - 1

    def _forward(self) -> torch.Tensor:
        """Of the next micro-batch: what leaves the stage, or the loss."""
        tokens, targets = next(self.batches)
        inputs = tokens if self.stage == 0 else self._receive(self.stage - 1).requires_grad_()
        result = self.layers(inputs)
        if self._is_last:
            result = self.loss(result, targets)
        else:
            self._send(result.detach(), self.stage + 1)
        self._in_flight.append((inputs, result))
        return result

    def _backward(self) -> None:
        """Of the oldest micro-batch in flight."""
        inputs, result = self._in_flight.popleft()
        result.backward(None if self._is_last else self._receive(self.stage + 1))
        if self.stage > 0:
            assert inputs.grad is not None
            self._send(inputs.grad, self.stage - 1)

    def _receive(self, stage: int) -> torch.Tensor:
        """[N, W]."""
        vectors = torch.empty(self.shape, device=self.device)
        dist.recv(vectors, stage)
        return vectors

    def _send(self, vectors: torch.Tensor, stage: int) -> None:
        """Start to send; the receiver may be busy, even sending to us, so no one waits here."""
        vectors = vectors.contiguous()
        work = dist.isend(vectors, stage)
        assert work is not None
        self._sent.append((work, vectors))  # kept until it has left

    def _await_sends(self) -> None:
        for work, _ in self._sent:
            work.wait()
        self._sent.clear()
