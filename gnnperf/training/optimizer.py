"""Descent: Muon for the matrices between states, AdamW for everything else, both under one learning rate.

A gradient of such a matrix is nearly of low rank: few directions, those of ops that are many, take all of a step. Muon
(Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks") makes all directions of the momentum
equally long, so that what is rare is learned as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from gnnperf.training.config import OptimConfig

MOMENTUM = 0.95
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # odd polynomial whose iterates take singular values from (0, 1] to about 1
ITERATIONS = 5
RMS_OF_ADAM = 0.2  # root mean square of AdamW's steps, in learning rates (Liu et al. 2025, "Muon is scalable", eq. 4)


class Muon(torch.optim.Optimizer):
    """Momentum, made orthogonal, with Nesterov's look ahead and decoupled weight decay.

    As torch.optim.Muon with adjust_lr_fn="match_rms_adamw"; but matrices of one shape are made orthogonal together,
    in their own precision: a network has a hundred small ones, and bfloat16 is not the same on every processor.

    Args:
        matrices: [rows, columns] each.
        lr: as AdamW's.
        weight_decay: as AdamW's.
    """

    def __init__(self, matrices: Iterable[Tensor], lr: float, weight_decay: float) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step; a matrix without a gradient stays."""
        loss = _value(closure)
        for group in self.param_groups:
            for matrices in _by_shape(p for p in group["params"] if p.grad is not None):
                step = torch.stack([self._ahead(p) for p in matrices])  # [num, rows, columns]
                step = orthogonal(step) * (RMS_OF_ADAM * math.sqrt(max(step.shape[1:])))
                for matrix, own in zip(matrices, step, strict=True):
                    matrix.mul_(1 - group["lr"] * group["weight_decay"]).sub_(own, alpha=group["lr"])
        return loss

    def _ahead(self, matrix: Tensor) -> Tensor:
        """[rows, columns] the momentum, as far as it is known of the next step."""
        assert matrix.grad is not None
        state = self.state[matrix]
        if not state:
            state["momentum"] = torch.zeros_like(matrix)
        state["momentum"].lerp_(matrix.grad, 1 - MOMENTUM)
        return matrix.grad.lerp(state["momentum"], MOMENTUM)


class Joint(torch.optim.Optimizer):
    """Several optimizers as one, for loops that take one.

    Args:
        parts: at least one; their groups are the joint ones, so that a schedule of rates reaches them.
    """

    def __init__(self, parts: Sequence[torch.optim.Optimizer]) -> None:
        self.parts = tuple(parts)
        super().__init__([group for part in parts for group in part.param_groups], {})

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step of each."""
        loss = _value(closure)
        for part in self.parts:
            part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """That of each part."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Give each part its own; loading makes new groups."""
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self.param_groups = [group for part in self.parts for group in part.param_groups]


def build_optimizer(parameters: Iterable[Tensor], matrices: Iterable[Tensor], config: OptimConfig) -> Joint:
    """The optimizer of these parameters, of which `matrices` are stepped by Muon; those without gradients are left out.

    Args:
        parameters: all, `matrices` among them.
        matrices: weights from states to states.
        config: rates.
    """
    square = [p for p in matrices if p.requires_grad]
    others = {id(p) for p in square}
    rest = [p for p in parameters if p.requires_grad and id(p) not in others]
    lr, decay = config.learning_rate, config.weight_decay
    return Joint([Muon(square, lr, decay), torch.optim.AdamW(rest, lr=lr, weight_decay=decay, fused=True)])


def orthogonal(matrices: Tensor) -> Tensor:
    """[num, rows, columns] -> the same shape; U V' of each one's U S V', with singular values of about 1 (0.7 to 1.2).

    Newton-Schulz iterations, products of matrices only. A matrix of zeros stays.
    """
    a, b, c = NEWTON_SCHULZ
    wide = matrices if matrices.shape[1] <= matrices.shape[2] else matrices.mT
    x = wide / (wide.norm(dim=(1, 2), keepdim=True) + 1e-7)  # [num, short, long], largest singular value at most 1
    for _ in range(ITERATIONS):
        gram = x @ x.mT  # [num, short, short]
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide is matrices else x.mT


def _by_shape(parameters: Iterable[Tensor]) -> list[list[Tensor]]:
    found: dict[torch.Size, list[Tensor]] = {}
    for parameter in parameters:
        found.setdefault(parameter.shape, []).append(parameter)
    return list(found.values())


def _value(closure: Callable[[], float] | None) -> float | None:
    """The loss, with gradients made anew; None without a closure."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()
