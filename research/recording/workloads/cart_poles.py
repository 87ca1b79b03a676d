"""Carts that balance a pole (Barto, Sutton, Anderson 1983; constants and Euler steps as in Gymnasium's CartPole-v1).

`PythonCartPoles` computes cart after cart in Python floats, `TensorCartPoles` all carts together in small tensor ops:
either way it is the host's time that counts.
"""

from __future__ import annotations

import random
from math import cos, radians, sin
from typing import Protocol

import torch

from research.recording.workloads.workload import device

GRAVITY_M_PER_S2, FORCE_N, STEP_S = 9.8, 10.0, 0.02
POLE_KG, TOTAL_KG, HALF_POLE_M = 0.1, 1.1, 0.5
POLE_MOMENT_KG_M = POLE_KG * HALF_POLE_M
LARGEST_POSITION_M, LARGEST_ANGLE = 2.4, radians(12)
LARGEST_START = 0.05  # of any of the four numbers of a state, after a fall

State = list[float]  # position, its rate, angle, its rate


class CartPoles(Protocol):
    """Several carts; one that fails starts again."""

    def states(self) -> torch.Tensor:
        """[carts, 4] float32."""
        ...

    def push(self, actions: torch.Tensor) -> torch.Tensor:
        """Push left (0) or right (1), [carts] float32; 1 for carts still balancing, else 0, [carts] float32."""
        ...


class PythonCartPoles:
    """Cart after cart.

    Args:
        starts: one state per cart.
        seed: of the states after a fall.
    """

    def __init__(self, starts: list[State], seed: int) -> None:
        self._carts, self._random = starts, random.Random(seed)

    def states(self) -> torch.Tensor:
        """See `CartPoles`."""
        return torch.tensor(self._carts, device=device())

    def push(self, actions: torch.Tensor) -> torch.Tensor:
        """See `CartPoles`."""
        self._carts = [_pushed(cart, action) for cart, action in zip(self._carts, actions.tolist(), strict=True)]
        balancing = [_balances(cart) for cart in self._carts]
        for i, good in enumerate(balancing):
            if not good:
                self._carts[i] = [self._random.uniform(-LARGEST_START, LARGEST_START) for _ in range(4)]
        return torch.tensor(balancing, dtype=torch.float32, device=device())


def _pushed(cart: State, action: float) -> State:
    position, speed, angle, turning = cart
    sine, cosine = sin(angle), cos(angle)
    push = ((FORCE_N if action else -FORCE_N) + POLE_MOMENT_KG_M * turning * turning * sine) / TOTAL_KG
    leverage = HALF_POLE_M * (4 / 3 - POLE_KG * cosine * cosine / TOTAL_KG)
    angular = (GRAVITY_M_PER_S2 * sine - cosine * push) / leverage
    linear = push - POLE_MOMENT_KG_M * angular * cosine / TOTAL_KG
    return [position + STEP_S * speed, speed + STEP_S * linear, angle + STEP_S * turning, turning + STEP_S * angular]


def _balances(cart: State) -> bool:
    return abs(cart[0]) <= LARGEST_POSITION_M and abs(cart[2]) <= LARGEST_ANGLE


class TensorCartPoles:
    """All carts together.

    Args:
        starts: one state per cart.
        seed: of the states after a fall.
    """

    def __init__(self, starts: list[State], seed: int) -> None:
        self._carts = torch.tensor(starts, device=device())  # [carts, 4]
        self._random = torch.Generator(device()).manual_seed(seed)

    def states(self) -> torch.Tensor:
        """See `CartPoles`."""
        return self._carts

    def push(self, actions: torch.Tensor) -> torch.Tensor:
        """See `CartPoles`."""
        speed, angle, turning = self._carts[:, 1:].unbind(1)
        sine, cosine = angle.sin(), angle.cos()
        push = (FORCE_N * (2 * actions - 1) + POLE_MOMENT_KG_M * turning * turning * sine) / TOTAL_KG
        leverage = HALF_POLE_M * (4 / 3 - POLE_KG * cosine * cosine / TOTAL_KG)
        angular = (GRAVITY_M_PER_S2 * sine - cosine * push) / leverage
        linear = push - POLE_MOMENT_KG_M * angular * cosine / TOTAL_KG
        moved = self._carts + STEP_S * torch.stack([speed, linear, turning, angular], dim=1)
        balancing = (moved[:, 0].abs() <= LARGEST_POSITION_M) & (moved[:, 2].abs() <= LARGEST_ANGLE)
        again = LARGEST_START * (2 * torch.rand(moved.shape, generator=self._random, device=moved.device) - 1)
        self._carts = torch.where(balancing.unsqueeze(1), moved, again)
        return balancing.float()
