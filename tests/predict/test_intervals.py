"""Intervals of predictions: from recordings of toy runs to the prediction for another one."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from synthetic import cluster, toy_run

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import Source
from gnnperf.gnn import DeviceIntervals, NodeIntervals, PreparedData, Processor, Step, StepIntervals
from gnnperf.graph.prediction import Prediction
from gnnperf.hardware import ClusterSpec, default_cluster, load_cluster, load_device
from gnnperf.predict import Mode, intervals
from tests.gnn.data.data_sets import carded
from tests.predict.predictions import GEMM_0, GEMM_1, Fixed, toy_prediction
from tests.toys import two_rank_graph


def _runs(data: PreparedData, count: int) -> list[Step]:
    """The validation recording under several names: as if it were so many runs."""
    return [replace(data.recordings[0], run=f"run{i}/1") for i in range(count)]


def test_what_was_missed_is_what_is_reported(data: PreparedData) -> None:
    """Nine equal runs: the step's interval reaches just to what was measured in each."""
    result = intervals.calibrated({Mode.analytic: lambda step: step.base}, _runs(data, 9))[0]
    steps = result.steps["analytic"]
    assert steps.level == pytest.approx(0.9)
    assert steps.devices == result.nodes.devices == ("v100",)
    low, high = steps.bounds_us(100.0, {"host": 1.0})
    assert low < 100.0 < high


def test_corrections_in_other_programs_have_intervals_of_left_out_ones(data: PreparedData) -> None:
    """Programs in which a host takes twice what is predicted, to within 1 %."""
    step = data.recordings[0]
    hosts = (step.nodes["node_type"] == "host").to_numpy() & (step.nodes["latency_us"] > 0).to_numpy()
    source = np.where(hosts, Source.GNN_CALIBRATED, Source.ANALYTIC).astype(object)
    programs = []
    for place in range(60):
        predicted_us = np.where(hosts, step.nodes["latency_us"] / (1.98 + 0.04 * place / 59), step.base.latency_us)
        programs.append((f"program {place}", step, step.base.with_latencies(predicted_us, source)))
    given = {Mode.analytic: lambda step: step.base}
    without, result = (intervals.calibrated(given, _runs(data, 9), more)[0] for more in ((), programs))
    apart, together = without.nodes.log_bounds, result.nodes.log_bounds
    assert without.unseen_steps is None and result.unseen_steps is not None
    assert result.steps == without.steps and result.unseen_steps.level == 0.9
    more = {group: bounds for group, bounds in together.items() if group not in apart}
    assert "v100 | gnn_calibrated" in more and {group: together[group] for group in apart} == apart
    for bounds in more.values():
        assert np.exp(bounds) == pytest.approx((1.98, 2.02), rel=0.01)


def test_nodes_say_how_sure_they_are() -> None:
    bounds = NodeIntervals(0.9, {"v100 | analytic": (np.log(0.5), np.log(2.0))}, ("v100",))
    graph = toy_run(9)
    estimate = intervals.with_calibrated_bounds(AnalyticPredictor().predict(graph, cluster()), cluster(), bounds)
    assert estimate.latency_low_us[3] == pytest.approx(0.5 * estimate.latency_us[3])
    assert estimate.latency_high_us[3] == pytest.approx(2.0 * estimate.latency_us[3])


STEPS = StepIntervals(0.9, {}, 0.1, 1.0, ("v100",))


def test_a_step_on_hardware_of_the_calibration_has_an_interval() -> None:
    estimate = toy_prediction(hardware="v100")
    uncertain = {"host": 0.0, "compute": 0.2, "collective": 0.0}
    given = intervals.with_interval(estimate, replace(STEPS, group_error=uncertain))
    compute_us = estimate.critical_us[(estimate.prediction.graph.nodes["node_type"] == "compute").to_numpy()].sum()
    assert given.step_time_interval_us is not None
    assert given.step_time_interval_us[1] == pytest.approx(
        estimate.step_time_us * np.exp(0.2 * compute_us / estimate.step_time_us)
    )
    assert given.interval_level == 0.9
    assert given.warnings == estimate.warnings


@pytest.mark.parametrize(
    ("hardware", "steps", "sentences"),
    [
        ("v100", None, "it comes with a checkpoint"),
        ("h100_sxm", STEPS, "No interval of the step time for h100_sxm: the checkpoint was calibrated on v100 only"),
    ],
)
def test_without_an_interval_it_is_stated_why(hardware: str, steps: StepIntervals | None, sentences: str) -> None:
    given = intervals.with_interval(toy_prediction(hardware=hardware), steps)
    assert given.step_time_interval_us is None and given.interval_level is None
    assert sentences in given.notes[-1]


