"""Errors of nodes and steps by hand; gradients by finite differences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from gnnperf.gnn.data.module import Example, batch_of_examples
from gnnperf.gnn.data.prepare import PreparedData, Step
from gnnperf.gnn.models.gnn import WORK, NodeAnswer
from gnnperf.gnn.training.module import Answers, LabeledNodes, labeled, learning_rate_share, node_error, robust
from gnnperf.gnn.training.step_time import (
    StepTarget,
    StepTimes,
    robust_step_error,
    step_error,
    step_targets,
    step_times,
)
from gnnperf.schedule import schedule


@pytest.fixture(scope="module")
def targets(data: PreparedData) -> tuple[StepTarget, ...]:
    return step_targets(data.steps["train"])


def batch_of_steps(steps: tuple[Step, ...], numbers: list[int]) -> HeteroData:
    return batch_of_examples([Example(s.data, n) for s, n in zip(steps, numbers, strict=True)])


def answering(batch: HeteroData, residuals: Mapping[str, Tensor]) -> Answers:
    """Residuals by work type; 0 where none is given."""
    result = {t: residuals.get(t, torch.zeros(len(batch[t].x))) for t in WORK}
    return {t: NodeAnswer(r, r) for t, r in result.items()}


def test_huber_by_hand() -> None:
    errors = robust(torch.tensor([0.0, 0.2, -2.0]), torch.zeros(3), 0.5)
    assert torch.allclose(errors, torch.tensor([0.0, 0.04, 2.0 - 0.25]))


def test_weights_by_hand() -> None:
    errors, share = torch.tensor([1.0, 2.0]), torch.tensor([2.25, 0.25])  # roots 1.5 and 0.5
    nodes = LabeledNodes(errors, errors, errors, errors, share)
    means = [node_error(errors, nodes, weight).item() for weight in (0.0, 0.5, 1.0)]
    assert means == pytest.approx([1.5, (1.25 + 2 * 0.75) / 2, 1.25])
    assert node_error(errors[:0], replace(nodes, time_share=share[:0]), 0.5).item() == 0.0


def test_a_node_without_a_steady_label_takes_its_usual_one(data: PreparedData) -> None:
    batch = batch_of_steps(data.steps["train"][:1], [0]).clone()
    for node_type in WORK:
        batch[node_type].target = torch.full_like(batch[node_type].target, torch.nan)
    batch["host"].target[:2] = torch.tensor([0.1, 0.2])
    batch["host"].steady_target[:2] = torch.tensor([0.7, torch.nan])
    nodes = labeled(batch, answering(batch, {}))
    assert nodes.target.tolist() == pytest.approx([0.1, 0.2])
    assert nodes.steady_target.tolist() == pytest.approx([0.7, 0.2])


def test_the_learning_rate_rises_then_falls() -> None:
    shares = [learning_rate_share(step, 100, 0.1) for step in range(101)]
    assert shares[9] == shares[10] == 1.0
    assert [shares[i] for i in (0, 55, 100)] == pytest.approx([0.1, 0.5, 0.0])


def test_right_latencies_give_the_schedule_of_the_measured_ones(
    data: PreparedData, targets: tuple[StepTarget, ...]
) -> None:
    steps = data.steps["train"][:2]
    batch = batch_of_steps(steps, [0, 1])
    right = {t: torch.nan_to_num(batch[t].target).double() for t in WORK}
    times = step_times(batch, answering(batch, right), targets)
    for step, log in zip(steps, times.predicted_log.tolist(), strict=True):
        latency = np.nan_to_num(step.nodes["latency_us"].to_numpy(np.float64))
        exits = (step.nodes["segment"] == "exit").to_numpy()
        latency[exits] = targets[0].latency_us[exits]  # not learned: the base
        assert math.exp(log) == pytest.approx(schedule(step.graph, latency, step.base.lag_us).makespan_us, rel=1e-5)
    assert times.measured_log.exp().tolist() == pytest.approx([185.0, 185.0])


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
    assert not comm.grad.any()  # which rank leaves first is random: nothing is learned


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
        for node in range(0, len(result), 3):
            moved = {t: r.clone() for t, r in drawn.items()}
            moved[node_type][node] += 1e-6
            assert float((error(moved) - error(drawn)) / 1e-6) == pytest.approx(float(result[node]), abs=1e-4)


def test_segments_have_no_step_time(data: PreparedData, targets: tuple[StepTarget, ...]) -> None:
    steps = data.steps["train"][:3]
    batch, one = batch_of_steps(steps, [-1, 1, -1]), batch_of_steps(steps[1:2], [1])
    times, isolated = (step_times(b, answering(b, {}), targets) for b in (batch, one))
    assert times.predicted_log.tolist() == pytest.approx(isolated.predicted_log.tolist())
    none = batch_of_steps(steps[:1], [-1])
    empty = step_times(none, answering(none, {}), targets)
    assert len(empty.measured_log) == 0
    assert {step_error(empty).item(), robust_step_error(empty, 0.1).item()} == {0.0}


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


def test_step_errors_by_hand() -> None:
    predicted, measured = (torch.tensor(us, dtype=torch.float64).log() for us in ([100.0, 220.0], [110.0, 200.0]))
    times = StepTimes(predicted, measured)
    assert step_error(times).item() == pytest.approx(math.log(1.1))
    linear, quadratic = 0.05 * (math.log(1.1) - 0.025), 0.5 * math.log(1.1) ** 2
    assert robust_step_error(times, 0.05).item() == pytest.approx(linear / 0.05)
    assert robust_step_error(times, 0.5).item() == pytest.approx(quadratic / 0.5)
