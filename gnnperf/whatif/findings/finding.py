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
    """A remedy as edits of the graph."""

    edits: tuple[Edit, ...]  # made one after the other
    text: str  # what they do, in words or as an entry of `whatif`
    at_most: bool = False  # they stand for more than a remedy can do: the gain is a bound
    # of the step with the remedy, where no edit of the graph stands for it; None: by the edits
    step_time_us: float | None = None


def scaling(nodes: np.ndarray, factors: np.ndarray | float, text: str, *, at_most: bool = False) -> Way:
    """Nodes [n] take a multiple of their latency, `factors` [n] or one for all."""
    given = np.broadcast_to(np.asarray(factors, dtype=float), nodes.shape)
    return Way((ScaleNodes(tuple(nodes.tolist()), tuple(given.tolist())),), text, at_most)


@dataclass(frozen=True)
class Suspect:
    """The result of a rule."""

    rule: str  # its name
    cause: str  # one sentence
    evidence: tuple[str, ...]  # sentences with figures
    remedy: str  # what to do about it
    ways: tuple[Way, ...] = ()  # the remedy as edits, the closest first; (): none gives its gain
    unpriced: str = ""  # why no edit gives the gain, where `ways` is ()


@dataclass(frozen=True)
class Finding:
    """A bottleneck of the step."""

    rule: str  # rule, cause, evidence, remedy: of the rule
    cause: str
    evidence: tuple[str, ...]
    remedy: str
    basis: Basis  # whose latencies this is about
    edit: str  # the edit whose gain this is ("" none)
    gain_us: float | None  # by how much the step is shorter with the edit; None unknown
    gain_share: float | None  # of the step time; None unknown
    at_most: bool  # the gain is a bound
    unknown: tuple[str, ...]  # assumptions of the edit, or why the gain is not known


@dataclass(frozen=True)
class Observed:
    """One step with its latencies scheduled, by measurement or by prediction."""

    graph: ExecutionGraph  # one step; edits start from the `latency_us` of its nodes
    latency_us: np.ndarray  # [num_nodes] as scheduled, 0 where unknown
    known: np.ndarray  # [num_nodes] bool: where it is not unknown
    predicted_us: np.ndarray  # [num_nodes] of the analytical model for the same nodes; NaN where it has none
    schedule: Schedule  # of these latencies
    step_time_us: float  # of this schedule; period, makespan or window
    basis: Basis  # whose latencies these are
    cluster: ClusterSpec | None  # devices and links; None unknown
    step_time_of: Callable[[Edited], float]  # the step time of an edit of `graph`, latencies given as those of the step
    stall_us: np.ndarray | None = None  # [num_nodes] time of measured stalls; None unknown
    without_stalls_us: float | None = None  # the step time without them; None unknown

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
