"""Step times of the graphs of a batch as differentiable functions of predicted latencies.

    log(isolated) = log(base) + scheduled residual  ->  latency = isolated x recorded stretch  ->  critical path (numpy)
    ->  step = visits x latency + rest

The path is computed at the current latencies and held while gradients flow: along it the step time is a sum, so the
gradient is exact wherever a single path is the longest (schedule.step_visits). The recorded stretch stands for
contention, so training needs no second schedule.
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


@dataclass(frozen=True)
class StepTarget:
    """The step-time label of one graph.

    Attributes:
        constraints: timed edges with the lags of the analytical prediction.
        latency_us: [num_nodes] the base, which nodes outside `learned` keep.
        learned: [num_nodes] bool, nodes with a latency of the network.
        stretch: [num_nodes] contended over isolated latency, as recorded.
        step_us: measured, a period or makespan as the constraints are.
    """

    constraints: StepConstraints
    latency_us: np.ndarray
    learned: np.ndarray
    stretch: np.ndarray
    step_us: float


def step_targets(steps: Iterable[Step]) -> tuple[StepTarget, ...]:
    """One per step."""
    return tuple(_target(step) for step in steps)


def _target(step: Step) -> StepTarget:
    nodes = step.graph.nodes
    awaits_peers = (nodes["segment"] == Segment.PEER_WAIT).to_numpy()  # untraced ranks have no prediction
    learned = (nodes["node_type"] != NodeType.COMM).to_numpy() & ~awaits_peers
    latency_us, stretch = np.nan_to_num(step.stored("base_us")), np.nan_to_num(step.stored("stretch"), nan=1.0)
    has_period = step.graph.steps[0].period_us is not None  # the kind of step_us (data.runs)
    constraints = constraints_of(step.graph, step.base.lag_us, NUM_UNROLLED if has_period else 1)
    return StepTarget(constraints, np.where(awaits_peers, 0.0, latency_us), learned, stretch, step.step_us)


@dataclass(frozen=True)
class StepTimes:
    """Logs of step times in us of a batch's k whole graphs, [k] float64 each; predicted ones have gradients."""

    predicted_log: Tensor
    measured_log: Tensor


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
    return StepTimes(predicted.log(), measured.log())


def _of_graph(batch: HeteroData, latency_us: Mapping[str, Tensor], graph: int, target: StepTarget) -> Tensor:
    """[num_nodes] contended latencies of one graph in us: the network's where it is learned, else the base."""
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
    return (times.predicted_log - times.measured_log).abs().sum() / max(len(times.measured_log), 1)


def robust_step_error(times: StepTimes, delta: float) -> Tensor:
    """Mean over the steps of Huber's distance of the logs, linear from `delta`; 0 without any.

    An absolute error would move all nodes of a path by one sign with full strength, where the step is already right to
    within its noise.
    """
    distance = torch.nn.functional.huber_loss(times.predicted_log, times.measured_log, reduction="sum", delta=delta)
    return distance / delta / max(len(times.measured_log), 1)
