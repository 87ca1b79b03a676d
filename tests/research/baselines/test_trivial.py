from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gnnperf.gnn import PreparedData, Step, step_time_us
from gnnperf.predict import Mode, assemble
from gnnperf.predict.intervals import question_about
from research.baselines.judge import Estimate
from research.baselines.rows import Analytic, Base, NearestNodes, OpConstant
from research.baselines.whole_steps import MedianStep, NearestStep, RidgeStep, configuration


def with_flops(step: Step, factor: float, step_us: float) -> Step:
    nodes = step.nodes.assign(flops=step.nodes["flops"] * factor)
    return replace(step, graph=replace(step.graph, nodes=nodes), step_us=step_us)


def with_train(data: PreparedData, steps: list[Step]) -> PreparedData:
    return replace(data, steps={**data.steps, "train": tuple(steps)})


def test_the_analytical_model_is_requested_as_predict_requests_it(data: PreparedData) -> None:
    step = data.steps["test"][0]
    known = np.isfinite(step.base.latency_us)
    latency_us = Analytic().fit(data, 0).latency_us(step)
    assert latency_us[known].tolist() == pytest.approx(step.base.latency_us[known].tolist())  # nothing overlaps here
    assert Analytic().step_us(step) == pytest.approx(
        assemble(step.base, question_about(step, Mode.analytic)).step_time_us
    )


def test_the_base_predicts_everywhere(data: PreparedData) -> None:
    step = data.steps["test"][0]
    latency_us = Base().fit(data, 0).latency_us(step)
    store = step.data["compute"]
    assert np.isfinite(latency_us).all()
    assert latency_us[store.node_id.numpy()].tolist() == store.base_us.tolist()
    assert Base().step_us(step) == step_time_us(step, latency_us)


def test_one_constant_per_op(data: PreparedData) -> None:
    estimate, step = OpConstant().fit(data, 0), data.steps["test"][0]
    gemm = (step.nodes["node_type"] == "compute").to_numpy()
    train = [s.nodes["latency_us"][s.nodes["node_type"] == "compute"] for s in data.steps["train"]]
    assert estimate.latency_us(step)[gemm] == pytest.approx(np.median(np.concatenate(train)))
    assert estimate.step_us(step) == step_time_us(step, estimate.latency_us(step))


def test_a_copied_run(data: PreparedData) -> None:
    one = data.steps["train"][1]
    estimate = NearestNodes().fit(with_train(data, [one]), 0)
    step = data.steps["test"][0]  # the same work by content
    works = (step.nodes["latency_us"] > 0).to_numpy()
    assert estimate.latency_us(step)[works].tolist() == one.nodes["latency_us"][works].tolist()


def test_whole_steps(data: PreparedData) -> None:
    """Steps as long as their FLOPs: the median of three; the nearest one's; the ridge in between and monotonic."""
    base = data.steps["train"][0]
    known = [with_flops(base, factor, 100.0 * factor) for factor in (1.0, 4.0, 16.0)]
    fitted, requested = with_train(data, known), with_flops(base, 5.0, np.nan)
    constant: Estimate = MedianStep().fit(fitted, 0)
    assert (constant.step_us(requested), constant.latency_us(requested)) == (400.0, None)
    assert NearestStep().fit(fitted, 0).step_us(requested) == pytest.approx(400.0)
    ridge = RidgeStep().fit(fitted, 0)
    estimates = [ridge.step_us(step) for step in known]
    assert estimates == sorted(estimates)
    # only log FLOPs vary, at -1.22, 0, 1.22: the weight X'y / (X'X + 1) is 3/4 of the least squares one
    assert np.log(estimates) == pytest.approx(np.log(400) + 0.75 * np.log([1 / 4, 1, 4]), abs=1e-6)


def test_configuration_by_hand(data: PreparedData) -> None:
    """Two ranks, each with one gemm, four host segments; half a collective; the link of the cluster."""
    step = data.steps["train"][0]
    result = configuration(step)
    flops = step.nodes["flops"].sum() / 2
    assert result[0] == pytest.approx(np.log1p(flops))
    assert result[3:] == pytest.approx([*np.log1p([1.0, 4.0, 0.5]), np.log(2), np.log(100e9)])


def test_what_test_runs_measured_changes_no_prediction(data: PreparedData, tmp_path: Path) -> None:
    step = data.steps["test"][0]
    other = replace(step, step_us=1.0, graph=replace(step.graph, nodes=step.nodes.assign(latency_us=1.0)))
    blind = replace(data, steps={**data.steps, "test": ()})
    for learner in (Analytic(), Base(), OpConstant(), NearestNodes(), MedianStep(), NearestStep(), RidgeStep()):
        one, two = learner.fit(data, 0), learner.fit(blind, 0)  # type: ignore[attr-defined]
        assert one.step_us(step) == two.step_us(other)
