"""Reinforcement learning (advantage actor-critic, Mnih et al. 2016): host-bound, as the environment runs on the host.

horizon x [states -> policy, without gradient -> actions -> carts move] -> loss -> backward -> optimizer
"""

import random
from dataclasses import dataclass
from math import cos, radians, sin
from typing import Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from research.recording.workloads.replicate import replicated
from research.recording.workloads.workload import SEED, LossTrainer, Trainer, Workload, device, repeated, repeats_here

# Carts that balance a pole (Barto, Sutton, Anderson 1983; constants and Euler steps as in Gymnasium's CartPole-v1).
#
# `PythonCartPoles` computes cart after cart in Python floats, `TensorCartPoles` all carts together in small tensor ops:
# either way it is the host's time that counts.

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
    """Cart after cart, from one state each; `seed` is of the states after a fall."""

    def __init__(self, starts: list[State], seed: int) -> None:
        self._carts, self._random = starts, random.Random(seed)

    def states(self) -> torch.Tensor:
        return torch.tensor(self._carts, device=device())

    def push(self, actions: torch.Tensor) -> torch.Tensor:
        self._carts = [_pushed(cart, action) for cart, action in zip(self._carts, actions.tolist(), strict=True)]
        balancing = [abs(cart[0]) <= LARGEST_POSITION_M and abs(cart[2]) <= LARGEST_ANGLE for cart in self._carts]
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


class TensorCartPoles:
    """All carts together, from one state each; `seed` is of the states after a fall."""

    def __init__(self, starts: list[State], seed: int) -> None:
        self._carts = torch.tensor(starts, device=device())  # [carts, 4]
        self._random = torch.Generator(device()).manual_seed(seed)

    def states(self) -> torch.Tensor:
        return self._carts

    def push(self, actions: torch.Tensor) -> torch.Tensor:
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


STATE = 4
DISCOUNT, VALUE_WEIGHT, ENTROPY_WEIGHT = 0.95, 0.5, 0.01


@dataclass(frozen=True)
class Rl(Workload, kind="rl", width="hidden", letters={"hidden": "h", "num_envs": "n", "horizon": "t"}, otherwise={
    "vectorized": "tensor", "repeats": "rep", "repeating_rank": "on", "accumulation": "acc",
}):  # fmt: skip
    """An actor and critic that learns to balance poles."""

    hidden: int = 64  # columns of the policy's hidden layer
    num_envs: int = 64  # carts per rank
    horizon: int = 8  # moves of every cart per micro-batch
    vectorized: bool = False  # carts move together, in tensor ops; else one after the other, in Python
    repeats: int = 1  # how often the policy's first product runs in the forward of the update
    repeating_rank: int | None = None  # the only rank that repeats it; None all do
    accumulation: int = 1  # micro-batches per step

    @property
    def batch(self) -> int:
        return self.num_envs * self.horizon

    def build(self) -> Trainer:
        """The replicated policy and this rank's carts."""
        torch.manual_seed(SEED)
        policy = Policy(self.hidden, repeats_here(self.repeats, self.repeating_rank))
        model = replicated(policy)
        torch.manual_seed(SEED + 1 + dist.get_rank())  # actions are drawn
        carts = self._carts(SEED + 1 + dist.get_rank())

        def forward() -> torch.Tensor:
            states, actions, returns = roll_out(policy, carts, self.horizon)
            logits, values = model(states)
            return loss_of(logits, values, actions, returns)

        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)
        return LossTrainer((model,), forward, (optimizer,), self.accumulation)

    def _carts(self, seed: int) -> CartPoles:
        uniform = random.Random(seed).uniform
        starts = [[uniform(-LARGEST_START, LARGEST_START) for _ in range(STATE)] for _ in range(self.num_envs)]
        return TensorCartPoles(starts, seed) if self.vectorized else PythonCartPoles(starts, seed)


class Policy(nn.Module):
    """One hidden layer, whose product runs `times` times; the next gives the logit of a push right, and the value."""

    def __init__(self, hidden: int, times: int = 1) -> None:
        super().__init__()
        self.times = times
        self.first, self.last = nn.Linear(STATE, hidden), nn.Linear(hidden, 2)

    def forward(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[n, 4] -> logits and values, [n] each."""
        first = repeated(F.linear, self.times, states, self.first.weight, self.first.bias)
        logits, values = self.last(torch.tanh(first)).unbind(1)
        return logits, values

    @torch.no_grad()
    def act(self, states: torch.Tensor) -> torch.Tensor:
        """[n, 4] -> actions drawn, [n] float32: 1 pushes to the right."""
        return torch.bernoulli(self.last(torch.tanh(self.first(states)))[:, 0].sigmoid())


def roll_out(policy: Policy, carts: CartPoles, horizon: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Let the policy act; states [horizon * n, 4], actions and returns [horizon * n]."""
    states, actions, balancing = [], [], []
    for _ in range(horizon):
        states.append(carts.states())
        actions.append(policy.act(states[-1]))
        balancing.append(carts.push(actions[-1]))
    return torch.cat(states), torch.cat(actions), torch.cat(returns_of(balancing))


def returns_of(balancing: list[torch.Tensor]) -> list[torch.Tensor]:
    """Discounted number of moves until a cart falls or the horizon ends; [n] float32 each, 1 where it balances."""
    later, result = torch.zeros_like(balancing[0]), []
    for alive in reversed(balancing):
        later = alive * (1 + DISCOUNT * later)
        result.append(later)
    return result[::-1]


def loss_of(logits: torch.Tensor, values: torch.Tensor, actions: torch.Tensor, returns: torch.Tensor) -> torch.Tensor:
    """Policy gradient with the critic as its baseline, the critic's error, a reward for trying things out; all [n]."""
    surprise = F.binary_cross_entropy_with_logits(logits, actions, reduction="none")  # -log share of what was done
    entropy = F.binary_cross_entropy_with_logits(logits, logits.sigmoid())
    cost = torch.dot((returns - values).detach(), surprise) / len(returns)
    return cost + VALUE_WEIGHT * F.mse_loss(values, returns) - ENTROPY_WEIGHT * entropy
