"""Memory that commands return, and how they hold texts."""

import subprocess
import sys

import pandas as pd
import pytest

from gnnperf.core import use_python_strings

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


def test_names_of_columns_are_strings_of_python_once_a_command_asks_for_it() -> None:
    with pd.option_context("mode.string_storage", "pyarrow"):
        assert pd.DataFrame({"rank": [0]}).columns.dtype == pd.StringDtype("pyarrow", na_value=float("nan"))
        use_python_strings()
        assert pd.DataFrame({"rank": [0]}).columns.dtype == pd.StringDtype("python", na_value=float("nan"))
