"""Measurements of the trace as a predictor: as measured where nothing changed, else scaled by a model's ratio.

node                                       latency                                          source
not touched, on the traced cluster         measured                                         trace
touched by an edit, or on other hardware   measured x model after / model before            trace
... where the model has another form then  measured x ratio of its bytes                    trace
... with a closed form, on no sibling GPU  model after x retained(measured / model before)  trace
the same, and the model does not know it   measured x ratio of its family's modeled nodes,  scaled
                                           without any that of memory or link bandwidths
a transfer that now leaves its node        model after                                      analytic, gnn
host work on another host                  measured x ratio of single-thread speeds         trace
any of them, like calls measured there     times what these are off by (predict.similar)    as before
a stall, the wait for untraced ranks       measured                                         trace
never measured                             NaN: the next predictor of the order             -

Delays that no modeled constraint explains, lags and the starts of ranks stay as measured.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from gnnperf.analytic import has_forms
from gnnperf.core import NodeType, OpFamily, Relation, Segment, Source
from gnnperf.graph import REASONS, ExecutionGraph, Prediction, Predictor, measured_families, only
from gnnperf.hardware import ClusterSpec, machines_of
from gnnperf.predict.ratios import retained, siblings
from gnnperf.schedule import MeasuredStep
from gnnperf.whatif import Edited, ends

OTHER_STEPS = "measured in another step of this trace"
BY_MODEL = "measured in this trace, times the ratio that the model predicts for the change"
BY_HOST = "measured in this trace, times the ratio of the hosts' single-thread speeds"
BY_FAMILY = "measured in this trace, times the ratio of modeled nodes of its family"
BY_LINK = "predicted for the link between nodes; this trace measured the transfer within a node"
SET = "set by an edit from a measurement"
SHORT = 2.0  # times the launch floor: a kernel that does little but start
ON_DEVICE = (NodeType.COMPUTE, NodeType.MEMORY)
PRODUCTS = (OpFamily.GEMM, OpFamily.CONV, OpFamily.ATTENTION)  # more of them may fill a GPU better
FORMED = (OpFamily.GEMM, OpFamily.CONV, OpFamily.ELEMENTWISE, OpFamily.NORM, OpFamily.SOFTMAX)


@dataclass(frozen=True)
class TracePredictor:
    """Measured latencies of one step, moved to edits of it and to other hardware."""

    measured: MeasuredStep  # the step
    traced: ClusterSpec  # the cluster that it was measured on
    model: Predictor  # predicts before and after a change; only its ratio is used
    edited: Edited | None = None  # the edit whose graph is predicted; None: the measured step itself
    # what calls that were measured on another device change there; None: there are none
    correct: Callable[[Prediction, ClusterSpec], Prediction] | None = None

    def on_edit(self, edited: Edited) -> "TracePredictor":
        """The predictor for an edit of the measured step."""
        return replace(self, edited=edited)

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        """Latencies of nodes that were measured, of the measured step or the edited one; NaN elsewhere."""
        # [num_nodes] each: the measured node that a node is or is a copy of; whether the edit touched it
        came_from, touched = np.arange(graph.num_nodes), np.zeros(graph.num_nodes, dtype=bool)
        if self.edited is not None:
            came_from, touched = self.edited.came_from, self.edited.touched
        moved = cluster != self.traced
        changes = moved or bool(touched.any())
        measured_us = (self._with_transfers_us if changes else self.measured.latency_us)[came_from]  # [num_nodes]
        known = np.isfinite(measured_us)
        after = self.model.predict(graph, cluster)
        # Waits for untraced peers and stalls scale with no processor.
        stays = (graph.nodes["segment"] == Segment.PEER_WAIT).to_numpy() | self.measured.stalled[came_from]
        changed = known & (touched | moved) & ~stays
        ratio = np.ones(len(known))
        source, reason = (np.full(len(known), one, dtype=object) for one in (Source.TRACE, self._as_measured))
        if changed.any():
            by_model = _ratio(after.latency_us, self._before_us[came_from], changed)
            if not moved:
                by_model = _with_bytes(by_model, graph.nodes, self.measured.graph.nodes["bytes"].to_numpy()[came_from])
            by_host = changed & ~touched & (graph.nodes["node_type"] == NodeType.HOST).to_numpy()
            by_family = family_ratios(graph.nodes, by_model, measured_us, changed & ~by_host)
            on_device = graph.nodes["node_type"].isin(ON_DEVICE).to_numpy()
            by_bound = unmodeled_ratio(measured_us, self.traced, cluster)
            by_family = np.where(np.isnan(by_family) & on_device, by_bound, by_family)
            on_link = (graph.nodes["node_type"] == NodeType.COLLECTIVE).to_numpy()
            by_link = self._by_link(graph, cluster, came_from)
            by_family = np.where(np.isnan(by_family) & on_link, by_link, by_family)
            by_family = np.nan_to_num(by_family, nan=1.0)  # nothing that was modeled changed: as measured
            ratio = np.where(np.isfinite(by_model), by_model, by_family)
            before, other = self.traced.device, cluster.device
            if not siblings(before, other) and has_forms(before) and has_forms(other):
                formed = np.isfinite(by_model) & graph.nodes["family"].isin(FORMED).to_numpy()
                ratio[formed] *= _lost(measured_us[formed], self._before_us[came_from][formed])
            ratio[by_host] = 1.0 / host_ratio(self.traced, cluster)
            ratio[~changed] = 1.0
            guessed = changed & ~by_host & ~np.isfinite(by_model) & (ratio != 1.0)
            source[guessed] = Source.SCALED
            reason[changed], reason[by_host], reason[guessed] = BY_MODEL, BY_HOST, BY_FAMILY
            reason[changed & (ratio == 1.0)] = self._as_measured
        latency_us = measured_us * ratio
        outer = changed & self._leaves_its_node(graph, cluster, came_from) & np.isfinite(after.latency_us)
        latency_us[outer], source[outer], reason[outer] = after.latency_us[outer], after.source[outer], BY_LINK
        given_us = self._given_us(graph, came_from, touched)
        given = np.isfinite(given_us)
        latency_us[given], source[given], reason[given] = given_us[given], Source.TRACE, SET
        source[~np.isfinite(latency_us)] = Source.UNCOVERED
        result = replace(
            after.with_latencies(latency_us, source, reason=reason),
            lag_us=self.measured.edge_lags_us(graph, came_from),
            isolated=only(after.isolated, ~np.isfinite(latency_us) | outer),
            warnings=after.warnings,
            rank_start_us=self.measured.rank_start_us,
        )
        if self.correct is None or cluster.device.name == self.traced.device.name:
            return result
        return self.correct(result, cluster)

    @property
    def _as_measured(self) -> str:
        return OTHER_STEPS if self.measured.from_other_steps else REASONS[Source.TRACE]

    @cached_property
    def _before_us(self) -> np.ndarray:
        """[num_nodes of the measured step] what the model predicts for the traced cluster."""
        return self.model.predict(self.measured.graph, self.traced).latency_us

    @cached_property
    def _with_transfers_us(self) -> np.ndarray:
        """[num_nodes of the measured step] latencies; what is measured as one is divided into wait and transfer.

        Of ranks that wait for untraced peers, only the sum is measured. The transfer takes what the model predicts for
        the traced cluster, at most the shortest such sum.
        """
        result, (part, transfer) = self.measured.latency_us.copy(), ends(self.measured.graph, Relation.JOINS)
        of_peers = (self.measured.graph.nodes["segment"] == Segment.PEER_WAIT).to_numpy()[part]
        part, transfer = part[of_peers], transfer[of_peers]
        moving_us = np.nan_to_num(self._before_us)
        np.minimum.at(moving_us, transfer, result[part])
        result[transfer] = moving_us[transfer]
        result[part] -= moving_us[transfer]
        return result

    def _by_link(self, graph: ExecutionGraph, cluster: ClusterSpec, came_from: np.ndarray) -> np.ndarray:
        """[num_nodes] ratio of transfers of unknown size: bandwidth between the ranks, and bytes that a ring moves."""
        rates, moved = [], []
        before = self.measured.graph
        for one, size, ranks in ((self.traced, before.nodes["group_size"].to_numpy()[came_from], before.world_size),
                                 (cluster, graph.nodes["group_size"].to_numpy(), graph.world_size)):  # fmt: skip
            rates.append((one.intra if ranks <= one.ranks_per_node else one.inter).sustained_bytes_per_s)
            moved.append(1.0 - 1.0 / np.maximum(size, 2))
        return moved[1] / moved[0] * rates[0] / rates[1]

    def _leaves_its_node(self, graph: ExecutionGraph, cluster: ClusterSpec, came_from: np.ndarray) -> np.ndarray:
        """[num_nodes] whether a transfer crosses the link between nodes, and that of the trace did not."""
        outer = []
        for one, on in ((self.measured.graph, self.traced), (graph, cluster)):
            size, first, stride = (one.nodes[name].to_numpy() for name in ("group_size", "group_first", "group_stride"))
            crosses = (size < 0) | (machines_of(size, first, stride, on.ranks_per_node) > 1)
            is_transfer = (one.nodes["node_type"] == NodeType.COLLECTIVE).to_numpy()
            outer.append(is_transfer & (one.world_size > on.ranks_per_node) & crosses)
        return outer[1] & ~outer[0][came_from]

    def _given_us(self, graph: ExecutionGraph, came_from: np.ndarray, touched: np.ndarray) -> np.ndarray:
        """[num_nodes] measured latencies that an edit put in place of the step's own; NaN: none."""
        now_us = graph.nodes["latency_us"].to_numpy(np.float64)
        own_us = self.measured.graph.nodes["latency_us"].to_numpy(np.float64)[came_from]
        return np.where(touched & np.isfinite(now_us) & (now_us != own_us), now_us, np.nan)


