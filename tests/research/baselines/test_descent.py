from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from research.baselines.descent import BATCH_SIZE, EPOCHS, Problem, descend, repeatable

SETTINGS = {"learning_rate": 0.05, "weight_decay": 0.0}


class Constant(nn.Module):
    """One number to learn."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(()))


def targets(num_steps: int) -> Tensor:
    return torch.full((num_steps,), 2.0)


def test_it_finds_the_minimum_and_states_its_error() -> None:
    network, wanted = Constant(), targets(20)
    problem = Problem(20, lambda rows: (network.value - wanted[rows]).square().mean(),
                      lambda: float((network.value - 2.0).abs()))  # fmt: skip
    error = descend(network, problem, SETTINGS, seed=0)
    assert error < 0.2
    assert error == pytest.approx(abs(float(network.value.detach()) - 2.0))


def test_the_weights_of_the_best_epoch_are_retained() -> None:
    """The validation error is least when the value passes 1 on its way to 2."""
    network, seen = Constant(), []

    def val_error() -> float:
        seen.append((abs(float(network.value) - 1.0), float(network.value)))
        return seen[-1][0]

    problem = Problem(20, lambda rows: (network.value - targets(20)[rows]).square().mean(), val_error)
    error = descend(network, problem, SETTINGS, seed=0)
    assert len(seen) == EPOCHS
    assert (error, float(network.value.detach())) == min(seen)
    assert seen[-1][0] > error


def test_every_step_is_seen_once_per_epoch_in_an_order_of_the_seed() -> None:
    def orders(seed: int) -> list[list[int]]:
        network, drawn = Constant(), []

        def loss(rows: Tensor) -> Tensor:
            drawn.append(rows.tolist())
            return network.value.square()

        descend(network, Problem(10, loss, lambda: 0.0), SETTINGS, seed)
        return drawn

    drawn = orders(1)
    per_epoch = math.ceil(10 / BATCH_SIZE)
    assert len(drawn) == EPOCHS * per_epoch
    for epoch in range(EPOCHS):
        rows = [row for batch in drawn[epoch * per_epoch : (epoch + 1) * per_epoch] for row in batch]
        assert sorted(rows) == list(range(10))
    assert drawn == orders(1)
    assert drawn != orders(2)


def test_repeatable_restores_generator_and_threads() -> None:
    torch.manual_seed(7)
    expected, threads = torch.rand(3), torch.get_num_threads()
    torch.manual_seed(7)
    with repeatable(1):
        first = torch.rand(3)
        assert torch.get_num_threads() == 1
    with repeatable(1):
        assert torch.equal(torch.rand(3), first)
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads
