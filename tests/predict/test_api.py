"""predict() in each mode on the toy graph, and the requests it refuses."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import InputError, Source
from gnnperf.generate.recommendation.plan import RecommendationPlan
from gnnperf.gnn import Intervals, NodeIntervals, Processor, StepIntervals
from gnnperf.graph.execution_graph import ExecutionGraph, StepLabel
from gnnperf.hardware import DeviceSpec, load_cluster, load_device
from gnnperf.predict import api, predict, replay
from gnnperf.predict.request import Mode, Request, TraceEvidence
from gnnperf.whatif import ChangeDtype, ScaleBatch, Straggler
from tests.gnn.data.data_sets import carded
from tests.predict.doubled import toy_data
from tests.predict.predictions import GEMM_1, Fixed
from tests.toys import several_steps, two_rank_graph


def test_analytic_predicts_every_gemm(trace: Path) -> None:
    estimate = predict(Request(trace=trace, mode=Mode.analytic))
    assert estimate.hardware == "v100_sxm2_32gb"
    assert set(estimate.prediction.source[[3, 10, 14]]) == {Source.ANALYTIC}
    assert estimate.step_time_us == pytest.approx(estimate.critical_us.sum())
    assert estimate.measured_step_time_us == 185.0


def test_hybrid_without_a_checkpoint_is_analytic_and_states_so(trace: Path) -> None:
    blind = Request(trace=trace, evidence=TraceEvidence.none)
    hybrid, analytic = predict(blind), predict(replace(blind, mode=Mode.analytic))
    assert hybrid.step_time_us == analytic.step_time_us
    assert api.NO_CHECKPOINT in hybrid.notes
    assert api.NO_CHECKPOINT not in analytic.notes


def test_faster_hardware_is_faster_and_not_compared(trace: Path) -> None:
    own, faster = predict(Request(trace=trace)), predict(Request(trace=trace, hardware=load_device("h100_sxm")))
    assert faster.prediction.latency_us[GEMM_1] < own.prediction.latency_us[GEMM_1]
    assert faster.step_time_error is None


def test_provenance_names_versions_and_hashes_but_no_path(trace: Path) -> None:
    result = predict(Request(trace=trace)).provenance
    assert result["input_sha256"] == {
        "toy.json": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"  # sha256 of "{}"
    }
    assert result["checkpoint_sha256"] is None
    assert str(trace.parent) not in str(result)


def test_replay_of_another_step_is_compared_with_the_step_requested_for(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both steps are the toy's, but step 1 is stated to have taken 370 us: the replay of its latencies takes 185."""
    monkeypatch.setattr(api, "load_graph", lambda *_: _two_steps())
    estimate = predict(Request(trace=trace, mode=Mode.replay, step=1))
    assert (estimate.label.step, estimate.structure_step) == (1, 0)
    assert estimate.step_time_us == pytest.approx(185.0)
    assert estimate.measured_step_time_us == 370.0
    assert estimate.step_time_error == pytest.approx(-0.5)
    assert estimate.source_share == pytest.approx({"measured": 1.0, "class_median": 0.0})
    assert estimate.hardware == "Tesla V100-SXM2-32GB"
    assert any("100.0 % of the nodes of step 0 are aligned with step 1" in warning for warning in estimate.warnings)