def test_a_lower_bound_has_no_interval() -> None:
    given = intervals.with_interval(replace(toy_prediction(hardware="v100"), is_lower_bound=True), STEPS)
    assert given.step_time_interval_us is None
    assert "lower bound" in given.notes[-1]


INTERVALS = DeviceIntervals(0.9, {"gemm": (np.log(0.5), np.log(4.0))}, ("ada", "hopper", "volta"))


def _on(device: str) -> ClusterSpec:
    return replace(load_cluster("dgx_a100"), device=load_device(device))


def _bounded(predictor: Fixed, device: str) -> Prediction:
    cluster = _on(device)
    return intervals.with_unseen_device_bounds(predictor.predict(two_rank_graph(), cluster), cluster, INTERVALS)


def test_kernels_of_a_family_that_generations_tell_of_have_bounds() -> None:
    given = _bounded(Fixed({GEMM_0: 70.0}), "h100_sxm")
    assert given.latency_low_us[GEMM_0] == pytest.approx(35.0)
    assert given.latency_high_us[GEMM_0] == pytest.approx(280.0)
    assert np.isnan(given.latency_low_us[0])  # a host segment
    assert "No prediction was calibrated on h100_sxm" in given.warnings[-1]
    assert "3 GPU generations" in given.warnings[-1]


def test_what_was_measured_or_calibrated_keeps_its_own() -> None:
    estimate = Fixed({GEMM_0: 70.0, GEMM_1: 90.0}, source=Source.MEASURED)
    given = _bounded(estimate, "h100_sxm")
    assert np.isnan(given.latency_low_us[[GEMM_0, GEMM_1]]).all()
    assert given.warnings == estimate.predict(two_rank_graph(), _on("h100_sxm")).warnings


@pytest.mark.parametrize("device", ["mi300x", "cpu_generic"])
def test_other_vendors_and_processors_have_none(device: str) -> None:
    given = _bounded(Fixed(), device)
    assert np.isnan(given.latency_low_us).all()


EPYC, GRACE, XEON = Processor("Epyc", "AVX512"), Processor("Grace"), Processor("Xeon", "AVX512")


def test_another_processor_is_named(tmp_path: Path) -> None:
    trace = carded(tmp_path / "mine", XEON)
    sentences = intervals.other_processor(trace, (EPYC, GRACE))
    assert "ran on Xeon (AVX512)" in sentences and "calibrated on Epyc (AVX512), Grace:" in sentences
    assert intervals.other_processor(trace, (EPYC, XEON)) == ""


def test_one_name_may_hide_two_processors(tmp_path: Path) -> None:
    """A virtual machine states "AMD EPYC", whichever generation it is."""
    trace = carded(tmp_path / "mine", Processor("Epyc", "AVX2"))
    assert "ran on Epyc (AVX2)" in intervals.other_processor(trace, (EPYC,))
    assert intervals.other_processor(trace, (Processor("Epyc"),)) == ""  # an older checkpoint states no more


def test_what_is_unknown_states_nothing(tmp_path: Path) -> None:
    assert intervals.other_processor(carded(tmp_path / "mine", XEON), ()) == ""  # an older checkpoint
    assert intervals.other_processor(carded(tmp_path / "bare"), (EPYC,)) == ""
    assert intervals.other_processor(tmp_path / "bare" / "trace.json", (EPYC,)) == ""  # a file
    assert intervals.other_processor(None, (EPYC,)) == ""  # a plan


def test_a_checkpoint_reports_where_its_errors_were_measured() -> None:
    assert intervals.calibrated_on({"training": {"processors": [asdict(EPYC), asdict(GRACE)]}}) == (EPYC, GRACE)
    assert intervals.calibrated_on({"training": {"processors": ["Epyc"]}}) == (Processor("Epyc"),)  # an older one
    for unknown in ({}, {"training": None}, {"training": {"seed": 0}}, {"training": {"processors": "Epyc"}},
                    {"training": {"processors": [{"capability": "AVX2"}, 7]}}):  # fmt: skip
        assert intervals.calibrated_on(unknown) == ()


def test_bounds_of_another_processor_are_left_out() -> None:
    graph, cluster = two_rank_graph(), default_cluster(load_device("v100_sxm2_32gb"))

    class Sure(AnalyticPredictor):
        def predict(self, graph, cluster):  # type: ignore[no-untyped-def]
            estimate = super().predict(graph, cluster)
            estimate.latency_low_us[:], estimate.latency_high_us[:] = 1.0, 2.0
            return estimate

    sure, unsure = Sure().predict(graph, cluster), intervals.without_bounds(Sure().predict(graph, cluster), "said")
    assert np.isfinite(sure.latency_low_us).all()
    assert np.isnan(unsure.latency_low_us).all() and np.isnan(unsure.latency_high_us).all()
    np.testing.assert_array_equal(unsure.latency_us, sure.latency_us)
    assert unsure.warnings == (*sure.warnings, "said")