def _lost(measured_us: np.ndarray, before_us: np.ndarray) -> np.ndarray:
    """[n] factor of what the closed form missed on the traced GPU and does not miss on another one."""
    known = (measured_us > 0) & (before_us > 0)
    residual = np.log(np.divide(measured_us, before_us, out=np.ones(len(known)), where=known))
    return np.exp(retained(residual) - residual)


def _ratio(after_us: np.ndarray, before_us: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """[num_nodes] after / before where both are above 0; 1 where both are 0; NaN unknown."""
    usable = changed & (after_us > 0) & (before_us > 0)
    ratio = np.full(len(changed), np.nan)
    ratio[usable] = after_us[usable] / before_us[usable]
    ratio[changed & (after_us == 0) & (before_us == 0)] = 1.0
    return ratio


def _with_bytes(ratio: np.ndarray, nodes: pd.DataFrame, before: np.ndarray) -> np.ndarray:
    """[num_nodes] the ratio; of its bytes where work bound by memory would take less time for more of them.

    Another form holds for the new shapes then, and the measured one for those before. `before` [num_nodes]: bytes.
    """
    bytes_ratio = np.divide(nodes["bytes"].to_numpy(np.float64), before, out=np.ones(len(ratio)), where=before > 0)
    contradicts = ((ratio < 1) & (bytes_ratio > 1)) | ((ratio > 1) & (bytes_ratio < 1) & (bytes_ratio > 0))
    moves = ((nodes["node_type"] == NodeType.COMPUTE) & ~nodes["family"].isin(PRODUCTS)).to_numpy()
    return np.where(contradicts & moves, bytes_ratio, ratio)


def family_ratios(nodes: pd.DataFrame, ratio: np.ndarray, weight_us: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """[num_nodes] time-weighted geometric mean of known ratios: of the family, else of the node type, else NaN.

    A kernel of an unknown op has the family that its name shows. `ratio` [num_nodes] is NaN where no model covers a
    node, `weight_us` [num_nodes] is measured, `changed` [num_nodes] bool marks nodes that the change concerns.
    """
    result = np.full(len(ratio), np.nan)
    known = changed & np.isfinite(ratio) & (weight_us > 0)
    log, us = np.log(np.where(known, ratio, 1.0)), np.where(known, weight_us, 0.0)
    keys = pd.DataFrame({"kind": nodes["node_type"].array, "family": measured_families(nodes), "log": log, "us": us})
    keys["weighted"] = keys["log"] * keys["us"]
    for columns in (["kind"], ["kind", "family"]):  # the finer one replaces the coarser one
        sums = keys.groupby(columns, observed=True, dropna=False)[["weighted", "us"]].transform("sum")
        has = (sums["us"] > 0).to_numpy()
        result[has] = np.exp((sums["weighted"] / sums["us"]).to_numpy()[has])
    return result


def unmodeled_ratio(measured_us: np.ndarray, traced: ClusterSpec, cluster: ClusterSpec) -> np.ndarray:
    """[num_nodes] ratio of the bound of kernels that nothing else is known of: launch where short, else bandwidth."""
    floors = traced.device.launch_floor_us, cluster.device.launch_floor_us
    by_launch = floors[1] / floors[0] if min(floors) > 0 else 1.0
    short = measured_us <= SHORT * floors[0]
    by_bandwidth = traced.device.memory_bandwidth_bytes_per_s / cluster.device.memory_bandwidth_bytes_per_s
    return np.where(short, by_launch, by_bandwidth)


def host_ratio(traced: ClusterSpec, cluster: ClusterSpec) -> float:
    """Speed of the hosts of `cluster` relative to the traced ones; both are relative to one host."""
    return cluster.host_speed / traced.host_speed
