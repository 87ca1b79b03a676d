"""Peak memory that a copy of the process finds while the step is predicted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gnnperf.graph import load_run
from gnnperf.predict import Request, predict

PREDICTED = """
import sys
from gnnperf.predict import Request, rank_memory
from gnnperf.report.predict_cli import run_request
rank_memory.copyable_cores = lambda: int(sys.argv[1])
trace = "datasets/cpu-gloo/dlrm_t4_r100k_d16_b256_row_x2_lo/1"
run_request(Request(trace=trace, out=sys.argv[2], cache_dir=sys.argv[3], memory=True, quiet=True))
print("torch" in sys.modules)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux only")
def test_torch_is_loaded_in_a_copy_and_the_prediction_is_the_same(tmp_path: Path) -> None:
    results = set()
    for cores, cache in ((1, "a"), (2, "b"), (2, "b")):  # the last one has a graph and peaks in the cache
        command = [sys.executable, "-c", PREDICTED, str(cores), str(tmp_path / "out"), str(tmp_path / cache)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
        assert done.stdout == f"{cores == 1}\n"
        results.add(str(json.loads((tmp_path / "out" / "prediction.json").read_text())["peak_memory"]))
    assert len(results) == 1 and len(list(tmp_path.glob("?/peaks-*.json"))) == 2


def test_a_trace_is_freed_after_its_graph_where_no_peak_memory_is_requested(tmp_path: Path) -> None:
    predict(Request(trace="datasets/cpu-gloo/dlrm_t4_r100k_d16_b256_row_x2_lo/1", cache_dir=str(tmp_path)))
    assert load_run.cache_info().currsize == 0