def test_a_forecast_has_what_the_schedule_of_its_source_leaves_out(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step 1 took 370 us and is rebuilt as 185, so step 0 is forecast as 370; ratios of edits stay."""
    monkeypatch.setattr(api, "load_graph", lambda *_: _two_steps())
    own, forecast = (
        predict(Request(trace=trace, step=0, evidence=evidence, whatif=[Straggler(1, 2.0)]))
        for evidence in (TraceEvidence.trace, TraceEvidence.other_steps)
    )
    assert (own.step_time_us, forecast.step_time_us) == pytest.approx((185.0, 370.0))
    assert own.whatif is not None and forecast.whatif is not None
    assert forecast.whatif.step_time_us == pytest.approx(2.0 * own.whatif.step_time_us)
    assert forecast.critical_us.sum() == pytest.approx(185.0)  # what no node explains is at none


def test_replay_of_the_only_step_states_what_that_is_worth(trace: Path) -> None:
    estimate = predict(Request(trace=trace, mode=Mode.replay))
    assert estimate.measured_step_time_us == 185.0
    assert any("medians are fitted on the other ranks" in warning for warning in estimate.warnings)


def test_replay_states_what_it_could_not_fit(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = replay.replay_step
    monkeypatch.setattr(replay, "replay_step", lambda *args: replace(original(*args), num_unknown=3))
    estimate = predict(Request(trace=trace, mode=Mode.replay))
    assert any("3 nodes and gaps were never measured" in warning for warning in estimate.warnings)


def test_replay_of_one_step_of_one_rank_is_refused(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "load_graph", lambda *_: replace(two_rank_graph(), ranks=(0,)))
    with pytest.raises(InputError, match="one step of one rank"):
        predict(Request(trace=trace, mode=Mode.replay))


def _two_steps() -> ExecutionGraph:
    first = two_rank_graph().steps[0]
    return several_steps(first, StepLabel(1, "ProfilerStep#1", None, 370.0, (0.0, 0.0), (370.0, 370.0)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": Mode.gnn}, "mode=gnn needs a checkpoint"),
        ({"mode": Mode.replay, "hardware": load_device("t4")}, "hardware: has no use in mode=replay"),
        ({"mode": Mode.replay, "cluster": load_cluster("single")}, "cluster: has no use in mode=replay"),
        ({"mode": Mode.replay, "checkpoint": Path("a.ckpt")}, "checkpoint: has no use in mode=replay"),
        ({"checkpoint": Path("/no/such.ckpt")}, "/no/such.ckpt: no such file"),
        ({"trace": Path("/no/such/trace")}, "/no/such/trace: no such file"),
        ({"trace": Path("x" * 300)}, "xxx: no such file"),
        ({"step": 9}, "step=9 is not in the trace"),
        ({"mode": Mode.replay, "whatif": [ScaleBatch(2)]}, "whatif: mode=replay"),
    ],
)
def test_contradictory_requests_are_refused(trace: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        predict(replace(Request(trace=trace), **changes))  # type: ignore[arg-type]


def test_hybrid_with_a_network_merges_it_with_the_analytical_model(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gnnperf.predict.predictors import Predictors

    fallback_order = Predictors((Fixed({GEMM_1: np.nan, 3: 70.0}, source=Source.GNN), Fixed({GEMM_1: 90.0})))
    monkeypatch.setattr(api, "models_for", lambda *names: api.Models(fallback_order))
    estimate = predict(Request(trace=trace, evidence=TraceEvidence.none))
    assert estimate.step_time_us == pytest.approx(10 + 90 + 50 + 5)
    assert estimate.source_share == pytest.approx({"analytic": 90 / 155, "gnn": 65 / 155})


BY_NETWORK = (Source.GNN, Source.GNN_CALIBRATED)


@pytest.mark.parametrize(("mode", "num_uncovered"), [(Mode.gnn, 1), (Mode.hybrid, 0)])
def test_trained_checkpoint_predicts_and_the_analytical_model_fills_in(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode, num_uncovered: int
) -> None:
    """One gemm of the toy gets a name that the network never saw: the analytical model predicts it."""
    graph = two_rank_graph()
    names = graph.nodes["op_name"].astype(object)
    names[GEMM_1] = "aten::unseen"
    monkeypatch.setattr(api, "load_graph", lambda *_: replace(graph, nodes=graph.nodes.assign(op_name=names)))
    blind = Request(trace=trace, mode=mode, checkpoint=_checkpoint(tmp_path), evidence=TraceEvidence.none)
    estimate = predict(blind)
    assert sum(estimate.uncovered_ops.values()) == num_uncovered
    assert estimate.prediction.source[3] in (BY_NETWORK if mode is Mode.hybrid else (Source.GNN,))
    assert estimate.prediction.source[GEMM_1] == (Source.UNCOVERED if num_uncovered else Source.ANALYTIC)
    assert estimate.is_lower_bound == bool(num_uncovered)
    assert len(estimate.provenance["checkpoint_sha256"]) == 64


def test_the_analytical_model_predicts_with_what_a_checkpoints_training_runs_reported(tmp_path: Path) -> None:
    from gnnperf.gnn.checkpoint import load_checkpoint

    path = _checkpoint(tmp_path)
    result = api.models_for(Mode.analytic, path).model
    assert isinstance(result, AnalyticPredictor)
    assert result.constants == load_checkpoint(path).constants
    assert api.models_for(Mode.analytic, None) == api.Models(AnalyticPredictor())


@pytest.mark.parametrize(
    ("processor", "hardware", "is_stated"),
    [("Xeon", None, True), ("Epyc", None, False), ("Xeon", load_device("h100_sxm"), False)],
)
def test_a_trace_of_another_processor_than_training_has_no_interval_and_states_why(
    trace: Path, tmp_path: Path, processor: str, hardware: DeviceSpec | None, is_stated: bool
) -> None:
    recorded = carded(tmp_path / "recorded", Processor(processor))
    learned = _checkpoint(tmp_path, {"processors": ["Epyc"]})
    estimate = predict(Request(trace=recorded, mode=Mode.gnn, checkpoint=learned, hardware=hardware))
    sentences = [w for w in estimate.notes if "ran on Xeon, the checkpoint was calibrated on Epyc" in w]
    assert len(sentences) == is_stated
    assert any("No interval of the step time" in w for w in estimate.notes) is not is_stated  # it was not calibrated


@pytest.mark.parametrize(("mode", "factor"), [(Mode.hybrid, 9.0), (Mode.gnn, None), (Mode.analytic, None)])
def test_a_program_that_training_lacks_has_the_interval_of_left_out_programs_in_mode_hybrid_only(
    trace: Path, tmp_path: Path, mode: Mode, factor: float | None
) -> None:
    from gnnperf.gnn import load_checkpoint, save_checkpoint

    path, devices = _checkpoint(tmp_path), ("v100_sxm2_32gb",)
    own, others = (StepIntervals(0.9, {}, 1.0, scores, devices) for scores in (np.log(2.0), np.log(9.0)))
    bounds = {f"v100_sxm2_32gb | {source}": (-0.5, 0.5) for source in ("gnn", "gnn_calibrated", "analytic")}
    nodes = NodeIntervals(0.9, bounds, devices)
    both = Intervals(nodes, {"hybrid": own, "analytic": own}, others)
    given = replace(load_checkpoint(path), intervals=both)
    request = Request(trace=trace, mode=mode, checkpoint=path, evidence=TraceEvidence.none)
    save_checkpoint(path, given)
    known = predict(request)
    given = replace(given, trust=replace(given.trust, programs={"two": ("mine::mm",)}))
    save_checkpoint(path, given)
    unseen = predict(request)
    assert known.step_time_interval_us is not None
    assert np.isfinite(known.prediction.latency_low_us).any()
    assert np.isfinite(unseen.prediction.latency_low_us).any() == (mode is Mode.hybrid)
    if factor is None:
        assert unseen.step_time_interval_us is None and any("mode=hybrid has those" in note for note in unseen.notes)
    else:
        wide, narrow = (np.log(one.step_time_interval_us[1] / one.step_time_us)  # type: ignore[index]
                        for one in (unseen, known))  # fmt: skip
        assert wide > 2.0 * narrow
        save_checkpoint(path, replace(given, intervals=replace(both, unseen_steps=None)))
        without = predict(request)
        assert without.step_time_interval_us is None and any("train again" in note for note in without.notes)


def _checkpoint(folder: Path, training: Mapping[str, object] | None = None) -> Path:
    """An untrained network with the toy runs' vocabulary."""
    from gnnperf.gnn.checkpoint import make_checkpoint, save_checkpoint
    from gnnperf.gnn.models.gnn import TypedGNN
    from gnnperf.gnn.settings import ModelConfig

    data, config = toy_data(), ModelConfig(hidden_channels=8)
    torch.manual_seed(0)
    network = TypedGNN(config, data.vocabulary)
    with torch.no_grad():
        for parameter in network.heads.parameters():
            parameter.fill_(1e-3)  # trained, if little: no head is silent
    made = make_checkpoint(network, config, data, training or {})
    trust = replace(made.trust, devices=("v100_sxm2_32gb",))  # the trace's own device
    save_checkpoint(folder / "model.ckpt", replace(made, trust=trust))
    return folder / "model.ckpt"


@pytest.mark.parametrize("mode", [Mode.gnn, Mode.hybrid])
def test_edits_are_predicted_by_the_network(trace: Path, tmp_path: Path, mode: Mode) -> None:
    """Costs of edited nodes are features of the network; what is declared is made to its answer."""
    edits = [ChangeDtype("float64", scope="all"), Straggler(1, 3.0)]
    requested = Request(
        trace=trace, mode=mode, checkpoint=_checkpoint(tmp_path), whatif=edits, evidence=TraceEvidence.none
    )
    graph = two_rank_graph()
    types = graph.nodes["dtype"].astype(object)
    costs = graph.nodes.assign(
        dtype=types.where(graph.nodes["node_type"] != "compute", "float32").astype("category"),
        bytes=graph.nodes["bytes"].fillna(1e6),
    )
    estimate = api.predicted(replace(graph, nodes=costs), requested)
    assert estimate.whatif is not None
    edited = estimate.whatif.prediction.prediction
    assert edited.source[GEMM_1] == Source.GNN
    only_slower = api.predicted(replace(graph, nodes=costs), replace(requested, whatif=edits[1:])).whatif
    assert only_slower is not None
    given = only_slower.prediction.prediction.latency_us[GEMM_1]
    assert given == pytest.approx(3.0 * estimate.prediction.latency_us[GEMM_1])
    assert edited.latency_us[GEMM_1] != pytest.approx(given)


RAW: dict[str, Any] = {
    "name": "mine",
    "model": {"tables": [{"name": "t", "count": 4, "rows": 1000, "dim": 8}], "bottom": [8], "top": [4, 1]},
    "batch": 64,
    "ranks": 2,
}


def test_a_mapping_with_tables_is_a_recommender() -> None:
    plan = Request(plan=RAW).plan_spec()
    assert isinstance(plan, RecommendationPlan) and len(plan.model.tables) == 4
    with pytest.raises(InputError, match=r"plan.model: unknown key 'table'"):
        Request(plan={**RAW, "model": {**RAW["model"], "table": []}}).plan_spec()


def test_its_step_is_predicted_by_the_analytical_model() -> None:
    plan = Request(plan=RAW).plan_spec()
    estimate = predict(Request(plan=plan, mode=Mode.analytic, hardware=load_device("a100_sxm_80gb")))
    assert estimate.step_time_us > 0
    assert estimate.prediction.uncovered_ops == {}
    assert estimate.prediction.graph.ranks == (0, 1)


def test_steps_of_several_lengths_have_an_interval() -> None:
    plan = {"model": {"layers": 1, "hidden": 1024, "heads": 8, "sequence": 1024},
            "schedule": {"global_batch": 4, "micro_batch": 1},
            "lengths": {"values": [128, 512, 1024], "draws": 5}}  # fmt: skip
    estimate = predict(Request(plan=plan, hardware=load_device("a100_sxm_80gb")))
    assert estimate.step_time_interval_us is not None and estimate.interval_level == 0.8
    low_us, high_us = estimate.step_time_interval_us
    assert low_us < estimate.step_time_us < high_us
    assert any("median work of 5 drawn ones" in note for note in estimate.notes)
