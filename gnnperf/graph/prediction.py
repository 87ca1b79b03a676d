"""Prediction: what a predictor of latencies returns, and the protocol it follows."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import pandas as pd

from gnnperf.core import WORK_TYPES, NodeType, Segment, Source
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.hardware import ClusterSpec, Contention

REASONS = {  # where nothing states more
    Source.MEASURED: "measured",
    Source.TRACE: "measured in this step of the trace",
    Source.SCALED: "measured in this trace, scaled",
    Source.GNN: "alike in training",
    Source.GNN_CALIBRATED: "partly alike in training",
    Source.ANALYTIC: "no network in use",
    Source.DECLARED: "set by an edit",
    Source.UNCOVERED: "no model covers it",
    Source.CLASS_MEDIAN: "the median of its class on other steps",
}


@dataclass(frozen=True)
class Isolated:
    """Latencies that hold for an op by itself, and what it shares with others in a run."""

    # [num_nodes] bool, nodes whose latency is of the isolated op; that of others was measured next to whatever ran with
    # it
    nodes: np.ndarray
    contention: Contention  # what overlapping work takes from each other on the cluster predicted for


@dataclass(frozen=True)
class Prediction:
    """Latencies for the nodes of one graph."""

    graph: ExecutionGraph  # the graph predicted
    latency_us: np.ndarray  # [num_nodes] float64; NaN where uncovered, 0 for device and link nodes
    lag_us: np.ndarray  # [num_edges] float64; delay along each timed edge (0 where the edge has no lag class)
    source: np.ndarray  # [num_nodes] object array of schema.Source values
    analytic_latency_us: np.ndarray  # [num_nodes] the analytical prediction; NaN if it has none
    latency_low_us: np.ndarray  # [num_nodes] lower bound; NaN: nothing shows how far the prediction may be off
    latency_high_us: np.ndarray  # [num_nodes] upper bound, likewise
    uncovered_ops: dict[str, int]  # op name -> number of nodes without any latency. They never count as zero silently.
    warnings: tuple[str, ...] = ()  # sentences for the user
    # whose latencies the schedule has still to stretch where work overlaps; None: none
    isolated: Isolated | None = None
    # [num_nodes] what a node takes on average in steps of about the median time: what a schedule adds up; NaN where
    # uncovered; None: nothing tells it apart from `latency_us`
    mean_latency_us: np.ndarray | None = None
    # [num_nodes] object array of sentences, why a node has its source; None: what REASONS states of it
    reason: np.ndarray | None = None
    # rank -> measured start of the step after that of the earliest rank, where `lag_us` is measured, too; None: all
    # ranks start together
    rank_start_us: Mapping[int, float] | None = None

    def with_latencies(
        self,
        latency_us: np.ndarray,
        source: np.ndarray,
        mean_us: np.ndarray | None = None,
        reason: np.ndarray | None = None,
    ) -> "Prediction":
        """Other latencies [num_nodes] of the same nodes, with neither intervals nor warnings.

        Delays and contention stay; contention stretches nodes with a latency only.
        """
        unknown = np.full(self.graph.num_nodes, np.nan)
        return replace(
            self,
            latency_us=latency_us,
            source=source,
            mean_latency_us=mean_us,
            reason=reason,
            latency_low_us=unknown,
            latency_high_us=unknown.copy(),
            uncovered_ops=uncovered_ops(self.graph, latency_us),
            warnings=(),
            isolated=only(self.isolated, np.isfinite(latency_us)),
        )

    @cached_property
    def coded(self) -> pd.DataFrame:
        """[num_nodes] source and reason as categories, in order of occurrence."""
        source = coded(self.source)
        if self.reason is not None:
            return pd.DataFrame({"source": source, "reason": coded(self.reason)})
        return pd.DataFrame(
            {"source": source, "reason": source.cat.rename_categories(lambda one: REASONS[Source(one)])}
        )

    @property
    def reasons(self) -> np.ndarray:
        """[num_nodes] why each node has its source."""
        if self.reason is not None:
            return self.reason
        code, distinct = pd.factorize(self.source)
        return np.array([REASONS[Source(one)] for one in distinct], dtype=object)[code]

    @property
    def scheduled_us(self) -> np.ndarray:
        """[num_nodes] what a schedule adds up: means where they are given."""
        return self.latency_us if self.mean_latency_us is None else self.mean_latency_us


class Predictor(Protocol):
    """A predictor of latencies."""

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> "Prediction":
        """Predict every node of `graph` as if run on `cluster`."""
        ...


def only(isolated: Isolated | None, nodes: np.ndarray) -> Isolated | None:
    """`isolated`, of the `nodes` [num_nodes] bool."""
    return None if isolated is None else replace(isolated, nodes=isolated.nodes & nodes)


def in_place(prediction: "Prediction", latency_us: np.ndarray) -> "Prediction":
    """The prediction with latencies [num_nodes] as they were scheduled next to other work; NaN where it has none.

    Where what is usual is distinguished from what a schedule adds up, it is stretched as far as is usual.
    """
    known, predicted_us = ~np.isnan(prediction.latency_us), prediction.scheduled_us
    takes = known & (predicted_us > 0)
    factor = np.divide(latency_us, predicted_us, out=np.ones(len(known)), where=takes)
    means_us = prediction.mean_latency_us
    if means_us is not None and prediction.isolated is not None:
        moves = (prediction.graph.nodes["node_type"] == NodeType.COLLECTIVE).to_numpy()
        factor = prediction.isolated.contention.usual_stretch(moves, np.nan_to_num(prediction.latency_us), factor)
    return replace(
        prediction,
        latency_us=np.where(known, latency_us, np.nan) if means_us is None else prediction.latency_us * factor,
        mean_latency_us=None if means_us is None else np.where(known, latency_us, np.nan),
        latency_low_us=prediction.latency_low_us * factor,
        latency_high_us=prediction.latency_high_us * factor,
        isolated=None,
    )


def uncovered(graph: ExecutionGraph, latency_us: np.ndarray) -> np.ndarray:
    """[num_nodes] bool: work without a latency."""
    unknown = np.isnan(latency_us)
    return unknown & graph.nodes["node_type"].isin(list(WORK_TYPES)).to_numpy() if unknown.any() else unknown


def op_names(nodes: pd.DataFrame) -> pd.Series:
    """[num_nodes] op names as people read them: torch's `record_param_comms` has the name of its collective."""
    names, calls = nodes["op_name"], (nodes["op_name"] == "record_param_comms").to_numpy()
    if not calls.any():
        return names
    of_call = nodes["collective"].astype(object).fillna("collective call")
    return names.astype(object).mask(calls, of_call).astype("category")


def uncovered_ops(graph: ExecutionGraph, latency_us: np.ndarray) -> dict[str, int]:
    """Op name -> number of its nodes without a latency, most frequent first; peer waits are named as such."""
    unknown = uncovered(graph, latency_us)
    if not unknown.any():
        return {}
    missing = graph.nodes.loc[unknown, ["op_name", "event_name", "segment"]]
    names = missing["op_name"].astype(object).fillna(missing["event_name"].astype(object)).fillna("(unnamed)")
    waits = (missing["segment"] == Segment.PEER_WAIT).to_numpy()
    named = np.where(waits, "peer_wait", names.to_numpy(dtype=object))
    return dict(sorted(Counter(map(str, named)).items(), key=lambda item: (-item[1], item[0])))


def coded(values: np.ndarray) -> pd.Series:
    """A category column of [n] objects, in the order in which they occur; None is unknown."""
    code, distinct = pd.factorize(values)
    return pd.Series(pd.Categorical.from_codes(code, pd.Index([str(one) for one in distinct], dtype="str")))
