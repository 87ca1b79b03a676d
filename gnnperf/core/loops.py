"""Loops over nodes and edges that numba compiles, once there is enough to do.

To load numba takes as long as Python needs for a few million elements. So small graphs are through before that, and
whoever goes on (training, large graphs) has waited at most twice as long as with numba from the start.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

IN_PYTHON = 1_000_000  # elements of arguments, over all calls of the process, until numba takes over
_done = 0


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, in Python at first and compiled from IN_PYTHON elements on. Both give the same numbers.

    It takes arrays and numbers, and calls no other compiled function.
    """

    @functools.cache
    def by_numba() -> Callable[..., Any]:
        import numba

        made: Callable[..., Any] = numba.njit(cache=True)(function)
        return made

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        global _done
        _done += sum(one.size for one in arguments if isinstance(one, np.ndarray))
        return (by_numba() if _done > IN_PYTHON else function)(*arguments)

    return call
