"""A function for many items, in this process and in others."""

import math
import multiprocessing
import os
import signal
import sys
import time
from unittest.mock import Mock

import pytest

from gnnperf.core import InputError, in_copies, in_copy, in_turn, workers
from gnnperf.hardware import load_device


def test_results_are_in_the_order_of_items() -> None:
    assert in_turn(math.sqrt, [9, 4, 1], "roots") == [3.0, 2.0, 1.0]


@pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux only")
def test_a_copy_computes_with_the_memory_of_this_process_and_ends_with_its_block() -> None:
    held = [2, 3]  # not sent
    with in_copy(lambda: (os.getpid(), sum(held))) as result:
        copy, total = result()
    assert copy != os.getpid() and total == 5
    begin = time.monotonic()
    with in_copy(lambda: time.sleep(600)):
        pass
    assert time.monotonic() - begin < 60


@pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux only")
def test_what_a_copy_cannot_compute_is_computed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    with in_copy(lambda: load_device("Abacus")) as result, pytest.raises(InputError, match="Abacus"):
        result()
    own = os.getpid()
    with in_copy(lambda: own if os.getpid() == own else os.kill(os.getpid(), signal.SIGKILL)) as killed:
        assert killed() == own
    with in_copy(lambda: bytes(10**7)) as half_sent:  # more than a pipe holds
        time.sleep(0.3)
        multiprocessing.active_children()[0].kill()
        assert len(half_sent()) == 10**7
    with in_copy(lambda: lambda: 5) as unsent:  # a function of no module
        assert unsent()() == 5
    monkeypatch.setattr(os, "fork", Mock(side_effect=BlockingIOError))
    with in_copy(lambda: 5) as uncopied:
        assert uncopied() == 5


@pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux only")
@pytest.mark.parametrize("cores", [1, 3])
def test_copies_share_the_items_and_keep_their_order(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "copyable_cores", lambda: cores)
    for count in (0, 2, 7):
        results = in_copies(lambda item: (item, os.getpid()), list(range(count)), "numbers")  # a function of no module
        assert [item for item, _ in results] == list(range(count))
        assert len({pid for _, pid in results}) == min(cores, count)
    with pytest.raises(ZeroDivisionError):
        in_copies(lambda item: 1 / item, [1, 0, 1], "reciprocals")
