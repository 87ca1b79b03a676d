"""The fallback order: first latency that is not NaN."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from synthetic import cluster

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import InputError, Source
from gnnperf.graph import ExecutionGraph, Prediction, Predictor, StepLabel, uncovered_ops
from gnnperf.hardware import ClusterSpec, Contention, load_cluster, load_device, load_host
from gnnperf.predict import api, assemble, similar
from gnnperf.predict.api import NO_CHECKPOINT, predict
from gnnperf.predict.edited import with_edits
from gnnperf.predict.measured import read_measured, tensor_shapes
from gnnperf.predict.predictors import Predictors
from gnnperf.predict.ratios import retained
from gnnperf.predict.request import Mode, Request, TraceEvidence
from gnnperf.predict.step_prediction import COPY
from gnnperf.predict.trace_evidence import BY_LINK, TracePredictor, family_ratios, host_ratio
from gnnperf.report.json_document import document
from gnnperf.report.text import comparison
from gnnperf.schedule.step_measurements import measured_step
from gnnperf.whatif import ChangeCluster, ChangeLink, Edited, WorldSize, apply, cluster_after
from tests.generate.transformer.plans import small
from tests.predict.predictions import GEMM_0, GEMM_1, ROW, Fixed, op_table, question
from tests.toys import make_graph, two_rank_graph

NETWORK = Fixed({GEMM_0: 70.0, GEMM_1: np.nan}, source=Source.GNN, warnings=("network",))


def test_network_where_it_predicts_else_analytic() -> None:
    fallback_order = Predictors((NETWORK, Fixed({GEMM_0: 1.0, GEMM_1: 90.0}, warnings=("network", "analytic"))))
    merged = fallback_order.predict(two_rank_graph(), None)  # type: ignore[arg-type]
    assert merged.latency_us[[GEMM_0, GEMM_1]].tolist() == [70.0, 90.0]
    assert merged.source[[GEMM_0, GEMM_1]].tolist() == [Source.GNN, Source.ANALYTIC]
    assert merged.uncovered_ops == {}
    assert merged.warnings == ("network", "analytic")


def test_node_without_any_prediction_is_uncovered_and_named() -> None:
    fallback_order = Predictors((NETWORK, Fixed({GEMM_1: np.nan})))
    merged = fallback_order.predict(two_rank_graph(), None)  # type: ignore[arg-type]
    assert np.isnan(merged.latency_us[GEMM_1])
    assert merged.source[GEMM_1] == Source.UNCOVERED
    assert merged.uncovered_ops == {"aten::mm": 1}


def test_only_latencies_of_ops_isolated_are_left_to_stretch() -> None:
    """The network answers for a rank in place; the analytical model, which fills its gap, for the isolated op."""
    fallback_order = Predictors((NETWORK, Fixed({GEMM_1: 90.0}, contention=Contention(ranks_per_node=2))))
    merged = fallback_order.predict(two_rank_graph(), None)  # type: ignore[arg-type]
    assert merged.isolated is not None
    assert np.flatnonzero(merged.isolated.nodes).tolist() == [GEMM_1]
    assert merged.isolated.contention.ranks_per_node == 2
    both_in_place = Predictors((NETWORK, Fixed())).predict(two_rank_graph(), None)  # type: ignore[arg-type]
    assert both_in_place.isolated is None


def test_uncovered_ops_are_named_by_event_or_peer_wait_where_there_is_no_op() -> None:
    rows: list[dict[str, object]] = [
        {"node_type": "compute", "event_name": "triton_kernel"},
        {"node_type": "host", "segment": "peer_wait", "op_name": "c10d::allreduce_"},
        {"node_type": "compute"},
        {"node_type": "device", "op_name": "GPU"},  # hardware is no work
    ]
    graph = make_graph(rows, [])
    assert uncovered_ops(graph, np.full(4, np.nan)) == {"(unnamed)": 1, "peer_wait": 1, "triton_kernel": 1}


def _graph(**columns: object) -> ExecutionGraph:
    """The toy whose first gemm has the row's shapes, the second one others."""
    graph = two_rank_graph()
    nodes = graph.nodes.copy()
    for name, values in {"input_dims": ["[[64,32],[32,16]]", "[[64,32],[32,8]]"], "dtype": ["float32"] * 2,
                         "num_siblings": [1, 1], **columns}.items():  # fmt: skip
        column = nodes[name].astype(object)
        column[[GEMM_0, GEMM_1]] = values
        nodes[name] = column.astype(nodes[name].dtype if name == "num_siblings" else "category")
    return replace(graph, nodes=nodes)


