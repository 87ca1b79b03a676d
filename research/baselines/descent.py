"""Gradient descent of small networks: AdamW, cosine decay, the weights of the best validation epoch kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from research.baselines.tuning import Range, Settings

GRADIENT_CLIP = 1.0
EPOCHS, BATCH_SIZE = 30, 4
DESCENT_START: Mapping[str, float] = {"learning_rate": 2e-3, "weight_decay": 1e-3}
DESCENT_SPACE: Mapping[str, Range] = {"learning_rate": Range(3e-4, 1e-2), "weight_decay": Range(1e-5, 0.3)}


@dataclass(frozen=True)
class Problem:
    """What is to be made small.

    Attributes:
        num_steps: training steps.
        loss: rows of training steps, int64 [batch_size] -> scalar loss.
        val_error: error on the validation steps.
    """

    num_steps: int
    loss: Callable[[Tensor], Tensor]
    val_error: Callable[[], float]


def descend(network: nn.Module, problem: Problem, settings: Settings, seed: int) -> float:
    """Train in place for EPOCHS passes; the network keeps the weights of its best epoch, whose error is returned."""
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=settings["learning_rate"], weight_decay=settings["weight_decay"]
    )
    updates = EPOCHS * math.ceil(problem.num_steps / BATCH_SIZE)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    order = torch.Generator().manual_seed(seed)
    best, retained = math.inf, deepcopy(network.state_dict())
    for _ in range(EPOCHS):
        network.train()
        for rows in torch.randperm(problem.num_steps, generator=order).split(BATCH_SIZE):
            _update(network, optimizer, problem.loss(rows))
            decay.step()
        network.eval()
        with torch.no_grad():
            error = problem.val_error()
        if error < best:
            best, retained = error, deepcopy(network.state_dict())
    network.load_state_dict(retained)
    return best


@contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """One thread and torch's generator at `seed`, so that the same bits come out; both as before afterwards."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def _update(network: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(network.parameters(), GRADIENT_CLIP)
    optimizer.step()
