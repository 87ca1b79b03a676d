"""Step time, shares and warnings of the toy graph, computed by hand (drawing: tests/toys.py).

launch is start-to-start, so the path is T2 10 | T4 0 | gemm of rank 1 120 | all_reduce 50 | T1 5 = 185 us.
"""

from dataclasses import replace

import numpy as np
import pytest

from gnnperf.core import InputError, StepTimeKind
from gnnperf.graph.execution_graph import ExecutionGraph, StepLabel
from gnnperf.hardware import ClusterSpec, Contention, DeviceSpec, load_cluster, load_device
from gnnperf.predict.assembly import assemble, choose_step, other_step, step_time_kind
from gnnperf.predict.request import Mode
from gnnperf.predict.target import choose_target, closest, traced_name
from gnnperf.report.text import comparison
from tests.predict.predictions import COLLECTIVE, GEMM_0, GEMM_1, Fixed, question, toy_prediction
from tests.toys import make_graph, two_rank_graph

LABEL = two_rank_graph().steps[0]


def test_makespan_is_the_hand_computed_one() -> None:
    result = toy_prediction()
    assert result.step_time_kind is StepTimeKind.MAKESPAN
    assert result.step_time_us == pytest.approx(185.0)
    assert result.step_time_error == pytest.approx(0.0)
    assert result.rank_step_time_us == pytest.approx({0: 185.0, 1: 185.0})


def test_critical_time_sums_to_the_step_time_and_names_its_types() -> None:
    result = toy_prediction()
    assert result.critical_us.sum() == pytest.approx(185.0)
    assert result.critical_us[GEMM_1] == pytest.approx(120.0)
    assert result.critical_us[GEMM_0] == 0.0
    expected = {"compute": 120 / 185, "collective": 50 / 185, "host": 15 / 185, "comm": 0.0}
    assert result.critical_path_share == pytest.approx(expected)
    assert result.source_share == pytest.approx({"analytic": 1.0})


def test_delay_after_a_node_is_part_of_its_critical_time_and_reported_apart() -> None:
    """7 us between gemm and arrival on rank 1: 192 us, of which the gemm's 127 are 120 of work and 7 of delay."""
    graph = two_rank_graph()
    prediction = Fixed().predict(graph, None)  # type: ignore[arg-type]
    between = (graph.edges["src"] == GEMM_1) & (graph.edges["relation"] == "follows")
    delayed = replace(prediction, lag_us=np.where(between, 7.0, 0.0))
    result = assemble(delayed, question(LABEL))
    assert result.step_time_us == pytest.approx(192.0)
    assert result.critical_us[GEMM_1] == pytest.approx(127.0)
    assert result.critical_delay_us == pytest.approx(7.0)
    assert toy_prediction().critical_delay_us == 0.0


def test_slower_kernel_of_the_fast_rank_moves_the_path() -> None:
    result = toy_prediction({GEMM_0: 200.0})
    assert result.step_time_us == pytest.approx(10 + 200 + 50 + 5)
    assert result.critical_us[GEMM_0] == pytest.approx(200.0)
    assert result.step_time_error == pytest.approx(265 / 185 - 1)


def test_latencies_isolated_are_stretched_and_reported_as_scheduled() -> None:
    """Both ranks on one core: T2 of both at half rate until 20, T4 until 30, ... gemm of rank 0 and T3 share too."""
    contention = Contention(ranks_per_node=2, cores_per_node=1.0)
    prediction = Fixed(contention=contention).predict(two_rank_graph(), None)  # type: ignore[arg-type]
    result = assemble(prediction, question(LABEL))
    assert result.prediction.latency_us[[0, 7]].tolist() == [20.0, 20.0]
    # 10 + 5 + 10 + 100 + 10 + 5 + 10 + 120 us of work on one core, then the all-reduce 50, then T1 of both ranks 10.
    assert result.step_time_us == pytest.approx(270.0 + 50.0 + 10.0)
    assert result.prediction.isolated is None
    assert result.prediction.analytic_latency_us[0] == 10.0


