"""What a trace measured, intervals of predictions that start from it, and comparisons like for like."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from gnnperf.core import InputError, Source
from gnnperf.gnn import DeviceIntervals
from gnnperf.graph.execution_graph import ExecutionGraph, StepLabel
from gnnperf.hardware import load_cluster, load_device
from gnnperf.predict import Request, api, composed, predict, ratios
from gnnperf.predict.ratios import CLUSTER, EDIT, LINK, REPEAT, WORLD_SIZE, step_bounds
from gnnperf.predict.request import TraceEvidence, check
from gnnperf.predict.step_prediction import LEAST_CALLS, TraceMeasurements, outlier_steps
from gnnperf.predict.trace_evidence import SHORT, unmodeled_ratio
from gnnperf.report import document, print_summary
from gnnperf.report.text import comparison, headline, steps_line
from gnnperf.whatif import ChangeCluster, ChangeDevice, ChangeLink, Edit, HardwareChange, OpLatency, WorldSize
from gnnperf.whatif.edit import unedited
from tests.predict.predictions import GEMM_0, GEMM_1, toy_prediction
from tests.report.page.pages import page_of
from tests.toys import two_rank_graph

DGX1, HGX = load_cluster("dgx1_v100"), load_cluster("hgx_h100")
H100, H200 = load_device("h100_sxm"), load_device("h200")


def _steps(*times_us: float) -> tuple[StepLabel, ...]:
    label = two_rank_graph().steps[0]
    return tuple(replace(label, step=n, name=f"ProfilerStep#{n}", makespan_us=us) for n, us in enumerate(times_us))


def _printed(result: object, verbose: bool = False) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    print_summary(result, onto=console, verbose=verbose)  # type: ignore[arg-type]
    return console.export_text()


def test_outlier_steps_are_named_and_the_reported_step_is_none_of_them() -> None:
    steps = _steps(153e3, 408e3, 128e3)
    assert outlier_steps(steps) == {1}
    assert outlier_steps(steps[:2]) == frozenset()  # two steps do not say which one is odd
    graph = replace(two_rank_graph(), steps=steps)
    result = replace(toy_prediction(label=steps[0]), measurements=TraceMeasurements(graph))
    assert steps_line(result) == ("measured steps 0, 1, 2: 153, 408, 128 ms; 1 is an outlier; this is step 0",)
    assert steps_line(result)[0] in _printed(result)
    assert [one["is_outlier"] for one in document(result)["measured_steps"]] == [False, True, False]


def test_steps_of_other_shapes_are_no_outliers() -> None:
    steps, graph = _steps(100e3, 100e3, 200e3, 200e3, 100e3, 350e3), two_rank_graph()
    shapes = ["[[8,8]]", "[[8,8]]", "[[16,8]]", "[[16,8]]", "[[8,8]]", "[[8,8]]"]
    nodes = pd.concat([graph.nodes.assign(step=step, input_dims=dims) for step, dims in enumerate(shapes)])
    measured = TraceMeasurements(replace(graph, nodes=nodes, steps=steps))
    assert measured.shapes == {0: 0, 1: 0, 2: 1, 3: 1, 4: 0, 5: 0}
    assert measured.outliers == {5}
    line = steps_line(replace(toy_prediction(label=steps[3]), measurements=measured))[0]
    assert line.endswith("this is step 3; steps have 2 sets of shapes, 2 the same as this one")


def test_a_slow_warm_up_with_ops_of_its_own_is_an_outlier() -> None:
    steps, graph = _steps(400e3, 400e3, *[100e3] * 7), two_rank_graph()
    shapes = ["[[1,8]]"] * 2 + ["[[8,8]]"] * 7
    nodes = pd.concat([graph.nodes.assign(step=step, input_dims=dims) for step, dims in enumerate(shapes)])
    assert TraceMeasurements(replace(graph, nodes=nodes, steps=steps)).outliers == {0, 1}


def test_a_recorded_run_of_several_lengths() -> None:
    """Eight batches of seven lengths take turns in 16 steps."""
    run = "datasets/cpu-lengths/bert_l2_w192_s192_b4_len64-32-96-48-128-64-192-80_x1_lo/1"
    result = predict(Request(trace=Path(__file__).parents[2] / run, findings=False, memory=True))
    assert result.measurements is not None and result.measurements.outliers == frozenset()
    assert sorted(pd.Series(result.measurements.shapes).value_counts()) == [2, 2, 2, 2, 2, 2, 4]
    assert any("differ in shapes" in note for note in result.notes)


def test_a_class_holds_all_steps_and_ranks() -> None:
    graph = two_rank_graph()
    nodes = pd.concat([graph.nodes] * 8, ignore_index=True)
    nodes.loc[nodes["op_name"] == "aten::mm", "latency_us"] = np.arange((nodes["op_name"] == "aten::mm").sum()) + 1.0
    measured = TraceMeasurements(ExecutionGraph(**{**graph.__dict__, "nodes": nodes}))
    gemm = measured.classes[(measured.classes["op_name"] == "aten::mm") & (measured.classes["node_type"] == "compute")]
    calls = nodes[(nodes["op_name"] == "aten::mm") & (nodes["node_type"] == "compute")]
    assert gemm["num_calls"].sum() == len(calls)
    launched = nodes.assign(registers=np.arange(len(nodes)) // len(graph.nodes) % 2)  # every other copy
    split = TraceMeasurements(ExecutionGraph(**{**graph.__dict__, "nodes": launched})).classes
    assert len(split) == 2 * len(measured.classes)
    low_us, high_us = measured.bounds_us(graph.nodes)
    known = np.isfinite(low_us)
    assert known.any() and (low_us[known] <= high_us[known]).all()
    assert not np.isfinite(TraceMeasurements(graph).bounds_us(graph.nodes)[0]).any()  # fewer than LEAST_CALLS of each
    assert LEAST_CALLS > 2


def test_a_step_from_its_own_trace_has_the_interval_of_repeats(trace: Path) -> None:
    result = predict(Request(trace=trace))
    low, high = np.exp(ratios.shipped_intervals(ratios.STEP_FILE).log_bounds[REPEAT])
    assert result.step_time_interval_us == pytest.approx((result.step_time_us * low, result.step_time_us * high))
    assert result.interval_level == ratios.shipped_intervals(ratios.STEP_FILE).level
    assert "% of steps within" in headline(result)


def test_an_edit_has_its_ratio_with_an_interval(trace: Path) -> None:
    result = predict(Request(trace=trace, whatif=[OpLatency("aten::mm", 2.0)]))
    assert result.whatif is not None and result.whatif.ratio_interval is not None
    ratio = result.whatif.step_time_us / result.step_time_us
    low, high = np.exp(ratios.shipped_intervals(ratios.STEP_FILE).log_bounds[EDIT])
    assert result.whatif.ratio_interval == pytest.approx((ratio * low, ratio * high))
    printed = _printed(result)
    assert f"ratio {ratio:.3f} (90 % interval" in printed and "measured, unedited: 185 us" in printed
    checked = HardwareChange(
        lambda cluster: cluster, check=lambda _: None
    )  # as an edit of dtype has: no other hardware
    result = predict(Request(trace=trace, whatif=[lambda graph: replace(unedited(graph), hardware=(checked,))]))
    assert result.whatif is not None and result.whatif.ratio_interval == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("edits", "family", "reason"),
    [
        ([ChangeLink(bandwidth_factor=0.5)], LINK, ""),
        ([ChangeCluster(nodes=2), ChangeLink(rate_gbit_per_s=1, link="inter")], CLUSTER, ""),
        ([ChangeDevice("h200")], "", "the device"),
        ([ChangeCluster("dgx1_v100")], "", "the hosts"),
        ([WorldSize(8, data_parallel=2)], "", "numbers of ranks above 2"),
    ],
)
def test_links_and_nodes_have_intervals_of_their_own_and_devices_a_reason(
    trace: Path, edits: list[Edit], family: str, reason: str
) -> None:
    result = predict(Request(trace=trace, whatif=edits))
    assert result.whatif is not None
    unknown = any(one.endswith(f"(no interval): no recorded pairs differ in {reason}") for one in result.whatif.unknown)
    assert unknown == bool(reason)
    ratio = result.whatif.step_time_us / result.step_time_us
    expected = step_bounds((family,), ratio) if family else None
    assert result.whatif.ratio_interval == (expected and pytest.approx(expected))


def test_errors_of_several_kinds_of_edits_add_up_in_squares(monkeypatch: pytest.MonkeyPatch) -> None:
    known = DeviceIntervals(0.9, {EDIT: (-0.3, 0.5), WORLD_SIZE: (-0.4, 1.2)}, ())
    monkeypatch.setattr(ratios, "shipped_intervals", lambda _: known)
    assert step_bounds((EDIT,), 2.0) == pytest.approx((2 * np.exp(-0.3), 2 * np.exp(0.5)))
    assert step_bounds((EDIT, WORLD_SIZE), 2.0) == pytest.approx((2 * np.exp(-0.5), 2 * np.exp(1.3)))


def test_the_ratio_of_a_kernel_has_the_bounds_of_its_family_and_wider_ones_without_a_form(trace: Path) -> None:
    result = predict(Request(trace=trace, hardware=H100))
    own = api.Setup(two_rank_graph(), Request(trace=trace, hardware=H100), api.Models(api.AnalyticPredictor()))
    before = own.predictors.on_traced_cluster(own.step)
    assert before is not None
    bounds = ratios.ratio_bounds(result.prediction, before, own.traced, own.target.cluster)
    low, high = ratios.shipped_intervals(ratios.RATIO_FILE).log_bounds["gemm"]
    dtype = str(result.prediction.graph.nodes["dtype"].iloc[GEMM_0])
    low, high = ratios.shipped_intervals(ratios.RATIO_FILE).log_bounds.get(f"gemm | {dtype}", (low, high))
    assert bounds[:, GEMM_0] == pytest.approx(np.exp([low, high]))
    source = result.prediction.source.copy()
    source[GEMM_1] = Source.SCALED
    wide = ratios.ratio_bounds(replace(result.prediction, source=source), before, own.traced, own.target.cluster)
    assert wide[1, GEMM_1] / wide[0, GEMM_1] > bounds[1, GEMM_0] / bounds[0, GEMM_0]
    same = ratios.ratio_bounds(before, before, own.traced, own.traced)
    assert (same == 1.0).all()  # what does not move keeps its measurement


def test_a_gpu_with_the_same_processors_has_bounds_of_its_own(trace: Path) -> None:
    own = api.Setup(two_rank_graph(), Request(trace=trace), api.Models(api.AnalyticPredictor()))
    before = own.predictors.on_traced_cluster(own.step)
    other = load_device("v100_sxm2_16gb")
    assert before is not None and own.traced.device.name == "v100_sxm2_32gb"
    assert ratios.siblings(own.traced.device, other) and not ratios.siblings(own.traced.device, H100)
    slower = replace(before, latency_us=1.1 * before.latency_us)
    bounds = ratios.ratio_bounds(slower, before, own.traced, replace(own.traced, device=other))
    dtype = str(before.graph.nodes["dtype"].iloc[GEMM_0])
    known = ratios.shipped_intervals(ratios.SIBLING_FILE).log_bounds
    assert bounds[:, GEMM_0] == pytest.approx(np.exp(known.get(f"gemm | {dtype}", known["gemm"])))
    assert bounds[1, GEMM_0] / bounds[0, GEMM_0] < 1.3  # generations differ by more than two


def test_an_unmodeled_kernel_moves_by_its_bound() -> None:
    floor_us = DGX1.device.launch_floor_us
    short, long = unmodeled_ratio(np.array([SHORT * floor_us, 1e3]), DGX1, HGX)
    launch, bandwidth, arithmetic = ratios.bound_ratios(DGX1, HGX)
    assert launch == 1.0 > bandwidth > arithmetic  # the rates of H100 grew more than its bandwidth
    assert (short, long) == pytest.approx((HGX.device.launch_floor_us / floor_us, bandwidth))


def test_several_devices_are_one_table_and_the_checkpoint_is_read_once(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, known = list[object](), api.models_for

    def counted(*given: Any) -> api.Models:
        calls.append(given)
        return known(*given)

    monkeypatch.setattr(api, "models_for", counted)
    result = predict(Request(trace=trace, hardware=H100, other_hardware=["h200", "mi300x"]))
    assert len(calls) == 1
    assert [one.hardware for one in result.alternatives] == ["h100_sxm", "h200", "mi300x"]
    by_name = {one.hardware: one for one in result.alternatives}
    assert by_name["h100_sxm"].step_time_us == result.step_time_us
    alone = predict(Request(trace=trace, hardware=H200))
    assert by_name["h200"].step_time_us == alone.step_time_us
    assert by_name["h200"].ratio_interval == alone.ratio_interval
    rows = document(result)["hardware_table"]
    assert [row["step_time_ratio"] for row in rows] == [one.step_time_ratio for one in result.alternatives]
    for text in (_printed(result), page_of(result)):
        assert "interval of the ratio" in text and all(name in text for name in by_name)
    assert document(alone)["hardware_table"] is None


def test_the_command_line_takes_a_list_of_devices() -> None:
    request = composed("predict", Request, "hardware=[h100_sxm,h200,b200]", "trace=x")
    assert request.device_spec() == H100 and request.other_hardware == ["h200", "b200"]
    assert composed("predict", Request, "hardware=[h100_sxm]", "trace=x").other_hardware == []
    with pytest.raises(InputError, match="no hardware named 'h2000'"):
        check(Request(trace=__file__, hardware=H100, other_hardware=["h2000"]))


def test_another_placement_is_stated_and_compared_like_for_like(trace: Path) -> None:
    own = predict(Request(trace=trace))
    assert own.placement == "2 ranks on 1 node of cluster dgx1_v100" and own.measured_step_time_us is not None
    apart = predict(Request(trace=trace, cluster=replace(DGX1, ranks_per_node=1, nodes=2)))
    assert "2 ranks on 2 nodes of cluster dgx1_v100, 1 on each" in _printed(apart)
    assert apart.warnings[0].startswith("The ranks are predicted on 2 ranks on 2 nodes")
    assert apart.measured_step_time_us is None  # it was not measured so
    assert apart.traced_prediction_us == pytest.approx(own.step_time_us)
    assert "predicted the same way" in comparison(apart)


def test_what_the_trace_did_not_time_makes_no_lower_bound(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = two_rank_graph()
    names, us = graph.nodes["op_name"].astype(object), graph.nodes["latency_us"].to_numpy(copy=True)
    names[GEMM_1], us[GEMM_1] = "mine::secret", np.nan
    blank = graph.nodes.assign(op_name=names, latency_us=us, flops=np.nan, bytes=np.nan)
    monkeypatch.setattr(api, "load_graph", lambda *_: replace(graph, nodes=blank))
    result = predict(Request(trace=trace))
    assert result.uncovered_ops == {"mine::secret": 1}
    assert not result.is_lower_bound and "at least" not in headline(result)
    assert any("did not time them" in note for note in result.notes)
    blind = predict(Request(trace=trace, evidence=TraceEvidence.none))
    assert blind.is_lower_bound and "at least" in headline(blind)


def test_three_warnings_stand_above_the_result_and_the_rest_is_verbose() -> None:
    result = replace(toy_prediction(), warnings=("one", "two", "three", "four"), notes=("a fact",))
    short, long = _printed(result), _printed(result, verbose=True)
    assert short.index("warning: three") < short.index(headline(result))
    assert "four" not in short and "a fact" not in short and "2 more notes: --verbose" in short
    assert "warning: four" in long and "note: a fact" in long
    page = page_of(result)
    assert "<h2>3 warnings</h2>" in page
    assert page.index('id="provenance"') < page.index("four") < page.index("a fact")
