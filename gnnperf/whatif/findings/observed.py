"""The step that rules look at: what ran when, by measurement or by prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gnnperf.core import NodeType, Relation
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import ClusterSpec
from gnnperf.schedule import Schedule
from gnnperf.whatif.edit import Edited
from gnnperf.whatif.findings.finding import Basis


@dataclass(frozen=True)
class Observed:
    """One step with its latencies scheduled.

    Attributes:
        graph: one step; `latency_us` of its nodes is what edits start from.
        latency_us: [num_nodes] as scheduled, 0 where unknown.
        known: [num_nodes] bool: where it is not unknown.
        predicted_us: [num_nodes] what the analytical model says of the same nodes; NaN where it says nothing.
        schedule: of these latencies.
        step_time_us: of this schedule; period, makespan or window.
        basis: whose latencies these are.
        cluster: devices and links; None unknown.
        step_time_of: the step time of an edit of `graph`, latencies given as those of the step.
        stall_us: [num_nodes] time of measured stalls; None unknown.
        without_stalls_us: the step time without them; None unknown.
    """

    graph: ExecutionGraph
    latency_us: np.ndarray
    known: np.ndarray
    predicted_us: np.ndarray
    schedule: Schedule
    step_time_us: float
    basis: Basis
    cluster: ClusterSpec | None
    step_time_of: Callable[[Edited], float]
    stall_us: np.ndarray | None = None
    without_stalls_us: float | None = None

    @cached_property
    def kind(self) -> np.ndarray:
        """[num_nodes] NodeType as text."""
        return self.graph.nodes["node_type"].astype(str).to_numpy(dtype=object)

    @cached_property
    def rank(self) -> np.ndarray:
        """[num_nodes] -1: none."""
        return self.graph.nodes["rank"].to_numpy()

    @cached_property
    def on_host(self) -> np.ndarray:
        """[num_nodes] bool."""
        return self.kind == NodeType.HOST

    @cached_property
    def on_device(self) -> np.ndarray:
        """[num_nodes] bool: kernels and copies; on a CPU the ops themselves."""
        return np.isin(self.kind, [NodeType.COMPUTE, NodeType.MEMORY])

    @cached_property
    def joins(self) -> np.ndarray:
        """[2, n] (arrival of a rank, transfer that it takes part in)."""
        edges = self.graph.edges
        return edges.loc[(edges["relation"] == Relation.JOINS).to_numpy(), ["src", "dst"]].to_numpy().T

    @cached_property
    def op(self) -> np.ndarray:
        """[num_nodes] op name as text, the event's where there is no op."""
        nodes = self.graph.nodes
        named = nodes["op_name"].astype(object).fillna(nodes["event_name"].astype(object)).fillna("(unnamed)")
        return named.astype(str).to_numpy(dtype=object)

    def spans(self, nodes: np.ndarray) -> np.ndarray:
        """[n, 2] start and end of nodes [n]."""
        return np.column_stack([self.schedule.start_us[nodes], self.schedule.end_us[nodes]])
