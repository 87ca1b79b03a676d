"""Where weights and batches of a workload live, and the dtype of its products."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from gnnperf.core import InputError


def device() -> torch.device:
    """The current CUDA device where there is one, else the CPU. To stay on the CPU, hide CUDA devices."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _bfloat16() -> AbstractContextManager[object]:
    return torch.autocast(device().type, dtype=torch.bfloat16)


PRECISIONS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "float32": nullcontext,
    "bfloat16": _bfloat16,
}


def arithmetic(precision: str) -> Callable[[], AbstractContextManager[object]]:
    """What a forward runs in; weights stay float32."""
    if precision not in PRECISIONS:
        raise InputError(f"unknown precision {precision!r}", where="precision", allowed=", ".join(PRECISIONS))
    return PRECISIONS[precision]