def test_a_node_with_the_rows_call_takes_its_latency(tmp_path: Path) -> None:
    predictor = read_measured(op_table(tmp_path, ROW, {**ROW, "latency_us": 50.0}), AnalyticPredictor())
    estimate = predictor.predict(_graph(), cluster())
    assert estimate.latency_us[GEMM_0] == 40.0  # the median of both rows
    assert np.isnan(estimate.latency_us[GEMM_1])
    assert estimate.source[GEMM_0] == Source.MEASURED
    assert np.isfinite(estimate.latency_us).sum() == 1


@pytest.mark.parametrize(
    "columns",
    [
        {"dtype": ["bfloat16", "bfloat16"]},
        {"num_siblings": [2, 2]},  # the row times both kernels of the op together
        {"input_dims": ["[[64,32],[32,17]]", None]},
    ],
)
def test_another_call_is_left_to_others(tmp_path: Path, columns: dict[str, object]) -> None:
    predictor = read_measured(op_table(tmp_path, ROW), AnalyticPredictor())
    assert np.isnan(predictor.predict(_graph(**columns), cluster()).latency_us).all()


def test_a_table_of_another_device_is_refused(tmp_path: Path) -> None:
    named = {**ROW, "device": "NVIDIA H200"}
    predictor = read_measured(op_table(tmp_path, named), AnalyticPredictor())
    requested = cluster()
    other = replace(requested, device=replace(requested.device, name="v100_sxm2_32gb"))
    with pytest.raises(InputError, match=r"was measured on NVIDIA H200, the prediction is for v100_sxm2_32gb"):
        predictor.predict(_graph(), other)


