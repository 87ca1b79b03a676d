"""Share of kernel time whose op has a cost, on public traces with shapes (read with plain json, no other space)."""

from __future__ import annotations

import gzip
import json
import math
from collections import defaultdict
from pathlib import Path

import pytest

from gnnperf.core.schema import OpFamily
from gnnperf.graph.cost import op_cost

pytestmark = pytest.mark.mirror

TRACES = {  # file -> least share of linked, non-collective kernel time with a known cost
    "AMD-AGI+TraceLens/tests/traces/h100/Falconsai_nsfw_image_detection__1016002.json.gz": 0.999,
    "AMD-AGI+TraceLens/tests/traces/h100/facebook_timesformer-base-finetuned-k400__1016002.json.gz": 0.999,
    "AMD-AGI+TraceLens/tests/traces/h100/gaunernst_bert-small-uncased__1016001.json.gz": 0.999,
}


def kernel_time_by_cost(path: Path) -> tuple[float, float]:
    """(known, all) us of kernels whose file names their op by a true external id."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    ops = {e["args"].get("External id"): e for e in events if e.get("cat") == "cpu_op"}
    time: dict[bool, float] = defaultdict(float)
    for event in events:
        op = ops.get(event.get("args", {}).get("External id")) if event.get("cat") == "kernel" else None
        if op is None:
            continue
        texts = (json.dumps(op["args"].get(k)) for k in ("Input Dims", "Input type", "Concrete Inputs"))
        result = op_cost(op["name"], *texts)
        if result.family is not OpFamily.COLLECTIVE:
            time[not (math.isnan(result.flops) and math.isnan(result.bytes))] += float(event["dur"])
    return time[True], time[True] + time[False]


@pytest.mark.parametrize("name", TRACES)
def test_kernel_time_with_a_known_cost(name: str, mirror: Path) -> None:
    known, total = kernel_time_by_cost(mirror / name)
    assert total > 0
    assert known / total >= TRACES[name]
