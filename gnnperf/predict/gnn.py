"""The trained network as a predictor: by itself where it knows the op, and blended with the analytical model.

latency = network^weight x analytical^(1 - weight)         weight: gnnperf.gnn.trust

weight     source            latency
1          gnn               the network's
above 0    gnn_calibrated    the network's or a blend, where training lacks the op or the program
0          analytic          the analytical model's
           uncovered         none; the reason states why
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch_geometric.data import HeteroData

from gnnperf import gnn
from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import NodeType, Relation, Segment, Source
from gnnperf.graph import (
    INTER,
    INTRA,
    REASONS,
    EdgeList,
    ExecutionGraph,
    Prediction,
    Predictor,
    concat_tables,
    node_table,
    uncovered,
)
from gnnperf.hardware import ClusterSpec
from gnnperf.predict.request import Mode

# Links that messages cross on the requested cluster, which may divide the ranks over other nodes than the trace's.
#
# traced on one host    comm -> intra                 requested on two    comm -> inter
#
# What a link takes follows from the cluster; which link a message crosses is an edge of the graph, laid when the trace
# was read. A network that is given the new link's base and the old link's features corrects the one by what it knows of
# the other.


def with_links_of(graph: ExecutionGraph, cluster: ClusterSpec) -> ExecutionGraph:
    """The graph with the crossings of the cluster; a link that it does not have yet is its last node.

    Groups larger than what a node of the cluster holds cross the link between nodes, as do groups that nothing knows
    where there are several nodes. A graph whose card lacks its hosts stays as it was trained on.
    """
    names = graph.nodes["op_name"].astype(object).to_numpy()
    is_link = (graph.nodes["node_type"] == NodeType.LINK).to_numpy()
    links = {str(names[place]): int(place) for place in np.flatnonzero(is_link)}
    comm = np.flatnonzero((graph.nodes["node_type"] == NodeType.COMM).to_numpy())
    if graph.placement is None or INTRA not in links or not len(comm):
        return graph
    size = graph.nodes["group_size"].to_numpy()[comm]
    leaves = (size < 0) | (size > cluster.ranks_per_node)  # [num_comm], by the rule of `graph.hardware_nodes`
    leaves &= graph.world_size > cluster.ranks_per_node
    if INTER not in links and not leaves.any():
        return graph
    if INTER not in links:
        links[INTER], edges = graph.num_nodes, EdgeList()
        devices = np.flatnonzero((graph.nodes["node_type"] == NodeType.DEVICE).to_numpy())
        edges.add(np.full(len(devices), graph.num_nodes), devices, Relation.CONNECTS)
        nodes = [graph.nodes, node_table(1, node_type=str(NodeType.LINK), op_name=INTER, node_id=graph.num_nodes)]
        graph = replace(graph, nodes=concat_tables(nodes), edges=concat_tables([graph.edges, edges.table()]))
    src, dst = graph.edges["src"].to_numpy(), graph.edges["dst"].to_numpy(copy=True)
    crossed = np.full(graph.num_nodes, -1, dtype=np.int64)  # by comm node
    crossed[comm] = np.where(leaves, links[INTER], links[INTRA])
    own = (graph.edges["relation"] == Relation.CROSSES).to_numpy() & (crossed[src] >= 0)
    dst[own] = crossed[src[own]]
    return replace(graph, edges=graph.edges.assign(dst=dst))


OP = gnn.FIELDS.index("op_name")


@dataclass(frozen=True)
class Predicted:
    """What the network predicts for every node, whatever ground it has; all but `latency_us`, `weight` [num_nodes]."""

    # [2, num_nodes] usual and mean latency; 0 for device and link nodes, NaN where the peers of a wait were not traced
    latency_us: np.ndarray
    known_op: np.ndarray  # whether training had the op in a node of that type
    silent: np.ndarray  # whether that is the analytical prediction, because the head has no output
    floored: np.ndarray  # whether it starts from a typed floor for want of an analytical prediction
    weight: np.ndarray  # [2, num_nodes] of the network against the analytical model (gnnperf.gnn.trust), usual and mean
    reason: np.ndarray  # object, why the weight is not more, or that training has op and program

    @property
    def familiar(self) -> np.ndarray:
        """[num_nodes] bool, whether training has op and program; other nodes have intervals of left-out programs."""
        result: np.ndarray = self.reason == REASONS[Source.GNN]
        return result


class GnnPredictor:
    """latency = base * exp(residual), base being the analytical prediction or the typed floor of the checkpoint."""

    def __init__(self, checkpoint: gnn.Checkpoint) -> None:
        self.checkpoint, self.analytic = checkpoint, AnalyticPredictor(checkpoint.constants)

    @cached_property
    def network(self) -> gnn.TypedGNN:
        """The network, built once."""
        return self.checkpoint.network()

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        """Latency of every node whose op, in a node of that type, was measured in training; NaN elsewhere.

        Raises InputError: an edge or link class that the network does not know.
        """
        base = self.analytic.predict(graph, cluster)
        given = self.given(graph, cluster, base)
        latency_us, mean_us = np.where(given.known_op, given.latency_us, np.nan)  # [num_nodes] each
        estimates = np.where(given.silent, Source.ANALYTIC, Source.GNN)  # what a silent head leaves is called so
        source = np.where(np.isfinite(latency_us), estimates, Source.UNCOVERED).astype(object)
        return base.with_latencies(latency_us, source, mean_us)

    def given(
        self, graph: ExecutionGraph, cluster: ClusterSpec, base: Prediction, moved_us: np.ndarray | None = None
    ) -> Predicted:
        """What the network predicts for every node of one step; `moved_us` as in gnn.features."""
        known, over = self.checkpoint, with_links_of(graph.for_predictors(), cluster)
        if moved_us is not None:  # a link that is added was not measured
            moved_us = np.append(moved_us, np.full(over.num_nodes - graph.num_nodes, np.nan))
        data = gnn.features(over, cluster, _padded(base, over), known.vocabulary, known.floors, None, moved_us)
        return self.of_data(known.normalizer.apply(data), graph, cluster, base)

    @torch.no_grad()
    def of_data(self, data: HeteroData, graph: ExecutionGraph, cluster: ClusterSpec, base: Prediction) -> Predicted:
        """The same from normalized features of the step."""
        latency_us, base_us, known_op = _by_row(data, gnn.outputs_of(self.network, data), graph.num_nodes)
        latency_us[:, (graph.nodes["segment"] == Segment.PEER_WAIT).to_numpy()] = np.nan
        weight, reason = self.checkpoint.trust.of(graph.nodes, cluster.device.name, known_op, base_us)
        heads = [node_type for node_type in gnn.WORK if self.network.is_silent(node_type)]
        silent = graph.nodes["node_type"].isin(heads).to_numpy() & (latency_us[0] == base.latency_us)
        return Predicted(latency_us, known_op, silent, np.isnan(base.latency_us), weight, reason)


def _by_row(
    data: HeteroData, estimates: Mapping[str, gnn.NodeOutput], num_nodes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[2, num_nodes] latencies, [num_nodes] bases, [num_nodes] bool, whether the op is known; hardware is."""
    result, base_us, known_op = np.zeros((2, num_nodes)), np.zeros(num_nodes), np.ones(num_nodes, dtype=bool)
    for node_type in gnn.WORK:
        store, estimate, row = data[node_type], estimates[node_type], data[node_type].node_id.numpy()
        both = torch.stack([estimate.residual, estimate.scheduled_residual]).double().exp() * store.base_us  # [2, n]
        result[:, row], base_us[row] = both.numpy(), store.base_us.numpy()
        known_op[row] = (store.codes[:, OP] != gnn.UNKNOWN).numpy()
    return result, base_us, known_op