def test_calls_with_their_launch_say_nothing_of_kernels(tmp_path: Path) -> None:
    own = {**ROW, "device": "my own", "launch_included": True}
    with pytest.raises(InputError, match="has no row that shows the device's own time"):
        read_measured(op_table(tmp_path, own), AnalyticPredictor()).predict(_graph(), cluster())


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (({**ROW, "device": "a"}, {**ROW, "device": "b"}), "names 2 devices: a, b"),
        (({k: v for k, v in ROW.items() if k != "device"},), "names 0 devices"),
        (({**ROW, "direction": "backward"},), "no row is a measured forward op"),
    ],
)
def test_what_is_no_table_of_one_device_is_refused(
    tmp_path: Path, rows: tuple[dict[str, object], ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_measured(op_table(tmp_path, *rows), AnalyticPredictor())


def test_shapes_of_tensors_among_arguments() -> None:
    assert tensor_shapes("[[2,3],[],[4]]") == ((2, 3), (4,))
    assert tensor_shapes("[[[2,3],[4]],[]]") == ((2, 3), (4,))  # a list of tensors
    assert tensor_shapes("[]") == ()


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
    estimate = predict(Request(trace=trace))
    assert estimate.step_time_us == pytest.approx(estimate.traced_step_time_us, rel=0.01)
    assert estimate.provenance["evidence"] == "trace" and COPY in estimate.notes
    assert not estimate.is_lower_bound
    blind = predict(Request(trace=trace, evidence=TraceEvidence.none))
    assert blind.provenance["evidence"] == "none" and NO_CHECKPOINT in blind.notes
    assert Source.TRACE not in set(blind.prediction.source)


def test_on_another_gpu_kernels_move_by_the_ratio_of_the_model_and_hosts_by_their_speeds(trace: Path) -> None:
    estimate = predict(Request(trace=trace, hardware=H100))
    here, there = (AnalyticPredictor().predict(estimate.prediction.graph, cluster)
                   for cluster in (DGX1, replace(load_cluster("hgx_h100"), device=H100)))  # fmt: skip
    residual = np.log(MEASURED_US[GEMM_0] / here.latency_us[GEMM_0])
    kept = there.latency_us[GEMM_0] * np.exp(retained(residual))
    assert estimate.prediction.latency_us[GEMM_0] == pytest.approx(kept)
    assert retained(np.array([0.1, -0.1, 1.4])) == pytest.approx([0.02, -0.02, 1.08])  # 1.4 = 0.4 + 1.0: 0.08 + 1.0
    sibling = predict(Request(trace=trace, hardware=load_device("v100_dgxs_32gb"))).prediction
    there = AnalyticPredictor().predict(sibling.graph, replace(DGX1, device=load_device("v100_dgxs_32gb")))
    assert sibling.latency_us[GEMM_0] == pytest.approx(there.latency_us[GEMM_0] * np.exp(residual))  # all of it
    speed = host_ratio(DGX1, load_cluster("hgx_h100"))
    assert speed > 1
    assert estimate.prediction.latency_us[HOST] == pytest.approx(MEASURED_US[HOST] / speed)
    assert COPY not in estimate.notes
    assert estimate.traced_prediction_us == pytest.approx(predict(Request(trace=trace)).step_time_us)
    assert estimate.step_time_ratio == pytest.approx(estimate.step_time_us / estimate.traced_prediction_us)
    assert estimate.ratio_interval is not None
    assert estimate.ratio_interval[0] < estimate.step_time_ratio < estimate.ratio_interval[1]
    first = f"ratio {estimate.step_time_ratio:.3f} (90 % interval {estimate.ratio_interval[0]:.2f} to"
    assert comparison(estimate).startswith(first) and comparison(estimate).endswith("measured there: 185 us")
    assert not any("no error" in one for one in (*estimate.warnings, *estimate.notes))
    assert document(estimate)["step_time_ratio_interval"] == list(estimate.ratio_interval)
    assert document(estimate)["traced_step_prediction_us"] == estimate.traced_prediction_us
    assert predict(Request(trace=trace, hardware=H100, evidence=TraceEvidence.none)).step_time_ratio is None


def test_calls_measured_on_another_gpu_correct_similar_ones_there(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similar, "LEAST_ROWS", 1)
    graph, there = _graph(), replace(load_cluster("hgx_h100"), device=H100)
    plain = TracePredictor(measured_step(graph, graph.steps[0]), DGX1, AnalyticPredictor())
    before_us = plain.predict(plain.measured.graph, there).latency_us
    table = op_table(trace.parent, {**ROW, "device": "NVIDIA H100 80GB HBM3", "latency_us": 3.0 * before_us[GEMM_0]})
    setup = api.setup_of(TOY, Request(trace=trace, hardware=H100, measured=table))
    given = replace(plain, correct=setup.predictors.trace.correct)  # type: ignore[union-attr]
    after = given.predict(plain.measured.graph, there)
    assert 2.5 < after.latency_us[GEMM_1] / before_us[GEMM_1] < 3.0
    assert np.array_equal(after.latency_us[HOST], before_us[HOST])
    assert after.reasons[GEMM_1] == similar.REASON.format(count=1)
    assert given.predict(plain.measured.graph, DGX1).latency_us[GEMM_1] == MEASURED_US[GEMM_1]  # measured there


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


TEXTS = dict.fromkeys(("node_type", "family", "event_name"), "category")


def test_a_node_that_no_model_knows_takes_the_ratio_of_its_family() -> None:
    nodes = pd.DataFrame(
        {"node_type": ["compute"] * 4 + ["memory"], "family": ["gemm", "gemm", "gemm", "norm", "copy"], "stream": 7,
         "event_name": "kernel"}
    ).astype(TEXTS)  # fmt: skip
    ratio, weight_us = np.array([0.5, 2.0, np.nan, np.nan, np.nan]), np.array([30.0, 10.0, 5.0, 5.0, 5.0])
    result = family_ratios(nodes, ratio, weight_us, np.ones(5, dtype=bool))
    mean = np.exp((30 * np.log(0.5) + 10 * np.log(2.0)) / 40)
    assert result[:4] == pytest.approx([mean] * 4)  # norm: all compute nodes
    assert np.isnan(result[4])  # memory: no ratio is known


def test_a_kernel_of_an_unknown_op_takes_the_ratio_of_the_family_that_its_name_shows() -> None:
    nodes = pd.DataFrame({"node_type": "compute", "family": ["gemm", "norm", "unknown", "unknown"], "stream": 7,
                          "event_name": ["a", "b", "void cutlass::Kernel<x>", "opaque"]}).astype(TEXTS)  # fmt: skip
    result = family_ratios(nodes, np.array([0.5, 2.0, np.nan, np.nan]), np.full(4, 10.0), np.ones(4, dtype=bool))
    assert result == pytest.approx([0.5, 2.0, 0.5, 1.0])  # the last one: the mean of all compute nodes


def test_without_any_modeled_node_a_kernel_takes_the_ratio_of_memory_bandwidths() -> None:
    nothing = Fixed(dict.fromkeys(np.flatnonzero(~HOST).tolist(), np.nan))
    prediction = _predictor(nothing).predict(_predictor().measured.graph, replace(DGX1, device=H100))
    ratio = DGX1.device.memory_bandwidth_bytes_per_s / H100.memory_bandwidth_bytes_per_s
    assert ratio < 1
    assert prediction.latency_us[GEMM_0] == pytest.approx(MEASURED_US[GEMM_0] * ratio)
    assert prediction.source[GEMM_0] == Source.SCALED


def test_a_host_of_the_cluster_moves_host_work_as_an_edit_does(trace: Path) -> None:
    host, own = load_host("xeon_platinum_8480"), load_host("xeon_e5_2698_v4")
    speed = DGX1.host_speed * host.single_thread_speed / own.single_thread_speed
    there = predict(Request(trace=trace, cluster=replace(DGX1, host=host, host_speed=speed)))
    edited = predict(Request(trace=trace, whatif=[ChangeCluster("dgx1_v100", host="xeon_platinum_8480")]))
    assert edited.whatif is not None
    assert there.prediction.latency_us[HOST] == pytest.approx(edited.whatif.prediction.prediction.latency_us[HOST])
    assert (there.prediction.latency_us[HOST] < MEASURED_US[HOST]).all()


def test_hosts_are_compared_by_single_thread_speeds_unless_host_speed_is_given() -> None:
    own, new = DGX1.host, load_cluster("hgx_h100").host
    assert own is not None and new is not None
    wanted = new.single_thread_speed / own.single_thread_speed
    assert host_ratio(DGX1, load_cluster("hgx_h100")) == pytest.approx(wanted)
    assert host_ratio(replace(DGX1, host=None, host_speed=1.5), replace(DGX1, host=new, host_speed=3.0)) == 2.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"evidence": TraceEvidence.other_steps}, "evidence=other_steps: the trace has one step only"),
        ({"mode": Mode.analytic, "evidence": TraceEvidence.trace}, "evidence: has no use in mode=analytic"),
        ({"mode": Mode.replay, "evidence": TraceEvidence.trace}, "evidence: has no use in mode=replay"),
        ({"trace": None, "plan": small(), "hardware": load_device("a100_sxm_80gb"), "evidence": TraceEvidence.trace},
         "evidence: a plan has no measurements"),
    ],
)  # fmt: skip
def test_evidence_that_there_is_not_is_refused(trace: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        predict(replace(Request(trace=trace), **changes))


@dataclass
class Counted:
    """Counts how often a model runs."""

    model: Predictor
    runs: int = 0

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        self.runs += 1
        return self.model.predict(graph, cluster)


def test_a_model_runs_once_per_graph_and_cluster(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Own hardware: one run. Other hardware: one per cluster, although ratio and fallback both need it."""
    for hardware, runs in ((None, 1), (H100, 2)):
        counted = Counted(AnalyticPredictor())
        monkeypatch.setattr(api, "models_for", lambda *_, model=counted: api.Models(model))
        predict(Request(trace=trace, hardware=hardware))
        assert counted.runs == runs


def _awaiting(message_bytes: float, blocked_us: float) -> ExecutionGraph:
    """A kernel, then an all_reduce of 16 ranks of which one was traced: wait and transfer are one measurement."""
    comm: dict[str, object] = {"collective": "all_reduce", "op_name": "c10d::allreduce_", "family": "collective",
                               "message_bytes": message_bytes, "group_size": 8, "dtype": "float32"}  # fmt: skip
    part = {**comm, "node_type": "comm", "device": 0, "stream": 1}
    rows: list[dict[str, object]] = [
        {"node_type": "compute", "device": 0, "stream": 0, "op_name": "aten::mm", "latency_us": 9.0, "start_us": 0.0},
        {**part, "segment": "arrive", "latency_us": 0.0, "start_us": 9.0},
        {**part, "segment": "exit", "start_us": 9.0 + blocked_us},
        {**comm, "node_type": "host", "segment": "peer_wait", "blocked_us": blocked_us, "start_us": 9.0},
        {**comm, "rank": -1, "node_type": "collective"},
    ]
    edges = [(0, 1, "waits"), (1, 3, "follows"), (3, 4, "joins"), (4, 2, "releases")]
    label = StepLabel(0, "ProfilerStep#0", None, 9.0 + blocked_us, (0.0,), (9.0 + blocked_us,))
    return replace(make_graph(rows, edges, ranks=(0,), steps=(label,)), world_size=8)


def test_a_transfer_that_a_wait_for_untraced_ranks_hides_moves_with_the_link() -> None:
    """The model's transfer comes out of the measured sum; what is left is the wait, which stays."""
    graph, slower = _awaiting(4e6, 1e6), apply(_awaiting(4e6, 1e6), [ChangeLink(bandwidth_factor=0.5)])
    predictor = TracePredictor(measured_step(graph, graph.steps[0]), DGX1, AnalyticPredictor())
    on = cluster_after(DGX1, slower.hardware)
    here, there = (AnalyticPredictor().predict(graph, cluster).latency_us[4] for cluster in (DGX1, on))
    assert predictor.predict(predictor.measured.graph, DGX1).latency_us[[3, 4]].tolist() == [1e6, 0.0]
    edited = predictor.on_edit(slower).predict(slower.graph, on)
    assert there > 1.5 * here
    assert edited.latency_us[[3, 4]] == pytest.approx([1e6 - here, there])
    requested = replace(question(graph.steps[0]), from_trace=True)
    unedited = assemble(predictor.predict(graph, DGX1), requested)
    assert unedited.critical_path_share["peer_wait"] == pytest.approx(1e6 / (1e6 + 9.0))
    change = with_edits(unedited, (ChangeLink(bandwidth_factor=0.5),), Predictors((predictor,)), DGX1, requested).whatif
    assert change is not None
    held = f"hold {here / 1e3:.3g} of the 1e+03 ms of the critical path, and {there / 1e3:.3g} of 1e+03 ms"
    assert held in change.result[-1]
    short = _awaiting(4e6, here / 2)  # shorter than the model's transfer: no rank waited
    result = TracePredictor(measured_step(short, short.steps[0]), DGX1, AnalyticPredictor(), slower)
    assert result.predict(slower.graph, on).latency_us[[3, 4]] == pytest.approx([0.0, there / 2])


def test_a_transfer_that_leaves_its_node_is_that_of_the_model() -> None:
    """Two ranks of one node move to two: there is no measurement of the link between them."""
    apart, predictor = replace(DGX1, ranks_per_node=1), _predictor()
    graph = predictor.measured.graph
    transfer = (graph.nodes["node_type"] == "collective").to_numpy()
    prediction = predictor.predict(graph, apart)
    assert prediction.latency_us[transfer] == pytest.approx(
        AnalyticPredictor().predict(graph, apart).latency_us[transfer]
    )
    assert set(prediction.source[transfer]) == {Source.ANALYTIC}
    assert set(prediction.reasons[transfer]) == {BY_LINK}
    strided = replace(graph, world_size=16, nodes=graph.nodes.assign(group_first=0, group_stride=8))
    moved, came_from = replace(predictor, traced=replace(DGX1, ranks_per_node=16)), np.arange(graph.num_nodes)
    moved = replace(moved, measured=replace(predictor.measured, graph=strided))
    assert moved._leaves_its_node(strided, replace(DGX1, ranks_per_node=8), came_from).tolist() == transfer.tolist()
    there = replace(predictor, traced=apart).predict(graph, replace(apart, host_speed=2.0))  # traced on two nodes
    assert there.latency_us[transfer].tolist() == MEASURED_US[transfer].tolist()


def test_a_transfer_of_unknown_size_moves_by_bandwidth_and_by_what_a_ring_moves() -> None:
    graph = replace(TOY, nodes=TOY.nodes.assign(message_bytes=np.nan))
    predictor = TracePredictor(measured_step(graph, graph.steps[0]), DGX1, AnalyticPredictor())
    for edit, ratio in ((ChangeLink(bandwidth_factor=0.5), 2.0), (WorldSize(4, data_parallel=2), 1.5)):
        edited = apply(graph, [edit])
        on = cluster_after(DGX1, edited.hardware)
        result = predictor.on_edit(edited).predict(edited.graph, on)
        transfer = np.flatnonzero(edited.graph.nodes["node_type"] == "collective")
        assert result.latency_us[transfer] == pytest.approx(50.0 * ratio)
        assert set(result.source[transfer]) == {Source.SCALED}
