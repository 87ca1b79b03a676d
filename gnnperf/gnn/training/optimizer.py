"""The optimizer: AdamW, but the step of a matrix between states is its orthogonalized momentum (Muon, Jordan 2024).

torch.optim.Muon computes in bfloat16, matrix by matrix: on CPUs that takes longer than the network. These matrices have
one shape, so all of them are one batch here.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

MOMENTUM = 0.95
# Step of a matrix, whose singular values are about 1, relative to AdamW's: as 0.02 to 0.003. With 0.05 to 0.003,
# validation nodes of `workload` err more after 20 epochs (15.2 instead of 15.0 %).
RELATIVE_STEP = 20 / 3
# Newton-Schulz iteration of odd polynomials a x + b x^3 + c x^5, which brings singular values of (0, 1] to 0.7 to 1.2.
POLYNOMIAL, ITERATIONS = (3.4445, -4.7750, 2.0315), 5
SMALLEST_NORM = 1e-7


class Muon(torch.optim.AdamW):
    """AdamW of `parameters`, except for `matrices` among them: all of one square shape."""

    def __init__(
        self, parameters: Iterable[Tensor], matrices: Sequence[Tensor], learning_rate: float, weight_decay: float
    ) -> None:
        super().__init__(parameters, lr=learning_rate, weight_decay=weight_decay, fused=True)
        self.matrices = tuple(matrices)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """One step along the gradients that `closure` computes; afterwards, matrices have no gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            self._step_matrices()
        super().step()  # of what still has a gradient
        return loss

    def _step_matrices(self) -> None:
        """The direction is Nesterov's momentum, orthogonalized; weights decay as AdamW's.

        A gradient of zeros, as of a node type that a batch lacks, is no gradient: normalized, the momentum before it
        would take steps as large as any other.
        """
        given = [matrix for matrix in self.matrices if matrix.grad is not None]
        if not given:
            return
        every = torch.stack([matrix.grad for matrix in given if matrix.grad is not None])  # [n, size, size]
        for matrix in given:
            matrix.grad = None
        has = every.flatten(1).any(dim=1)  # [n]
        moved = [matrix for matrix, one in zip(given, has.tolist(), strict=True) if one]
        if not moved:
            return
        gradients, momenta = list(every[has]), [self._momentum(matrix) for matrix in moved]
        torch._foreach_lerp_(momenta, gradients, 1.0 - MOMENTUM)
        directions = orthogonalized(torch.stack(torch._foreach_lerp(gradients, momenta, MOMENTUM)))
        group = self.param_groups[0]
        step = RELATIVE_STEP * group["lr"]
        torch._foreach_mul_(moved, 1.0 - step * group["weight_decay"])
        torch._foreach_sub_(moved, list(directions), alpha=step)

    def _momentum(self, matrix: Tensor) -> Tensor:
        state = self.state[matrix]
        if not state:  # AdamW expects a step in every state that it loads
            state |= {"step": torch.zeros(()), "momentum": torch.zeros_like(matrix)}
        result: Tensor = state["momentum"]
        return result


def orthogonalized(matrices: Tensor) -> Tensor:
    """[n, size, size] -> the same with all singular values at about 1; a matrix of zeros stays one."""
    first, third, fifth = POLYNOMIAL
    x = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp_min(SMALLEST_NORM)
    for _ in range(ITERATIONS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=third, alpha=fifth), x, beta=first)
    return x
