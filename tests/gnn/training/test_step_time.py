"""Step times of a batch: by hand on the two-rank toy, gradients by finite differences, pairs of one workload."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from synthetic import SPLIT, prepared, read
from torch import Tensor
from torch_geometric.data import HeteroData

from gnnperf.gnn.data.module import Example, batch_of_examples
from gnnperf.gnn.data.prepare import DataConfig, PreparedData, Step, prepare
from gnnperf.gnn.data.runs import RunGraph
from gnnperf.gnn.models.gnn import WORK, NodeAnswer
from gnnperf.gnn.training.step_time import (
    StepTarget,
    StepTimes,
    ranking_error,
    robust_step_error,
    step_error,
    step_targets,
    step_times,
)
from gnnperf.schedule import schedule

Answers = dict[str, NodeAnswer]


def of_workload(run: str) -> RunGraph:
    return replace(read(run), workload="toy" if run in "abc" else "")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return prepare(DataConfig(cache_dir=str(tmp_path_factory.mktemp("cache"))), SPLIT, of_workload)


@pytest.fixture
def targets(data: PreparedData) -> tuple[StepTarget, ...]:
    return step_targets(data.steps["train"])


def batch_of_steps(steps: tuple[Step, ...], numbers: list[int]) -> HeteroData:
    return batch_of_examples([Example(s.data, n) for s, n in zip(steps, numbers, strict=True)])


def answering(batch: HeteroData, residuals: Mapping[str, Tensor]) -> Answers:
    """Residuals by work type; 0 where none is given."""
    result = {t: residuals.get(t, torch.zeros(len(batch[t].x))) for t in WORK}
    return {t: NodeAnswer(r, torch.zeros_like(r), r) for t, r in result.items()}


def right(batch: HeteroData) -> dict[str, Tensor]:
    """The residuals that answer what was measured."""
    return {t: torch.nan_to_num(batch[t].target).double() for t in WORK}


def test_right_latencies_give_the_schedule_of_the_measured_ones(
    data: PreparedData, targets: tuple[StepTarget, ...]
) -> None:
    steps = data.steps["train"][:2]
    batch = batch_of_steps(steps, [0, 1])
    times = step_times(batch, answering(batch, right(batch)), targets)
    for step, log in zip(steps, times.predicted_log.tolist(), strict=True):
        latency = np.nan_to_num(step.nodes["latency_us"].to_numpy(np.float64))
        exit_us = targets[0].latency_us[step.nodes["segment"] == "exit"]
        latency[(step.nodes["segment"] == "exit").to_numpy()] = exit_us  # not learned: the base
        assert math.exp(log) == pytest.approx(schedule(step.graph, latency, step.base.lag_us).makespan_us, rel=1e-5)
    assert times.measured_log.exp().tolist() == pytest.approx([185.0, 185.0])
    assert times.workloads == ("toy", "toy")


def test_gradients_run_along_the_critical_path_only(data: PreparedData, targets: tuple[StepTarget, ...]) -> None:
    """All hosts as the base; the gemm of rank 1 twice its base: the path runs through it and not through rank 0's."""
    batch = batch_of_steps(data.steps["train"][:1], [0])
    gemm = torch.tensor([0.0, math.log(2.0)], dtype=torch.float64, requires_grad=True)
    comm = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    times = step_times(batch, answering(batch, {"compute": gemm, "comm": comm}), targets)
    step_error(times).backward()
    assert gemm.grad is not None
    sign = math.copysign(1.0, float((times.predicted_log - times.measured_log).detach()))
    share = 2 * float(batch["compute"].base_us[1]) / float(times.predicted_log.detach().exp())
    assert gemm.grad.tolist() == pytest.approx([0.0, sign * share])
    assert comm.grad is not None
    assert not comm.grad.any()  # which rank leaves first is chance: nothing is learned


