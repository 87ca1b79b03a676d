"""What training knows of a step beside latencies of nodes: how long it took, what waits for what, which program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gnnperf.core import NodeType, Segment
from gnnperf.gnn.data.prepare import Step
from gnnperf.schedule import NUM_UNROLLED, StepConstraints, constraints_of


@dataclass(frozen=True)
class StepTarget:
    """The step-time label of one graph.

    Attributes:
        constraints: what its nodes wait for, with the lags of the analytical answer.
        latency_us: [num_nodes] the base; what nodes take that the network does not answer.
        learned: [num_nodes] bool, nodes whose latency is the network's (features: comm nodes keep their base).
        stretch: [num_nodes] what a node took beside other work over what it takes alone, as recorded.
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
    awaits_peers = (nodes["segment"] == Segment.PEER_WAIT).to_numpy()  # nobody answers for ranks that were not traced
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
