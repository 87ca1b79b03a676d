"""Branches in one stream: two chains of two kernels between a first and a last one; gains by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnperf.analytic import roofs_of
from gnnperf.core.schema import NodeType, Relation
from gnnperf.graph import build_graph
from gnnperf.hardware import default_cluster, match_device
from gnnperf.predict.assembly import choose_step
from gnnperf.schedule import NUM_UNROLLED
from gnnperf.trace import read_run
from gnnperf.whatif.findings import Observed, find, measured_step
from gnnperf.whatif.findings.serialized_streams import demands, serialized_streams
from tests.whatif.findings.steps import DEVICE, Steps

BANDWIDTH = roofs_of(DEVICE).bandwidth.sustained


def _branches(use: float | None = 0.25, *, tied: bool = True, joined: bool = False) -> Observed:
    """first 10; a1 100, a2 100; b1 80, b2 80; last 10. `joined`: b1 takes what a2 makes."""
    step = Steps()
    times = {"first": 10.0, "a1": 100.0, "a2": 100.0, "b1": 80.0, "b2": 80.0, "last": 10.0}
    size: dict[str, Any] = {"family": "elementwise", "dtype": "float32", "flops": 0.0}
    kernel = {}
    for name, us in times.items():
        moved: dict[str, Any] = {} if use is None else {"bytes": use * BANDWIDTH * us * 1e-6}
        kernel[name] = step.call(1.0, us, op_name=f"aten::{name}", **size, **moved)
    pairs = [("first", "a1"), ("a1", "a2"), ("first", "b1"), ("b1", "b2"), ("a2", "last"), ("b2", "last")]
    pairs += [("a2", "b1")] if joined else []
    if tied:
        step.edges += [(kernel[a], kernel[b], Relation.FEEDS) for a, b in pairs]
    return step.observed()


def test_branches_that_leave_slack_are_detected_with_what_they_gain() -> None:
    """10 + 200 + 160 + 10; side by side the second chain is hidden behind the first."""
    step = _branches()
    assert step.step_time_us == 380.0
    (result,) = find(step, (serialized_streams,))
    assert result.gain_us == 160.0
    assert result.at_most
    assert "2 of 6 kernels and copies need nothing of what their stream runs meanwhile" in result.evidence[0]
    assert "160 us less per rank" in result.evidence[0]
    assert "aten::b1 (80 us), aten::b2 (80 us) next to aten::a1 (100 us), aten::a2 (100 us)" in result.evidence[1]
    assert "25 % of the device" in result.evidence[2]
    assert any("share the device" in one for one in result.unknown)


def test_kernels_that_fill_the_device_and_what_needs_each_other_gain_nothing() -> None:
    assert find(_branches(use=0.6), (serialized_streams,)) == ()
    assert find(_branches(use=None), (serialized_streams,)) == ()  # nothing knows whether they leave space
    assert find(_branches(joined=True), (serialized_streams,)) == ()
    assert find(_branches(tied=False), (serialized_streams,)) == ()  # no tensor is followed


def test_a_host_that_is_slower_than_the_stream_gains_nothing() -> None:
    """The device waits for its launches: nothing is saved by a second stream."""
    step = Steps()
    size: dict[str, Any] = {"family": "elementwise", "dtype": "float32", "flops": 0.0, "bytes": 0.1 * BANDWIDTH * 50e-6}
    kernels = [step.call(200.0, 50.0, **size) for _ in range(4)]
    step.edges += [(kernels[0], kernels[1], Relation.FEEDS), (kernels[2], kernels[3], Relation.FEEDS)]
    assert find(step.observed(), (serialized_streams,)) == ()


def test_copies_over_the_host_link_leave_the_device_free_but_not_each_other() -> None:
    step = Steps()
    copy: dict[str, Any] = {"node_type": NodeType.MEMORY, "event_name": "Memcpy HtoD (Pinned -> Device)", "bytes": 1e5}
    first, second = (step.call(1.0, 50.0, **copy) for _ in range(2))
    gemm = step.call(1.0, 50.0, family="gemm", dtype="float32", flops=50e6, bytes=1.0)
    use = demands(step.observed(), DEVICE)
    np.testing.assert_allclose(use[[first, second]], [[0.0, 1.0], [0.0, 1.0]])
    assert use[gemm].tolist() == [1.0, 0.0]


@pytest.mark.mirror
def test_a_public_run_has_none(mirror: Path) -> None:
    """Kernels with an execution trace, so that tensors are followed: two streams would save 0.2 % of a rank's work."""
    folder = mirror / "NVIDIA+Megatron-LM/tp2"
    files = [*sorted(folder.glob("result/*/*.json.gz")), *sorted(folder.glob("pytorch_et_*.json.gz"))]
    graph = build_graph(read_run(files))
    one = graph.step(choose_step(graph, None).step).for_predictors()
    device = match_device(one.device_names[0])
    assert device is not None
    step = measured_step(one, NUM_UNROLLED, default_cluster(device))
    assert len(one.edges[one.edges["relation"] == Relation.FEEDS]) > 1000
    assert find(step, (serialized_streams,)) == ()
