"""timeline.json.gz is a trace that Perfetto can read, with predicted next to measured."""

import gzip
import json
import tempfile
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core import NodeType, Relation
from gnnperf.graph.execution_graph import StepLabel
from gnnperf.predict import StepPrediction, assemble
from gnnperf.report import timeline as timeline_module
from gnnperf.report.timeline import tracks, write_timeline
from tests.predict.predictions import COLLECTIVE, GEMM_0, GEMM_1, Fixed, question, toy_prediction
from tests.toys import make_graph


def written(estimate: StepPrediction) -> bytes:
    """The file as it lies on disk."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "timeline.json.gz"
        write_timeline(estimate, tracks(estimate), path)
        return path.read_bytes()


def timeline(estimate: StepPrediction) -> dict[str, Any]:
    """The file, read back."""
    document: dict[str, Any] = json.loads(gzip.decompress(written(estimate)))
    return document


def check_trace_events(document: dict[str, Any]) -> None:
    """The rules of the trace-event format that a reader relies on."""
    json.loads(json.dumps(document, allow_nan=False))
    tracks = defaultdict(list)
    for event in document["traceEvents"]:
        assert event["ph"] in {"X", "M", "s", "f"}
        assert {"name", "pid", "tid"} <= event.keys()
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        if event["ph"] == "X":
            assert event["dur"] >= 0 and event["ts"] >= 0
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in tracks.values():
        ordered = sorted(spans)
        assert all(a[1] <= b[0] + 1e-6 for a, b in pairwise(ordered))  # none overlap
    named = {(e["pid"], e["tid"]) for e in document["traceEvents"] if e["name"] == "thread_name"}
    assert set(tracks) <= named
    _check_flows(document, tracks)


def _check_flows(document: dict[str, Any], tracks: dict[tuple[int, int], list[tuple[float, float]]]) -> None:
    flows = defaultdict(list)
    for event in document["traceEvents"]:
        if event["ph"] in "sf":
            flows[event["id"]].append(event)
            spans = tracks[event["pid"], event["tid"]]
            assert any(start <= event["ts"] <= end for start, end in spans)  # bound to a slice
    for start, finish in flows.values():
        assert (start["ph"], finish["ph"], finish["bp"]) == ("s", "f", "e")
        assert start["ts"] <= finish["ts"]


def _slices(estimate: StepPrediction, process: str, track: str) -> list[tuple[str, float, float]]:
    events = timeline(estimate)["traceEvents"]
    pids = {e["pid"] for e in events if e["name"] == "process_name" and e["args"]["name"] == process}
    keys = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name" and e["args"]["name"] == track}
    chosen = [e for e in events if e["ph"] == "X" and e["pid"] in pids and (e["pid"], e["tid"]) in keys]
    return [(e["name"], e["ts"], e["dur"]) for e in chosen]


def test_toy_is_valid_and_written_deterministically() -> None:
    estimate = toy_prediction()
    check_trace_events(timeline(estimate))
    assert written(estimate) == written(estimate)


def test_predicted_and_measured_stand_side_by_side() -> None:
    estimate = toy_prediction({GEMM_1: 220.0})
    all_reduce = "c10d::allreduce_"
    predicted = [("aten::mm", 10.0, 100.0), (f"wait for peers: {all_reduce}", 110.0, 120.0), (all_reduce, 230.0, 50.0)]
    measured = [("aten::mm", 10.0, 100.0), (f"wait for peers: {all_reduce}", 110.0, 20.0), (all_reduce, 130.0, 50.0)]
    assert _slices(estimate, "rank 0", "stream 0 predicted") == predicted
    assert _slices(estimate, "rank 0", "stream 0 measured") == measured


def test_host_segments_and_launch_calls_are_named() -> None:
    host = _slices(toy_prediction(), "rank 1", "thread 0 predicted")
    assert [h[0] for h in host] == ["aten::mm [T2]", "cudaLaunchKernel", "aten::mm [T3]", "cudaDeviceSynchronize [T1]"]


def test_critical_path_is_a_track_without_gaps() -> None:
    path = _slices(toy_prediction(), "critical path (predicted)", "in the order of time")
    assert [p[1:] for p in path] == [(0.0, 10.0), (10.0, 120.0), (130.0, 50.0), (180.0, 5.0)]
    assert path[1][0] == "aten::mm (compute, rank 1)"


def _of_node(estimate: StepPrediction, node: int) -> dict[str, dict[str, Any]]:
    """Predicted, measured and critical slice of a node."""
    events = timeline(estimate)["traceEvents"]
    return {e["cat"]: e for e in events if e["ph"] == "X" and e["args"].get("node_id") == node}


def test_predicted_slices_have_the_color_of_their_source_and_measured_ones_that_of_the_error() -> None:
    result = _of_node(toy_prediction({GEMM_1: 150.0}), GEMM_1)  # measured 120
    assert {kind: event["cname"] for kind, event in result.items()} == {
        "predicted": "rail_idle", "critical": "rail_idle", "measured": "bad",
    }  # fmt: skip
    assert all(event["args"]["error"] == 0.25 and event["args"]["source"] == "analytic" for event in result.values())
    assert _of_node(toy_prediction({GEMM_1: 125.0}), GEMM_1)["measured"]["cname"] == "good"
    assert _of_node(toy_prediction({GEMM_1: 250.0}), GEMM_1)["measured"]["cname"] == "terrible"
    assert timeline(toy_prediction())["otherData"]["predicted_colors"]["analytic"] == "rail_idle"


def test_no_error_is_reported_for_other_hardware() -> None:
    result = _of_node(toy_prediction({GEMM_1: 150.0}, same_hardware=False), GEMM_1)
    assert "cname" not in result["measured"]
    assert all("error" not in event["args"] for event in result.values())


def test_every_measured_slice_has_a_predicted_one_on_the_track_with_it() -> None:
    events = timeline(toy_prediction())["traceEvents"]
    track = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    drawn = {
        kind: sorted(
            (e["pid"], track[e["pid"], e["tid"]].removesuffix(f" {kind}"), e["name"], e["args"]["node_id"])
            for e in events if e["ph"] == "X" and e["cat"] == kind
        )
        for kind in ("predicted", "measured")
    }  # fmt: skip
    assert drawn["measured"] == drawn["predicted"]
    assert len(drawn["measured"]) == 2 * 6 + 1  # T2, T4, T3, gemm, transfer, T1 per rank; rank 0 waits as well


def _row_of_kernels(num_kernels: int) -> StepPrediction:
    """One stream of kernels of 1 us each."""
    kernel = {"node_type": NodeType.COMPUTE, "device": 0, "stream": 0, "op_name": "aten::mm", "latency_us": 1.0}
    rows: list[dict[str, object]] = [{**kernel, "start_us": float(place)} for place in range(num_kernels)]
    edges: list[tuple[int, int, str]] = [(i, i + 1, str(Relation.FOLLOWS)) for i in range(num_kernels - 1)]
    label = StepLabel(0, "ProfilerStep#0", None, float(num_kernels), (0.0,), (float(num_kernels),))
    graph = make_graph(rows, edges, steps=(label,))
    return assemble(Fixed().predict(graph, None), question(label))  # type: ignore[arg-type]


def test_pieces_make_one_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_module, "CHUNK", 16)
    document = timeline(_row_of_kernels(50))
    check_trace_events(document)
    phases = [event["ph"] for event in document["traceEvents"]]
    assert phases.count("X") == 3 * 50  # predicted, measured, on the critical path
    assert (phases.count("s"), phases.count("f")) == (49, 49)


def test_no_more_than_a_chunk_of_events_is_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_module, "CHUNK", 16)
    requested: list[int] = []
    args = timeline_module._Nodes.args

    def counted(*given: Any) -> Any:
        requested.append(len(given[1]))
        return args(*given)

    monkeypatch.setattr(timeline_module._Nodes, "args", counted)
    estimate = _row_of_kernels(50)
    pieces = timeline_module._pieces(estimate, tracks(estimate))
    while not requested:
        next(pieces)()
    assert requested == [16]  # each is encoded when it is called
    assert len([piece() for piece in pieces]) > 5
    assert max(requested) == 16


def test_uncovered_kernel_is_drawn_with_its_source() -> None:
    events = timeline(toy_prediction({GEMM_1: np.nan}))
    kernel = [e for e in events["traceEvents"] if e["ph"] == "X" and e["args"].get("node_id") == GEMM_1]
    assert {e["cat"]: e["args"]["source"] for e in kernel if e["cat"] == "measured"} == {"measured": "uncovered"}
    assert all("predicted_latency_us" not in e["args"] for e in kernel)


def test_work_before_the_step_moves_everything_alike() -> None:
    estimate = toy_prediction()
    early = replace(estimate, schedule=replace(estimate.schedule, start_us=estimate.schedule.start_us - 7.0))
    check_trace_events(timeline(early))
    assert _slices(early, "rank 0", "thread 0 predicted")[0][1] == 0.0
    assert _slices(early, "rank 0", "thread 0 measured")[0][1] == 7.0


@given(st.lists(st.floats(0, 1e6), min_size=3, max_size=3))
def test_any_latencies_make_a_valid_trace(latency_us: list[float]) -> None:
    check_trace_events(timeline(toy_prediction(dict(zip((GEMM_0, GEMM_1, COLLECTIVE), latency_us, strict=True)))))


def test_overlapping_measured_kernels_get_tracks_of_their_own() -> None:
    estimate = toy_prediction()
    nodes = estimate.prediction.graph.nodes
    nodes.loc[GEMM_0, "latency_us"] = 125.0  # now ends inside the measured all_reduce (130 to 180)
    check_trace_events(timeline(estimate))
    overlapping = _slices(estimate, "rank 0", "stream 0 measured, overlapping 1")
    assert overlapping == [("wait for peers: c10d::allreduce_", 110.0, 20.0), ("c10d::allreduce_", 130.0, 50.0)]
