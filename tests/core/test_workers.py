"""A function for many items, in this process and in others."""

import math
import os
import signal
import sys
import time
from functools import partial

import pytest

from gnnperf.core import InputError, afterwards, beside, in_turn, worker_processes
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


@pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux only")
def test_a_copy_computes_with_what_this_process_has_and_ends_with_its_block() -> None:
    held = [2, 3]  # what is not sent
    with beside(lambda: (os.getpid(), sum(held)), "sums") as result:
        copy, total = result()
    assert copy != os.getpid() and total == 5
    with beside(lambda: time.sleep(600), "waiting"):
        begin = time.monotonic()
    assert time.monotonic() - begin < 60
    with afterwards(os.getpid, "own") as result_here:
        assert result_here() == os.getpid()


@pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux only")
def test_what_goes_wrong_in_a_copy_is_raised_here() -> None:
    with beside(lambda: load_device("Abacus"), "devices") as result, pytest.raises(InputError, match="Abacus"):
        result()
    with (beside(lambda: os.kill(os.getpid(), signal.SIGKILL), "sums") as killed,
          pytest.raises(InputError, match=r"sums: .* ended by the system")):  # fmt: skip
        killed()
