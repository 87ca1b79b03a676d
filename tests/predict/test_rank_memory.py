"""Peak memory that a copy of the process finds while the step is predicted."""

import subprocess
import sys
from pathlib import Path

import pytest

AHEAD = """
import sys
from gnnperf.predict import Request, memory_ahead, rank_memory, requested_graph
rank_memory.usable_cores = lambda: 2
request = Request(trace="datasets/cpu-gloo/dlrm_t4_r100k_d16_b256_row_x2_lo/1", cache_dir=sys.argv[1], memory=True)
with memory_ahead(requested_graph(request), request):
    rank_memory._AHEAD.get()()
print("torch" in sys.modules)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux only")
def test_a_copy_puts_peaks_into_the_cache_and_torch_is_loaded_there_only(tmp_path: Path) -> None:
    command = [sys.executable, "-c", AHEAD, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert done.stdout == "False\n" and len(list(tmp_path.glob("peaks-*.json"))) == 1