def test_gradients_by_finite_differences(data: PreparedData, targets: tuple[StepTarget, ...]) -> None:
    batch = batch_of_steps(data.steps["train"], [0, 1, 2, 3])
    drawn = {t: 0.3 * torch.randn(len(batch[t].x), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
             for t in WORK}  # fmt: skip

    def error(residuals: Mapping[str, Tensor]) -> Tensor:
        return step_error(step_times(batch, answering(batch, residuals), targets))

    leaves = {t: r.clone().requires_grad_() for t, r in drawn.items()}
    error(leaves).backward()
    for node_type in ("host", "compute", "collective"):
        result = leaves[node_type].grad
        assert result is not None and result.any()
        for node in range(len(result)):
            moved = {t: r.clone() for t, r in drawn.items()}
            moved[node_type][node] += 1e-6
            assert float((error(moved) - error(drawn)) / 1e-6) == pytest.approx(float(result[node]), abs=1e-4)


def test_segments_have_no_step_time(data: PreparedData, targets: tuple[StepTarget, ...]) -> None:
    steps = data.steps["train"][:3]
    batch = batch_of_steps(steps, [-1, 1, -1])
    times = step_times(batch, answering(batch, {}), targets)
    isolated = step_times(batch_of_steps(steps[1:2], [1]), answering(batch_of_steps(steps[1:2], [1]), {}), targets)
    assert times.predicted_log.tolist() == pytest.approx(isolated.predicted_log.tolist())
    none = batch_of_steps(steps[:1], [-1])
    empty = step_times(none, answering(none, {}), targets)
    assert empty.workloads == ()
    assert {step_error(empty).item(), robust_step_error(empty, 0.1).item(), ranking_error(empty, 0.1).item()} == {0.0}


def test_waits_for_untraced_peers_take_nothing(data: PreparedData) -> None:
    step = data.steps["train"][0]
    segment = step.nodes["segment"].astype(object)
    segment[9] = "peer_wait"
    graph = replace(step.graph, nodes=step.nodes.assign(segment=segment))
    target = step_targets([replace(step, graph=graph)])[0]
    assert target.latency_us[9] == 0.0
    assert not target.learned[9]
    assert target.learned[[0, 3, 8]].all()
    assert not target.learned[[4, 5]].any()  # arrival and exit


def times_of(predicted_us: list[float], measured_us: list[float], workloads: tuple[str, ...]) -> StepTimes:
    logs = [torch.tensor(one, dtype=torch.float64).log() for one in (predicted_us, measured_us)]
    return StepTimes(logs[0], logs[1], workloads)


def test_errors_by_hand() -> None:
    times = times_of([100.0, 220.0], [110.0, 200.0], ("", ""))
    assert step_error(times).item() == pytest.approx(math.log(1.1))
    out_of_range, within = 0.05 * (math.log(1.1) - 0.025), 0.5 * math.log(1.1) ** 2
    assert robust_step_error(times, 0.05).item() == pytest.approx(out_of_range / 0.05)
    assert robust_step_error(times, 0.5).item() == pytest.approx(within / 0.5)


def test_ranking_by_hand() -> None:
    """One pair of "a" beyond the noise, in the wrong order by log 2; neither other programs nor unknown ones pair."""
    times = times_of([200.0, 100.0, 50.0, 7.0, 9.0], [100.0, 150.0, 900.0, 1.0, 5.0], ("a", "a", "b", "", ""))
    assert ranking_error(times, 0.1).item() == pytest.approx(0.1 * math.log1p(math.exp(math.log(2) / 0.1)))
    assert ranking_error(times, 0.5).item() == 0.0  # log 1.5 is within the noise


def test_the_right_order_costs_little_and_the_gradient_parts_a_wrong_pair() -> None:
    predicted = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
    measured = torch.tensor([0.0, 1.0], dtype=torch.float64)
    ranking_error(StepTimes(predicted, measured, ("a", "a")), 0.05).backward()
    assert predicted.grad is not None
    assert predicted.grad[0] > 0 > predicted.grad[1]  # the second is slower: it must grow
    assert ranking_error(StepTimes(measured, measured, ("a", "a")), 0.05).item() < 1e-6


def test_the_data_set_of_the_tests_has_no_workloads(tmp_path: Path) -> None:
    assert {s.workload for s in prepared(tmp_path).steps["train"]} == {""}
