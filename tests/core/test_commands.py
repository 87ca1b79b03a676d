"""Memory that commands return."""

import sys
from pathlib import Path

import numpy as np
import pytest

from gnnperf.core import return_freed_memory


@pytest.mark.skipif(sys.platform != "linux", reason="another C library")
def test_freed_arrays_below_one_in_use_are_returned() -> None:
    np.ones(3_900_000).sum()  # 31 MB: once it is freed, glibc keeps arrays of this size
    arrays = [np.ones(10**6) for _ in range(20)]
    above = bytearray(100_000)
    arrays.clear()
    state = Path("/proc/self/statm")  # its second number: resident pages
    before = int(state.read_text().split()[1])
    return_freed_memory()
    assert (before - int(state.read_text().split()[1])) * 4096 > 100e6 and len(above) == 100_000
