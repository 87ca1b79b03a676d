"""The fallback order: an explicit list of predictors, best first, and the intervals that are added afterwards.

order     op table of the user | measurements of the trace | network or analytical model
node      first latency that is not NaN; its source and reason come along
lags      of the first predictor that measured the timeline, else of the last one
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np

from gnnperf.core import Source
from gnnperf.graph import ExecutionGraph, Prediction, Predictor, only, uncovered, uncovered_ops
from gnnperf.hardware import ClusterSpec
from gnnperf.predict.trace_evidence import TracePredictor
from gnnperf.whatif import Edited

NUM_KEPT = 3  # the step on the traced and on the requested cluster, and one edit of it


Bounds = Callable[[Prediction, ClusterSpec], Prediction]  # adds intervals of nodes to a prediction, or removes them


@runtime_checkable
class FollowsEdits(Protocol):
    """A predictor that starts from measurements, which an edit takes along."""

    def on_edit(self, edited: Edited) -> Predictor:
        """The predictor for an edit of the step."""
        ...


@dataclass
class Once:
    """A model that runs once per graph and cluster, although several predictors of an order need its prediction."""

    model: Predictor  # the model
    _known: list[tuple[ExecutionGraph, ClusterSpec, Prediction]] = field(default_factory=list)

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        """The model's prediction; of the latest NUM_KEPT pairs of graph and cluster it is kept."""
        for known, on, prediction in self._known:
            if known is graph and on == cluster:
                return prediction
        prediction = self.model.predict(graph, cluster)
        self._known = [*self._known[1 - NUM_KEPT :], (graph, cluster, prediction)]
        return prediction


@dataclass(frozen=True)
class Predictors:
    """The only place where predictors are put in order."""

    order: tuple[Predictor, ...]  # best first; a predictor returns NaN for nodes outside its domain
    bounds: tuple[Bounds, ...] = ()  # applied to the merged prediction, in order

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        """Predict every node of `graph` with the first predictor that covers it.

        Raises:
            InputError: a predictor cannot be used for this graph or cluster.
        """
        prediction = merge([predictor.predict(graph, cluster) for predictor in self.order])
        for add in self.bounds:
            prediction = add(prediction, cluster)
        return prediction

    @property
    def trace(self) -> TracePredictor | None:
        """The measurements of the trace in the order; None: the prediction is blind."""
        return next((one for one in self.order if isinstance(one, TracePredictor)), None)

    def on_traced_cluster(self, graph: ExecutionGraph) -> Prediction | None:
        """Predict the same way for the cluster of the trace; None: the prediction is blind.

        An op table is of the device predicted for, so it has no say.
        """
        trace = self.trace
        if trace is None:
            return None
        return replace(self, order=self.order[self.order.index(trace) :]).predict(graph, trace.traced)

    def without_stalls(self) -> "Predictors":
        """The predictors for the same step without stalls."""
        order = tuple(replace(one, measured=one.measured.without_stalls()) if isinstance(one, TracePredictor) else one
                      for one in self.order)  # fmt: skip
        return replace(self, order=order)

    def on_edit(self, edited: Edited) -> "Predictors":
        """The predictors for an edit of the graph: measurements of the trace follow its nodes."""
        order = tuple(one.on_edit(edited) if isinstance(one, FollowsEdits) else one for one in self.order)
        return replace(self, order=order)


def merge(predictions: Sequence[Prediction]) -> Prediction:
    """One prediction from several of the same graph, best first."""
    merged = predictions[-1]
    for better in reversed(predictions[:-1]):
        merged = _over(better, merged)
    return replace(merged, uncovered_ops=uncovered_ops(merged.graph, merged.latency_us))


def _over(better: Prediction, worse: Prediction) -> Prediction:
    covers = ~np.isnan(better.latency_us)  # [num_nodes]
    means = None if better.mean_latency_us is None and worse.mean_latency_us is None else (
        np.where(covers, better.scheduled_us, worse.scheduled_us))  # fmt: skip
    first, second = only(better.isolated, covers), only(worse.isolated, ~covers)  # of one cluster
    both = None if first is None or second is None else replace(first, nodes=first.nodes | second.nodes)
    source = np.where(covers, better.source, worse.source)
    source[uncovered(worse.graph, np.where(covers, better.latency_us, worse.latency_us))] = Source.UNCOVERED
    timeline = worse if better.rank_start_us is None else better
    return replace(
        worse,
        latency_us=np.where(covers, better.latency_us, worse.latency_us),
        mean_latency_us=means,
        latency_low_us=np.where(covers, better.latency_low_us, worse.latency_low_us),
        latency_high_us=np.where(covers, better.latency_high_us, worse.latency_high_us),
        lag_us=timeline.lag_us,
        rank_start_us=timeline.rank_start_us,
        source=source,
        reason=np.where(covers, better.reasons, worse.reasons),
        warnings=tuple(dict.fromkeys((*better.warnings, *worse.warnings))),
        isolated=both or first or second,
    )
