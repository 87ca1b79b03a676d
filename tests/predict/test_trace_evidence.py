"""Measurements of the trace as the start of a prediction: the toy's own latencies, kept or scaled by ratios."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core.errors import InputError
from gnnperf.core.schema import Source
from gnnperf.hardware import load_cluster, load_device, load_host
from gnnperf.predict.api import COPY, NO_CHECKPOINT, predict
from gnnperf.predict.request import Mode, Request, TraceEvidence
from gnnperf.predict.trace_evidence import TracePredictor, family_ratios, host_ratio
from gnnperf.report.json_document import document
from gnnperf.report.text import comparison
from gnnperf.schedule.step_measurements import measured_step
from gnnperf.whatif import ChangeCluster
from gnnperf.whatif.edit import Edited
from tests.generate.transformer.plans import small
from tests.predict.answers import GEMM_0, GEMM_1, Fixed
from tests.toys import two_rank_graph

TOY = two_rank_graph()
HOST = (TOY.nodes["node_type"] == "host").to_numpy()
MEASURED_US = TOY.nodes["latency_us"].to_numpy(np.float64)
DGX1, H100 = load_cluster("dgx1_v100"), load_device("h100_sxm")


def _predictor(model: object = None) -> TracePredictor:
    return TracePredictor(measured_step(TOY, TOY.steps[0]), DGX1, model or AnalyticPredictor())  # type: ignore[arg-type]


def test_on_the_traced_cluster_every_measured_node_keeps_its_latency() -> None:
    prediction = _predictor().predict(_predictor().measured.graph, DGX1)
    known = np.isfinite(MEASURED_US)
    assert np.array_equal(prediction.latency_us[known], MEASURED_US[known])
    assert set(prediction.source[known]) == {Source.TRACE}
    starts = np.array(TOY.steps[0].rank_start_us)
    assert prediction.rank_start_us == dict(zip(TOY.ranks, (starts - starts.min()).tolist(), strict=True))


def test_the_default_rebuilds_the_measured_step_and_states_that_it_is_no_forecast(trace: Path) -> None:
    answer = predict(Request(trace=trace))
    assert answer.step_time_us == pytest.approx(answer.traced_step_time_us, rel=0.01)
    assert answer.provenance["evidence"] == "trace" and COPY in answer.warnings
    assert not answer.is_lower_bound
    blind = predict(Request(trace=trace, evidence=TraceEvidence.none))
    assert blind.provenance["evidence"] == "none" and NO_CHECKPOINT in blind.warnings
    assert Source.TRACE not in set(blind.prediction.source)


def test_on_another_gpu_kernels_move_by_the_ratio_of_the_model_and_hosts_by_their_speeds(trace: Path) -> None:
    answer = predict(Request(trace=trace, hardware=H100))
    here, there = (AnalyticPredictor().predict(answer.prediction.graph, cluster)
                   for cluster in (DGX1, replace(load_cluster("hgx_h100"), device=H100)))  # fmt: skip
    ratio = there.latency_us[GEMM_0] / here.latency_us[GEMM_0]
    assert answer.prediction.latency_us[GEMM_0] == pytest.approx(MEASURED_US[GEMM_0] * ratio)
    speed = host_ratio(DGX1, load_cluster("hgx_h100"))
    assert speed > 1
    assert answer.prediction.latency_us[HOST] == pytest.approx(MEASURED_US[HOST] / speed)
    assert COPY not in answer.warnings
    assert answer.traced_prediction_us == pytest.approx(predict(Request(trace=trace)).step_time_us)
    assert answer.step_time_ratio == pytest.approx(answer.step_time_us / answer.traced_prediction_us)
    assert comparison(answer).endswith(f"; ratio {answer.step_time_ratio:.3f}")
    assert document(answer)["traced_step_prediction_us"] == answer.traced_prediction_us
    assert predict(Request(trace=trace, hardware=H100, evidence=TraceEvidence.none)).step_time_ratio is None


def test_an_edit_leaves_untouched_nodes_as_measured_and_scales_touched_ones() -> None:
    predictor = _predictor(Fixed({GEMM_0: 30.0, GEMM_1: 10.0}))
    graph = predictor.measured.graph
    touched = np.arange(graph.num_nodes) == GEMM_0
    unknown = graph.nodes.assign(latency_us=graph.nodes["latency_us"].mask(touched))
    edited = Edited(replace(graph, nodes=unknown), touched, np.arange(graph.num_nodes))
    doubled = replace(predictor, model=Fixed({GEMM_0: 60.0, GEMM_1: 10.0}), edited=edited)
    doubled.__dict__["_before_us"] = predictor._before_us
    prediction = doubled.predict(edited.graph, DGX1)
    assert prediction.latency_us[GEMM_0] == pytest.approx(2 * MEASURED_US[GEMM_0])
    assert prediction.latency_us[GEMM_1] == MEASURED_US[GEMM_1]
    assert prediction.source[GEMM_0] == prediction.source[GEMM_1] == Source.TRACE


def test_a_node_that_no_model_knows_takes_the_ratio_of_its_family() -> None:
    nodes = pd.DataFrame(
        {"node_type": ["compute"] * 4 + ["memory"], "family": ["gemm", "gemm", "gemm", "norm", "copy"]}
    )
    ratio, weight_us = np.array([0.5, 2.0, np.nan, np.nan, np.nan]), np.array([30.0, 10.0, 5.0, 5.0, 5.0])
    result = family_ratios(nodes, ratio, weight_us, np.ones(5, dtype=bool))
    mean = np.exp((30 * np.log(0.5) + 10 * np.log(2.0)) / 40)
    assert result[:4] == pytest.approx([mean] * 4)  # norm: all compute nodes
    assert np.isnan(result[4])  # memory: no ratio is known


def test_without_any_modeled_node_a_kernel_takes_the_ratio_of_memory_bandwidths() -> None:
    nothing = Fixed(dict.fromkeys(np.flatnonzero(~HOST).tolist(), np.nan))
    prediction = _predictor(nothing).predict(_predictor().measured.graph, replace(DGX1, device=H100))
    ratio = DGX1.device.memory_bandwidth_bytes_per_s / H100.memory_bandwidth_bytes_per_s
    assert ratio < 1
    assert prediction.latency_us[GEMM_0] == pytest.approx(MEASURED_US[GEMM_0] * ratio)
    assert prediction.source[GEMM_0] == Source.SCALED


def test_a_host_of_the_cluster_moves_host_work_as_an_edit_does(trace: Path) -> None:
    host = load_host("xeon_platinum_8480")
    there = predict(Request(trace=trace, cluster=replace(DGX1, host=host, host_speed=1.7)))
    edited = predict(Request(trace=trace, whatif=[ChangeCluster("dgx1_v100", host="xeon_platinum_8480")]))
    assert edited.whatif is not None
    assert there.prediction.latency_us[HOST] == pytest.approx(edited.whatif.answer.prediction.latency_us[HOST])
    assert (there.prediction.latency_us[HOST] < MEASURED_US[HOST]).all()


def test_speeds_of_named_hosts_count_and_host_speed_counts_for_unnamed_ones() -> None:
    own, new = DGX1.host, load_cluster("hgx_h100").host
    assert own is not None and new is not None
    assert host_ratio(DGX1, replace(DGX1, host=new)) == new.single_thread_speed / own.single_thread_speed
    unknown = replace(DGX1, host=None, host_speed=1.5)
    assert host_ratio(unknown, replace(load_cluster("hgx_h100"), host_speed=3.0)) == 2.0


def test_evidence_of_other_steps_needs_another_step(trace: Path) -> None:
    with pytest.raises(InputError, match="evidence=other_steps: the trace has one step only"):
        predict(Request(trace=trace, evidence=TraceEvidence.other_steps))


@pytest.mark.parametrize("mode", [Mode.analytic, Mode.replay])
def test_modes_that_are_blind_refuse_it(trace: Path, mode: Mode) -> None:
    with pytest.raises(InputError, match=f"evidence: has no use in mode={mode}"):
        predict(Request(trace=trace, mode=mode, evidence=TraceEvidence.trace))


def test_a_plan_has_no_measurements() -> None:
    with pytest.raises(InputError, match="evidence: a plan has no measurements"):
        predict(Request(plan=small(), hardware=load_device("a100_sxm_80gb"), evidence=TraceEvidence.trace))


def test_the_former_key_names_its_replacement() -> None:
    with pytest.raises(InputError, match=r"hosts: hosts=trace was replaced.*evidence=trace"):
        predict(Request(trace="t.json", hosts="trace"))