def _padded(base: Prediction, over: ExecutionGraph) -> Prediction:
    """The base of a graph with links that it did not have: their latency is 0, as of all hardware."""
    more = np.zeros(over.num_nodes - base.graph.num_nodes)
    return replace(base, graph=over, latency_us=np.concatenate([base.latency_us, more]))


SILENT = "the network's corrections did not help on validation runs"
NO_ANALYTIC = ", and the analytical model has no prediction"
NOT_TRACED = "its peers were not traced"


def predictor_of(checkpoint: gnn.Checkpoint, mode: Mode) -> Predictor:
    """The predictor of a mode.

    The network; the network blended with the analytical model; or that model with the constants of the training runs.
    """
    if mode is Mode.analytic:
        return AnalyticPredictor(checkpoint.constants)
    network = GnnPredictor(checkpoint)
    return network if mode is Mode.gnn else BlendedPredictor(network)


@dataclass(frozen=True)
class BlendedPredictor:
    """Predictions for whatever the network or the analytical model has a prediction for."""

    network: GnnPredictor  # with the checkpoint it is of

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        """Every node's latency, source and reason. Raises InputError: an unknown edge or link class."""
        base = self.network.analytic.predict(graph, cluster)
        return _blended(base, self.network.given(graph, cluster, base))

    def predict_step(self, step: gnn.Step) -> Prediction:
        """`predict` of a step of the network's data set, with the base and the features that are in it."""
        return _blended(step.base, self.network.of_data(step.data, step.graph, step.cluster, step.base))

    def predict_left_out(self, one: gnn.Judged) -> Prediction:
        """`predict` as for an unseen program, from another network, which was trained without the step's program."""
        base, weight = one.step.base, self.network.checkpoint.trust.unseen_weights(one.kind)
        network_us = np.exp(one.residuals) * np.nan_to_num(one.step.stored("base_us"))  # [2, num_nodes]
        network_us[:, (one.step.nodes["segment"] == Segment.PEER_WAIT).to_numpy()] = np.nan
        known, floored = np.ones(weight.shape[1], dtype=bool), np.isnan(base.latency_us)  # [num_nodes] each
        silent = ~floored & np.all(one.residuals == 0.0, axis=0)  # [num_nodes]
        reason = np.full(weight.shape[1], gnn.UNSEEN, dtype=object)
        return _blended(base, Predicted(network_us, known, silent, floored, weight, reason))


