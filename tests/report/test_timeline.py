"""timeline.json.gz is a trace that Perfetto can read, with predicted beside measured."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnperf.predict.step_prediction import StepPrediction
from gnnperf.report.timeline import compressed, timeline
from tests.predict.answers import COLLECTIVE, GEMM_0, GEMM_1, toy_answer


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


def _slices(answer: StepPrediction, process: str, track: str) -> list[tuple[str, float, float]]:
    events = timeline(answer)["traceEvents"]
    pids = {e["pid"] for e in events if e["name"] == "process_name" and e["args"]["name"] == process}
    keys = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name" and e["args"]["name"] == track}
    chosen = [e for e in events if e["ph"] == "X" and e["pid"] in pids and (e["pid"], e["tid"]) in keys]
    return [(e["name"], e["ts"], e["dur"]) for e in chosen]


def test_toy_is_valid_and_compressed_deterministically() -> None:
    answer = toy_answer()
    check_trace_events(timeline(answer))
    assert json.loads(gzip.decompress(compressed(answer))) == json.loads(json.dumps(timeline(answer)))
    assert compressed(answer) == compressed(answer)


def test_predicted_and_measured_stand_side_by_side() -> None:
    answer = toy_answer({GEMM_1: 220.0})
    all_reduce = "c10d::allreduce_"
    predicted = [("aten::mm", 10.0, 100.0), (f"wait for peers: {all_reduce}", 110.0, 120.0), (all_reduce, 230.0, 50.0)]
    measured = [("aten::mm", 10.0, 100.0), (f"wait for peers: {all_reduce}", 110.0, 20.0), (all_reduce, 130.0, 50.0)]
    assert _slices(answer, "rank 0", "stream 0 predicted") == predicted
    assert _slices(answer, "rank 0", "stream 0 measured") == measured


def test_host_segments_and_launch_calls_are_named() -> None:
    host = _slices(toy_answer(), "rank 1", "thread 0 predicted")
    assert [h[0] for h in host] == [
        "aten::mm [T2]", "cudaLaunchKernel", "aten::mm [T3]", "cudaDeviceSynchronize [T1]",
    ]  # fmt: skip


def test_critical_path_is_a_track_without_gaps() -> None:
    path = _slices(toy_answer(), "critical path (predicted)", "in the order of time")
    assert [p[1:] for p in path] == [(0.0, 10.0), (10.0, 120.0), (130.0, 50.0), (180.0, 5.0)]
    assert path[1][0] == "aten::mm (compute, rank 1)"


def test_uncovered_kernel_is_drawn_with_its_source() -> None:
    events = timeline(toy_answer({GEMM_1: np.nan}))
    kernel = [e for e in events["traceEvents"] if e["ph"] == "X" and e["args"].get("node_id") == GEMM_1]
    assert {e["cat"]: e["args"]["source"] for e in kernel if e["cat"] == "measured"} == {"measured": "uncovered"}
    assert all("predicted_latency_us" not in e["args"] for e in kernel)


def test_work_before_the_step_moves_everything_alike() -> None:
    answer = toy_answer()
    early = replace(answer, schedule=replace(answer.schedule, start_us=answer.schedule.start_us - 7.0))
    check_trace_events(timeline(early))
    assert _slices(early, "rank 0", "thread 0 predicted")[0][1] == 0.0
    assert _slices(early, "rank 0", "thread 0 measured")[0][1] == 7.0


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=3, max_size=3))
def test_any_latencies_make_a_valid_trace(latency_us: list[float]) -> None:
    check_trace_events(timeline(toy_answer(dict(zip((GEMM_0, GEMM_1, COLLECTIVE), latency_us, strict=True)))))


def test_overlapping_measured_kernels_get_tracks_of_their_own() -> None:
    answer = toy_answer()
    nodes = answer.prediction.graph.nodes
    nodes.loc[GEMM_0, "latency_us"] = 125.0  # now ends inside the measured all_reduce (130 to 180)
    check_trace_events(timeline(answer))
    overlapping = _slices(answer, "rank 0", "stream 0 measured, overlapping 1")
    assert overlapping == [("wait for peers: c10d::allreduce_", 110.0, 20.0), ("c10d::allreduce_", 130.0, 50.0)]
