"""The dtype of a program's products."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from gnnperf.core.errors import InputError
from research.recording.workloads.device import device


def _bfloat16() -> AbstractContextManager[object]:
    return torch.autocast(device().type, dtype=torch.bfloat16)


PRECISIONS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "float32": nullcontext,
    "bfloat16": _bfloat16,
}


def arithmetic(precision: str) -> Callable[[], AbstractContextManager[object]]:
    """What a forward runs in; weights stay float32.

    Raises:
        InputError: unknown precision.
    """
    if precision not in PRECISIONS:
        raise InputError(f"unknown precision {precision!r}", where="precision", allowed=", ".join(PRECISIONS))
    return PRECISIONS[precision]
