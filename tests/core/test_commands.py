"""Memory that commands return."""

import sys
from pathlib import Path

import numpy as np
import pytest

from gnnperf.core import return_freed_memory


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="another C library")
def test_freed_arrays_below_one_in_use_are_returned() -> None:
    np.ones(3_900_000).sum()  # 31 MB: once it is freed, glibc keeps arrays of this size
    arrays = [np.ones(10**6) for _ in range(20)]
    above = bytearray(100_000)
    arrays.clear()
    before = resident_bytes()
    return_freed_memory()
    assert before - resident_bytes() > 100e6 and len(above) == 100_000
