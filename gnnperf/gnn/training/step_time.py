"""Step times of the graphs of a batch as differentiable functions of the network's answers.

    log(by itself) = log(base) + mean residual  ->  latency = by itself x recorded stretch  ->  critical path (numpy)
    ->  step = visits x latency + rest

The path is found at the current latencies and held while gradients flow: along it the step time is a sum, so the
gradient is exact wherever one path by itself is the longest (schedule.step_visits). What the network learns is of ops
by itself; how much what overlapped took longer is known of a recorded step, so no schedule has to find it in training.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from gnnperf.core import NodeType, Segment
from gnnperf.gnn.data.prepare import Step
from gnnperf.gnn.models.gnn import WORK, NodeAnswer
from gnnperf.schedule import NUM_UNROLLED, StepConstraints, constraints_of, step_visits

# What training knows of a step next to latencies of nodes: how long it took, what waits for what, which program.


@dataclass(frozen=True)
class StepTarget:
    """The step-time label of one graph.

    Attributes:
        constraints: what its nodes wait for, with the lags of the analytical answer.
        latency_us: [num_nodes] the base; what nodes take that the network does not answer.
        learned: [num_nodes] bool, nodes whose latency is the network's (features: comm nodes keep their base).
        stretch: [num_nodes] what a node took next to other work over what it takes only, as recorded.
        step_us: measured, a period or makespan as the constraints are.
        workload: "" unknown.
    """

    constraints: StepConstraints
    latency_us: np.ndarray
    learned: np.ndarray
    stretch: np.ndarray
    step_us: float
    workload: str


def step_targets(steps: Iterable[Step]) -> tuple[StepTarget, ...]:
    """One per step.

    Raises:
        InputError: a lag is missing.
    """
    return tuple(_target(step) for step in steps)


def _target(step: Step) -> StepTarget:
    nodes = step.graph.nodes
    awaits_peers = (nodes["segment"] == Segment.PEER_WAIT).to_numpy()  # nothing answers for ranks that were not traced
    learned = (nodes["node_type"] != NodeType.COMM).to_numpy() & ~awaits_peers
    latency_us, stretch = np.zeros(len(nodes)), np.ones(len(nodes))
    for store in step.data.node_stores:
        if "base_us" in store:
            latency_us[store.node_id.numpy()] = store.base_us.numpy()
            stretch[store.node_id.numpy()] = store.stretch.numpy()
    has_period = step.graph.steps[0].period_us is not None  # the kind of step_us (data.runs)
    constraints = constraints_of(step.graph, step.base.lag_us, NUM_UNROLLED if has_period else 1)
    base_us = np.where(awaits_peers, 0.0, latency_us)
    return StepTarget(constraints, base_us, learned, stretch, step.step_us, step.workload)


@dataclass(frozen=True)
class StepTimes:
    """The steps of a batch, k graphs that are whole.

    Attributes:
        predicted_log: [k] float64, log of the predicted step time in us, with gradients.
        measured_log: [k] float64.
        workloads: [k]; "" unknown.
    """

    predicted_log: Tensor
    measured_log: Tensor
    workloads: tuple[str, ...]


def step_times(batch: HeteroData, answers: Mapping[str, NodeAnswer], targets: Sequence[StepTarget]) -> StepTimes:
    """Step times of the batch's whole graphs; segments have none.

    Args:
        batch: graphs with `step` [num_graphs], numbers in `targets`, -1 for segments.
        answers: of the network, per work type.
        targets: of all steps.
    """
    chosen = [(graph, targets[number]) for graph, number in enumerate(batch.step.tolist()) if number >= 0]
    latency_us = {t: batch[t].base_us * answers[t].scheduled_residual.double().exp() for t in WORK}  # [n] each
    steps_us = [_step_us(_of_graph(batch, latency_us, graph, target), target) for graph, target in chosen]
    measured_us = [target.step_us for _, target in chosen]
    measured = torch.tensor(measured_us, dtype=torch.float64, device=batch.step.device)  # [k]
    predicted = torch.stack(steps_us) if steps_us else measured
    return StepTimes(predicted.log(), measured.log(), tuple(target.workload for _, target in chosen))


def _of_graph(batch: HeteroData, latency_us: Mapping[str, Tensor], graph: int, target: StepTarget) -> Tensor:
    """[num_nodes] latencies of one graph in us, in place: the network's where it answers, else the base."""
    rows, values = [], []
    for node_type in WORK:
        own = slice(*batch[node_type].ptr[graph : graph + 2].tolist())
        rows.append(batch[node_type].node_id[own])
        values.append(latency_us[node_type][own])
    row, value = torch.cat(rows), torch.cat(values)  # [num work nodes]
    learned = torch.from_numpy(target.learned).to(row.device)[row]  # [num work nodes]
    base = torch.from_numpy(target.latency_us).to(row.device)  # [num_nodes]
    stretch = torch.from_numpy(target.stretch).to(row.device)  # [num_nodes]
    return base.index_put((row[learned],), value[learned]) * stretch


def _step_us(latency_us: Tensor, target: StepTarget) -> Tensor:
    """Scalar: the step time along the path that is critical at these latencies, [num_nodes]."""
    result = step_visits(target.constraints, latency_us.detach().cpu().numpy())
    visits = torch.from_numpy(result.visits).to(latency_us.device)  # [num_nodes]
    return (visits * latency_us).sum() + result.rest_us


def step_error(times: StepTimes) -> Tensor:
    """Mean |log(predicted / measured)| over the steps; 0 without any."""
    return (times.predicted_log - times.measured_log).abs().sum() / max(len(times.workloads), 1)


def robust_step_error(times: StepTimes, delta: float) -> Tensor:
    """The step's part of the loss: mean over the steps of Huber's distance of the logs; 0 without any.

    As for nodes, and for one reason more: all nodes of a path are moved by one sign, and an absolute error would go on
    pushing them with full strength where the step is already right to within its noise.

    Args:
        times: of a batch.
        delta: |log error| from which the distance is linear, with slope delta.
    """
    distance = torch.nn.functional.huber_loss(times.predicted_log, times.measured_log, reduction="sum", delta=delta)
    return distance / delta / max(len(times.workloads), 1)


def ranking_error(times: StepTimes, noise: float) -> Tensor:
    """Mean logistic loss over pairs of one workload of which one is known to be slower; 0 without any.

    noise x softplus(-difference / noise), the difference of the predicted logs in the measured order: RankNet (Burges
    et al. 2005), as the learned TPU model ranks (Kaufman et al. 2021, section 4), scaled so that a wrong order costs
    about what it is wrong by. A pair in the right order by several times the noise costs nothing; how far apart two
    steps are is the step error's business.

    Args:
        times: of a batch.
        noise: |log ratio| of measured step times up to which two are not distinguished.
    """
    slower, faster = _pairs(times, noise)
    difference = times.predicted_log[slower] - times.predicted_log[faster]  # [num_pairs]
    return noise * torch.nn.functional.softplus(-difference / noise).sum() / max(len(difference), 1)


def _pairs(times: StepTimes, noise: float) -> tuple[list[int], list[int]]:
    """[num_pairs] places of the slower and of the faster one."""
    measured, names = times.measured_log.tolist(), times.workloads
    every = range(len(names))
    result = [(a, b) for a in every for b in every
             if names[a] and names[a] == names[b] and measured[a] - measured[b] > noise]  # fmt: skip
    return [a for a, _ in result], [b for _, b in result]
