"""The step that rules look at, what a rule suspects, and the finding once an edit gives the gain of a remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np

from gnnperf.core import NodeType, Relation, Segment
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import ClusterSpec
from gnnperf.schedule import Schedule
from gnnperf.whatif.declared import ScaleNodes
from gnnperf.whatif.edit import ON_DEVICE, Edit, Edited, ends

SUSPICIOUS = 0.05  # share of the step, mean over ranks, below which a rule suspects nothing


class Basis(StrEnum):
    """Whose latencies a finding is about."""

    MEASURED = "measured"
    PREDICTED = "predicted"


@dataclass(frozen=True)
class Way:
    """A remedy as edits of the graph.

    Attributes:
        edits: made one after the other.
        text: what they do, in words or as an entry of `whatif`.
        at_most: they stand for more than a remedy can do: the gain is a bound.
        step_time_us: of the step with the remedy, where no edit of the graph stands for it; None: by the edits.
    """

    edits: tuple[Edit, ...]
    text: str
    at_most: bool = False
    step_time_us: float | None = None


def scaling(nodes: np.ndarray, factors: np.ndarray | float, text: str, *, at_most: bool = False) -> Way:
    """Nodes [n] take a multiple of their latency, `factors` [n] or one for all."""
    given = np.broadcast_to(np.asarray(factors, dtype=float), nodes.shape)
    return Way((ScaleNodes(tuple(nodes.tolist()), tuple(given.tolist())),), text, at_most)


@dataclass(frozen=True)
class Suspect:
    """The result of a rule.

    Attributes:
        rule: its name.
        cause: one sentence.
        evidence: sentences with figures.
        remedy: what to do about it.
        ways: the remedy as edits, the closest first; (): none gives its gain.
        unpriced: why no edit gives the gain, where `ways` is ().
    """

    rule: str
    cause: str
    evidence: tuple[str, ...]
    remedy: str
    ways: tuple[Way, ...] = ()
    unpriced: str = ""


@dataclass(frozen=True)
class Finding:
    """A bottleneck of the step.

    Attributes:
        rule, cause, evidence, remedy: of the rule.
        basis: whose latencies this is about.
        edit: the edit whose gain this is ("" none).
        gain_us: by how much the step is shorter with the edit; None unknown.
        gain_share: of the step time; None unknown.
        at_most: the gain is a bound.
        unknown: assumptions of the edit, or why the gain is not known.
    """

    rule: str
    cause: str
    evidence: tuple[str, ...]
    remedy: str
    basis: Basis
    edit: str
    gain_us: float | None
    gain_share: float | None
    at_most: bool
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class Observed:
    """One step with its latencies scheduled, by measurement or by prediction.

    Attributes:
        graph: one step; edits start from the `latency_us` of its nodes.
        latency_us: [num_nodes] as scheduled, 0 where unknown.
        known: [num_nodes] bool: where it is not unknown.
        predicted_us: [num_nodes] of the analytical model for the same nodes; NaN where it has none.
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
        return np.isin(self.kind, ON_DEVICE)

    @cached_property
    def joins(self) -> np.ndarray:
        """[2, n] (arrival of a rank, transfer that it takes part in)."""
        return ends(self.graph, Relation.JOINS)

    @cached_property
    def op(self) -> np.ndarray:
        """[num_nodes] op name as text, the event's where there is no op."""
        nodes = self.graph.nodes
        named = nodes["op_name"].astype(object).fillna(nodes["event_name"].astype(object)).fillna("(unnamed)")
        return named.astype(str).to_numpy(dtype=object)

    @cached_property
    def where(self) -> np.ndarray:
        """[num_nodes] the op as text, or the gap before it."""
        gap = (self.graph.nodes["segment"] == Segment.T1).to_numpy()
        return np.where(gap, "the gap before ", "") + self.op

    @property
    def num_ranks(self) -> int:
        """In the graph, at least 1."""
        return max(len(self.graph.ranks), 1)

    def spans(self, nodes: np.ndarray) -> np.ndarray:
        """[n, 2] start and end of nodes [n]."""
        return np.column_stack([self.schedule.start_us[nodes], self.schedule.end_us[nodes]])
