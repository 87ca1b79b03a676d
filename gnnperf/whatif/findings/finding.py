"""The step that rules look at, what a rule suspects, and the finding once an edit gives the gain of a remedy."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

import numpy as np

from gnnperf.core import InputError, NodeType, Relation, Segment
from gnnperf.graph import ExecutionGraph, Predictor, op_names
from gnnperf.hardware import ClusterSpec
from gnnperf.schedule import Schedule, fit_medians, measured_latencies, schedule
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
        """[num_nodes] bool: work of hosts; waiting for ranks that were not traced is none."""
        return (self.kind == NodeType.HOST) & (self.graph.nodes["segment"] != Segment.PEER_WAIT).to_numpy()

    @cached_property
    def host_work(self) -> np.ndarray:
        """[num_nodes] bool: the same without stalls, which scale with no host."""
        return self.on_host if self.stall_us is None else self.on_host & (self.stall_us == 0)

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
        named = op_names(nodes).astype(object).fillna(nodes["event_name"].astype(object)).fillna("(unnamed)")
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


# A measured step as rules look at it, and step times of its edits.
#
# Measurements stay. Where an edit leaves a latency unknown (an op of another shape), it is the measured latency of the
# node it came from, scaled by the ratio that the predictor gives: measured x predicted after / predicted before.


def measured_step(
    graph: ExecutionGraph,
    num_unrolled: int,
    cluster: ClusterSpec | None = None,
    predictor: Predictor | None = None,
    analytic_us: np.ndarray | None = None,
) -> Observed:
    """One measured step.

    Args:
        graph: one step, with labels; nodes and gaps that were not measured take the median of their class.
        num_unrolled: 1: the step time is a makespan; more: a period.
        cluster: that it ran on; None unknown.
        predictor: of latencies that an edit leaves unknown; None: such edits are refused.
        analytic_us: [num_nodes] of the analytical model for the same nodes; None: not requested.
    """
    measured_us, measured_lag_us = measured_latencies(graph)
    latency_us, lag_us = np.nan_to_num(measured_us), np.nan_to_num(measured_lag_us)
    known = replace(graph, nodes=graph.nodes.assign(latency_us=latency_us), edges=graph.edges.assign(lag_us=lag_us))
    medians = fit_medians(known, np.ones(known.num_nodes, dtype=bool))

    def scheduled(of: ExecutionGraph, latency_us: np.ndarray) -> Schedule:
        """With the gaps that were measured, medians of their class on edges that an edit has drawn."""
        lag_us = of.edges["lag_us"].to_numpy()
        lag_us = np.nan_to_num(np.where(np.isnan(lag_us), medians.lag_us(of), lag_us))
        return schedule(of, latency_us, lag_us, num_unrolled=num_unrolled)

    def step_time_of(edited: Edited) -> float:
        filled = _filled(edited, known, cluster, predictor)
        latency_us = np.nan_to_num(filled.nodes["latency_us"].to_numpy())
        return scheduled(filled, edited.latency_change.of(latency_us)).step_time_us

    before = scheduled(known, latency_us)
    predicted_us = np.full(graph.num_nodes, np.nan) if analytic_us is None else analytic_us
    return Observed(known, latency_us, ~np.isnan(measured_us), predicted_us, before, before.step_time_us,
                    Basis.MEASURED, cluster, step_time_of)  # fmt: skip


def _filled(
    edited: Edited, known: ExecutionGraph, cluster: ClusterSpec | None, predictor: Predictor | None
) -> ExecutionGraph:
    """The edited graph with a latency for what the edit left without one.

    Raises InputError: the predictor does not cover one of its nodes.
    """
    nodes = edited.graph.nodes
    open_ = nodes["latency_us"].isna().to_numpy() & edited.touched
    if not open_.any():
        return edited.graph
    if cluster is not None and predictor is not None:
        before_us, after_us = (predictor.predict(graph, cluster).latency_us for graph in (known, edited.graph))
        own_us = before_us[edited.came_from]
        ratio = np.divide(after_us, own_us, out=np.full(len(own_us), np.nan), where=own_us > 0)
        scaled_us = known.nodes["latency_us"].to_numpy()[edited.came_from] * ratio
        nodes = nodes.assign(latency_us=nodes["latency_us"].mask(open_, scaled_us))
    missing = ~np.isfinite(nodes["latency_us"].to_numpy()) & open_
    if missing.any():
        names = sorted(set(nodes["op_name"].astype(str)[missing]))
        raise InputError(f"no source has the latency of {', '.join(names[:3])}", where=f"graph {known.name!r}")
    return replace(edited.graph, nodes=nodes)