def _blended(base: Prediction, given: Predicted) -> Prediction:
    latency_us, mean_us = (_blend(us, base.latency_us, weight, given.known_op)
                           for us, weight in zip(given.latency_us, given.weight, strict=True))  # fmt: skip
    source = _sources(given, uncovered(base.graph, latency_us))
    return base.with_latencies(latency_us, source, mean_us, _reasons(base.graph, given, source))


def _blend(predicted_us: np.ndarray, analytic_us: np.ndarray, weight: np.ndarray, known_op: np.ndarray) -> np.ndarray:
    """[num_nodes]; without an analytical latency the network's stands if training has the op."""
    uncosted = np.isnan(analytic_us)
    network_us = np.where(known_op | ~uncosted, predicted_us, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        both_us = np.exp(weight * np.log(network_us) + (1.0 - weight) * np.log(analytic_us))
    part = (weight > 0) & (weight < 1) & (network_us > 0) & (analytic_us > 0)
    whole_us = np.where((weight >= 1) | uncosted, network_us, analytic_us)
    result: np.ndarray = np.where(part, both_us, whole_us)
    return result


def _sources(given: Predicted, missing: np.ndarray) -> np.ndarray:
    source = np.where(given.weight.max(axis=0) > 0, Source.GNN_CALIBRATED, Source.ANALYTIC).astype(object)
    source[given.floored & ~given.familiar] = Source.GNN_CALIBRATED  # only the network has a latency
    source[given.familiar] = Source.GNN
    source[given.silent] = Source.ANALYTIC
    source[missing] = Source.UNCOVERED
    return source


def _reasons(graph: ExecutionGraph, given: Predicted, source: np.ndarray) -> np.ndarray:
    reason = given.reason.copy()
    reason[(source == Source.ANALYTIC) & given.familiar] = SILENT
    doubted = (source == Source.UNCOVERED) | ((source == Source.GNN_CALIBRATED) & given.floored)
    reason[doubted] = reason[doubted] + NO_ANALYTIC
    reason[(source == Source.UNCOVERED) & given.familiar] = REASONS[Source.UNCOVERED]
    reason[(graph.nodes["segment"] == Segment.PEER_WAIT).to_numpy()] = NOT_TRACED
    return reason
