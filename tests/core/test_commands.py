"""Memory that commands return."""

import subprocess
import sys

import pytest

FREED = """
import numpy as np
from gnnperf.core import return_freed_memory
resident_bytes = lambda: 4096 * int(open("/proc/self/statm").read().split()[1])
np.ones(3_900_000).sum()  # 31 MB: once it is freed, glibc keeps arrays of this size
arrays, above = [np.ones(10**6) for _ in range(20)], bytearray(100_000)
arrays.clear()
before = resident_bytes()
return_freed_memory()
assert before - resident_bytes() > 100e6
"""


@pytest.mark.skipif(sys.platform != "linux", reason="another C library")
def test_freed_arrays_below_one_in_use_are_returned() -> None:
    subprocess.run([sys.executable, "-c", FREED], check=True)