def test_uncovered_node_makes_a_lower_bound_that_states_so() -> None:
    result = toy_prediction({GEMM_1: np.nan, GEMM_0: np.nan})
    assert result.is_lower_bound
    assert result.uncovered_ops == {"aten::mm": 2}
    assert result.uncovered_measured_share == pytest.approx(220 / (2 * 30 + 220 + 50))
    assert result.step_time_us == pytest.approx(10 + 0 + 50 + 5)
    assert result.warnings[0].startswith(
        "Not covered: 2 nodes of ops aten::mm (2), 66.7 % of the trace's measured node time;"
    )
    assert "lower bound" in result.warnings[0]
    assert np.isnan(result.prediction.latency_us[GEMM_1])  # the hole stays visible per node


def test_covered_step_is_no_lower_bound() -> None:
    assert not toy_prediction().is_lower_bound
    assert not any(warning.startswith("Not covered") for warning in toy_prediction().warnings)


def test_other_hardware_has_no_error_but_keeps_the_traced_time() -> None:
    result = toy_prediction(same_hardware=False, hardware="h100_sxm")
    assert result.measured_step_time_us is None
    assert result.step_time_error is None
    assert result.traced_step_time_us == 185.0
    assert "measured on Tesla V100-SXM2-32GB: 185 us" in comparison(result)


def test_period_where_the_step_has_one() -> None:
    """Steady state: both streams carry over, and each step's host waits for its all_reduce: 185 us again."""
    result = toy_prediction(label=replace(LABEL, period_us=190.0))
    assert result.step_time_kind is StepTimeKind.PERIOD
    assert result.step_time_us == pytest.approx(185.0)
    assert result.measured_step_time_us == 190.0
    assert result.critical_us.sum() == pytest.approx(result.step_time_us)


def test_window_is_a_kind_of_its_own() -> None:
    assert step_time_kind(replace(LABEL, name="window")) is StepTimeKind.WINDOW


def test_skewed_rank_starts_are_stated() -> None:
    result = toy_prediction(label=replace(LABEL, rank_start_us=(0.0, 60.0)))
    assert result.rank_start_skew_us == 60.0
    assert any("60 us apart" in note for note in result.notes)
    replayed = toy_prediction(label=replace(LABEL, rank_start_us=(0.0, 60.0)), mode=Mode.replay)
    assert not any("us apart" in note for note in replayed.notes)  # a replay keeps the measured starts


def test_untraced_ranks_are_stated() -> None:
    graph = replace(two_rank_graph(), world_size=8)
    result = assemble(Fixed().predict(graph, None), question(LABEL))  # type: ignore[arg-type]
    assert any(warning.startswith("6 of 8 ranks were not traced") for warning in result.warnings)


@pytest.mark.parametrize("scale", [0.0, 0.5, 10.0])
def test_collective_on_the_path_scales_the_step(scale: float) -> None:
    assert toy_prediction({COLLECTIVE: 50.0 * scale}).step_time_us == pytest.approx(135 + 50 * scale)


def _graph(*period_us: float | None) -> ExecutionGraph:
    steps = [StepLabel(i, f"ProfilerStep#{i + 5}", p, 100.0 - i, (0.0,), (1.0,)) for i, p in enumerate(period_us)]
    return replace(two_rank_graph(), steps=tuple(steps))


@pytest.mark.parametrize(
    ("period_us", "requested", "chosen"),
    [
        ((None, 900.0, 100.0, 300.0), None, 3),  # the median, not the first step
        ((None, 100.0, 300.0), None, 1),  # of an even number the lower one
        ((None, None, None), None, 1),  # the makespan decides without periods
        ((None, 1.0), 0, 0),
    ],
)
def test_the_step_of_the_median_period_is_chosen_unless_one_is_requested(
    period_us: tuple[float | None, ...], requested: int | None, chosen: int
) -> None:
    assert choose_step(_graph(*period_us), requested).step == chosen


def test_a_step_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match=r"step=7 .*Allowed: 0 \(ProfilerStep#5\), 1 \(ProfilerStep#6\)"):
        choose_step(_graph(None, 1.0), 7)
    with pytest.raises(InputError, match="no whole step"):
        choose_step(_graph(), None)


def test_replay_uses_the_nearest_other_step() -> None:
    graph = _graph(None, 1.0, 2.0)
    assert other_step(graph, graph.steps[0]).step == 1
    assert other_step(graph, graph.steps[1]).step == 2
    assert other_step(graph, graph.steps[2]).step == 1
    assert other_step(_graph(None), graph.steps[0]).step == 0


