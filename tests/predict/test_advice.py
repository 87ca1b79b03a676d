"""Findings of a prediction: about the reported step; of a blind one for the trace's own hardware, the measured step."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gnnperf.hardware import default_cluster, load_device
from gnnperf.predict import StepPrediction, advice, api, predict
from gnnperf.predict.advice import with_findings
from gnnperf.predict.request import Mode, Request, Stalls
from gnnperf.whatif.findings import Basis
from tests.predict.predictions import GEMM_0, GEMM_1, Fixed, question, toy_prediction
from tests.toys import two_rank_graph

CLUSTER = default_cluster(load_device("v100_sxm2_32gb"))


def _requested(predicted_us: float, *, same_hardware: bool) -> StepPrediction:
    """The gemm of rank 1 takes 120 us as measured, that of rank 0 100 us; predicted is another time for both."""
    latency_us = {GEMM_0: 100.0, GEMM_1: predicted_us}
    prediction = toy_prediction(latency_us, same_hardware=same_hardware)
    return with_findings(
        prediction, question(prediction.label, same_hardware=same_hardware), Fixed(latency_us), CLUSTER
    )  # fmt: skip


@pytest.mark.parametrize(
    ("same_hardware", "basis", "gain_us"), [(True, Basis.MEASURED, 20.0), (False, Basis.PREDICTED, 200.0)]
)
def test_the_step_of_the_requested_hardware_is_looked_at(same_hardware: bool, basis: Basis, gain_us: float) -> None:
    prediction = _requested(300.0, same_hardware=same_hardware)
    assert prediction.step_time_us == 365.0 and prediction.findings is not None
    straggler = next(one for one in prediction.findings if one.rule == "straggler")
    assert (straggler.basis, straggler.gain_us) == (basis, pytest.approx(gain_us))
    assert same_hardware or straggler.gain_share == pytest.approx(200.0 / 365.0)


def test_a_replay_needs_no_predictor() -> None:
    prediction = toy_prediction(mode=Mode.replay, hardware="", cluster="")
    result = with_findings(prediction, question(prediction.label, mode=Mode.replay)).findings
    assert result is not None
    assert {one.basis for one in result} == {Basis.MEASURED}


def test_a_graph_that_is_too_large_is_stated_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice, "LARGEST_GRAPH", 17)
    prediction = _requested(120.0, same_hardware=True)
    assert prediction.findings is None
    assert prediction.notes[-1] == "Findings are looked for in graphs of up to 17 nodes; this one has 18."


def test_without_latencies_nothing_is_stated_of_a_predicted_step() -> None:
    """Both gemms are not covered: the devices would seem idle, and all kernels small."""
    prediction = toy_prediction({GEMM_0: np.nan, GEMM_1: np.nan}, same_hardware=False)
    result = with_findings(prediction, question(prediction.label, same_hardware=False), Fixed(), CLUSTER)
    assert result.findings is None
    assert result.notes[-1] == (
        "Findings need latencies: 2 of 3 nodes on devices are not covered, so none are looked for."
    )


def test_a_measured_step_needs_no_predicted_latencies() -> None:
    prediction = toy_prediction({GEMM_0: np.nan, GEMM_1: np.nan})
    assert with_findings(prediction, question(prediction.label), Fixed(), CLUSTER).findings is not None


def test_with_measurements_of_the_trace_the_reported_step_is_looked_at(trace: Path) -> None:
    prediction = predict(Request(trace=trace, findings=True))
    assert prediction.findings is not None
    straggler = next(one for one in prediction.findings if one.rule == "straggler")
    assert straggler.basis is Basis.MEASURED
    assert straggler.gain_us is not None and straggler.gain_share is not None
    assert straggler.gain_us / straggler.gain_share == pytest.approx(prediction.step_time_us)
    there = predict(Request(trace=trace, hardware=load_device("h100_sxm"), findings=True))
    assert there.findings is not None
    assert {one.basis for one in there.findings} == {Basis.PREDICTED}


def test_a_measured_stall_is_a_finding(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = two_rank_graph()
    kernel = int(np.flatnonzero((graph.nodes["node_type"] == "compute").to_numpy())[-1])
    start_us = graph.nodes["start_us"].to_numpy(np.float64, copy=True)
    start_us[kernel] += 5000.0
    edges = graph.edges.assign(lag_us=graph.edges["lag_us"].mask((graph.edges["dst"] == kernel).to_numpy(), 0.0))
    stalled = replace(graph, nodes=graph.nodes.assign(start_us=start_us), edges=edges)
    monkeypatch.setattr(api, "load_graph", lambda *_: stalled)
    prediction = predict(Request(trace=trace, findings=True))
    assert prediction.findings is not None
    result = next(one for one in prediction.findings if one.rule == "stalls")
    assert result.gain_us == pytest.approx(
        prediction.step_time_us - predict(Request(trace=trace, stalls=Stalls.remove)).step_time_us
    )
    assert prediction.findings[0] is result
