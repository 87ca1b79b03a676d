"""Loops over nodes and edges that numba compiles, once there is enough to do.

To load numba takes as long as Python needs for a few million elements. Small graphs are scheduled before that.
Longer work (training, large graphs) takes at most twice as long as with numba from the start. Where something else has
loaded numba, nothing is gained by Python.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

IN_PYTHON = 2_500_000  # elements until numba takes over
LARGE = 500_000  # elements of one call, which take longer in Python than numba takes to load
_done = 0


def compiled(function: Callable[..., Any], in_python: float = IN_PYTHON) -> Callable[..., Any]:
    """The function, in Python at first and compiled from so many elements on. Both give the same numbers.

    Args:
        function: takes arrays and numbers, and calls no other compiled function.
        in_python: elements of arguments, over all calls of the process; 0: it is compiled at its first call.
    """

    @functools.cache
    def by_numba() -> Callable[..., Any]:
        import numba

        made: Callable[..., Any] = numba.njit(cache=True)(function)
        return made

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        global _done
        size = sum(one.size for one in arguments if isinstance(one, np.ndarray))
        _done += size
        if _done <= in_python and size <= LARGE and "numba" not in sys.modules:
            return function(*arguments)
        # In one piece, and to be written to: numba compiles anew for every other kind of array, for seconds.
        return by_numba()(*(np.require(a, None, ["C", "W"]) if isinstance(a, np.ndarray) else a for a in arguments))

    return call