def _named(*names: str) -> ExecutionGraph:
    return replace(two_rank_graph(), device_names=names)


def _cpu_graph(*names: str) -> ExecutionGraph:
    graph = make_graph([{"node_type": "compute", "thread": 0, "op_name": "aten::mm"}], [], device_name="")
    return replace(graph, device_names=names)


SINGLE, V100, H100 = load_cluster("single"), load_device("v100_sxm2_32gb"), load_device("h100_sxm")


@pytest.mark.parametrize(
    ("device", "cluster", "name", "same"),
    [
        (None, None, "v100_sxm2_32gb", True),
        (V100, None, "v100_sxm2_32gb", True),
        (replace(V100, memory_bandwidth_bytes_per_s=2e12), None, "v100_sxm2_32gb", False),
        (H100, None, "h100_sxm", False),
        (None, SINGLE, "v100_sxm2_32gb", True),  # a cluster gives the links and keeps the device
    ],
)
def test_hardware_is_the_traces_own_unless_another_one_is_requested(
    device: DeviceSpec | None, cluster: ClusterSpec | None, name: str, same: bool
) -> None:
    target = choose_target(two_rank_graph(), device, cluster)
    assert (target.cluster.device.name, target.same_hardware) == (name, same)
    assert cluster is None or target.cluster.name == cluster.name


def test_links_are_assumed_aloud_unless_named() -> None:
    target = choose_target(two_rank_graph(), None, None)
    assert any("links are assumed" in note for note in target.notes)
    assert choose_target(two_rank_graph(), None, target.cluster).notes == ()


def test_unknown_device_of_the_trace_names_the_closest_and_the_remedy() -> None:
    with pytest.raises(InputError, match=r"'Tesla V100-FHHL-16GB' is not in the catalog; closest: v100") as refused:
        choose_target(_named("Tesla V100-FHHL-16GB", "Tesla V100-FHHL-16GB"), None, None)
    assert "hardware=NAME" in str(refused.value) and "conf/hardware" in str(refused.value)


def test_unknown_device_of_the_trace_may_be_predicted_outside_but_not_compared() -> None:
    target = choose_target(_named("Abacus 9", "Abacus 9"), H100, None)
    assert not target.same_hardware
    assert closest("Abacus 9") == []


def test_gpu_trace_without_a_name_must_be_reported() -> None:
    with pytest.raises(InputError, match="does not say which device"):
        choose_target(_named("", ""), None, None)


@pytest.mark.parametrize(("name", "close"), [("", ""), ("Tesla V100-FHHL-16GB", "closest: v100")])
def test_with_measured_latencies_a_generic_gpu_stands_for_one_that_the_catalog_lacks(name: str, close: str) -> None:
    target = choose_target(_named(name, name), None, None, from_trace=True)
    assert target.cluster.device.name == "gpu_generic" and target.same_hardware
    (warning,) = [text for text in target.warnings if "gpu_generic is assumed for edits" in text]
    assert close in warning


def test_ranks_on_different_devices_must_be_reported() -> None:
    graph = _named("Tesla V100-SXM2-32GB", "NVIDIA H100 80GB HBM3")
    with pytest.raises(InputError, match="different devices"):
        choose_target(graph, None, None)
    assert traced_name(graph) == "Tesla V100-SXM2-32GB, NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize("name", ["", "Some CPU @ 2 GHz"])
def test_cpu_trace_takes_the_generic_cpu_and_states_so(name: str) -> None:
    target = choose_target(_cpu_graph(name), None, None)
    assert target.cluster.device.name == "cpu_generic"
    assert target.same_hardware
    assert any("cpu_generic is assumed" in warning for warning in target.warnings)


def test_a_cluster_of_several_nodes_divides_the_ranks() -> None:
    two = replace(load_cluster("hgx8"), nodes=2)
    assert choose_target(two_rank_graph(), None, two).cluster.ranks_per_node == 1
    with pytest.raises(InputError, match="2 ranks do not fit on 1 node of 1"):
        choose_target(two_rank_graph(), None, replace(SINGLE, nodes=1))
