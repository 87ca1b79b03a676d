"""A function for many items, in this process and in others."""

import math
import os
from functools import partial

import pytest

from gnnperf.core import InputError, in_turn, worker_processes
from gnnperf.hardware import load_device


def test_results_are_in_the_order_of_items() -> None:
    assert in_turn(math.sqrt, [9, 4, 1], "roots") == [3.0, 2.0, 1.0]
    with worker_processes(1, "math") as mapped:
        assert mapped is in_turn
    with worker_processes(2, "math") as mapped:
        assert mapped(math.sqrt, range(40), "roots") == [math.sqrt(number) for number in range(40)]
        assert mapped(math.sqrt, [], "roots") == []
        assert mapped(os.getpgid, [0] * 16, "own groups") == [os.getpgid(0)] * 16
        assert mapped(partial(pow, 2), [3, 1], "powers, here") == [8, 2]
        with pytest.raises(InputError, match="Abacus"):
            mapped(load_device, ["Abacus"] * 16, "devices")
