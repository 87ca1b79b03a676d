"""An op that runs several times: the known change of an intervention."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist


def repeats_here(repeats: int, repeating_rank: int | None) -> int:
    """How often this rank runs the op: `repeats` if it is the repeating one, or all are (None), else once."""
    return repeats if repeating_rank is None or repeating_rank == dist.get_rank() else 1


def repeated(op: Callable[..., torch.Tensor], times: int, *inputs: torch.Tensor) -> torch.Tensor:
    """`op(*inputs)`, after `times` - 1 runs more that leave no trace in the gradient."""
    if times > 1:
        with torch.no_grad():
            for _ in range(times - 1):
                op(*inputs)
    return op(*inputs)
