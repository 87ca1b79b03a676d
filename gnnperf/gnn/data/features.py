"""ExecutionGraph of one step -> HeteroData: features known before the run, labels apart from them.

Attributes per work type, n nodes of it (names avoid `batch` and `index`, which PyG increments in collation):
    x [n, len(WORK_NAMES)] float32      codes [n, len(FIELDS)] int64      node_id [n] int64, row in the graph
    base_us [n] float64      analytic_us, latency_us [n] float64, NaN unknown
    target, steady_target [n] float32, log(isolated latency / base), NaN where it is not defined: what is usual, and
        what a schedule adds up (data.runs.IsolatedLabels)
    time_share [n] float32, share of the step's measured busy time, scaled to mean 1 over labeled nodes
    known_collective_model [n] bool, collectives only: link and group within the training range (of the normalizer)
Every work type and every edge type between them is there, with zero rows if necessary. Device and link nodes are left
out: what they are is among the features of the work.
"""

from dataclasses import replace

import numpy as np
import torch
from torch_geometric.data import HeteroData

from gnnperf.core import WORK_TYPES, InputError, NodeType, Relation, Segment
from gnnperf.gnn.data.floors import TypedFloors, base_us, texts_of, words_of
from gnnperf.gnn.data.numbers import work_numbers
from gnnperf.gnn.data.runs import IsolatedLabels
from gnnperf.gnn.data.source import source_base_us
from gnnperf.gnn.data.vocabulary import Vocabulary
from gnnperf.gnn.evaluation.metrics import is_measured
from gnnperf.graph import ExecutionGraph, Prediction
from gnnperf.hardware import ClusterSpec

# Every graph has all edge types, so that graphs of different runs can be batched.

REVERSE_PREFIX = "rev_"
EdgeType = tuple[str, str, str]

_LANES = (NodeType.HOST, NodeType.COMPUTE, NodeType.MEMORY, NodeType.COMM)
_DEVICE_WORK = (NodeType.COMPUTE, NodeType.MEMORY, NodeType.COMM)
_WORK = (*_LANES, NodeType.COLLECTIVE)

PLACEMENT = (Relation.RUNS_ON, Relation.CROSSES, Relation.CONNECTS)  # of work on hardware
RELATION_ENDS: dict[Relation, tuple[tuple[NodeType, ...], tuple[NodeType, ...]]] = {
    Relation.FOLLOWS: (_LANES, _LANES),
    # compute: on a CPU, where ops issue collectives
    Relation.LAUNCHES: ((NodeType.HOST, NodeType.COMPUTE), _DEVICE_WORK),
    Relation.WAITS: (_WORK, _LANES),
    Relation.FEEDS: (_LANES, _LANES),
    Relation.JOINS: ((NodeType.COMM,), (NodeType.COLLECTIVE,)),
    Relation.RELEASES: ((NodeType.COLLECTIVE,), (NodeType.COMM,)),
}

FORWARD_EDGE_TYPES: tuple[EdgeType, ...] = tuple(
    (str(src), str(relation), str(dst))
    for relation, (sources, targets) in RELATION_ENDS.items()
    for src in sources
    for dst in targets
)


def reverse(edge_type: EdgeType) -> EdgeType:
    """The edge type read backwards."""
    src, relation, dst = edge_type
    return dst, f"{REVERSE_PREFIX}{relation}", src


# A collective with untraced peers, as the network sees it: the transfer does not depend on which peers were traced.
#
# graph       comm(arrive) -> peer_wait -> collective -> comm(exit)
# network     comm(arrive) ---------------> collective -> comm(exit)
#                         '-> peer_wait


def joined_by_parts(graph: ExecutionGraph) -> ExecutionGraph:
    """The graph in which parts of a collective join it themselves; a wait of which no part is left joins nothing."""
    waits = (graph.nodes["segment"] == Segment.PEER_WAIT).to_numpy()  # [num_nodes]
    if not waits.any():
        return graph
    edges = graph.edges
    src, dst = edges["src"].to_numpy(), edges["dst"].to_numpy()
    relation = edges["relation"]
    before = np.full(graph.num_nodes, -1, dtype=np.int64)  # the part that waits, by wait
    follows = (relation == Relation.FOLLOWS).to_numpy() & waits[dst]
    before[dst[follows]] = src[follows]
    joins = (relation == Relation.JOINS).to_numpy() & waits[src]
    moved = edges.assign(src=np.where(joins, before[src], src))
    return replace(graph, edges=moved[(moved["src"] >= 0).to_numpy()].reset_index(drop=True))


def features(
    graph: ExecutionGraph,
    cluster: ClusterSpec,
    analytic: Prediction,
    vocabulary: Vocabulary,
    floors: TypedFloors,
    isolated: IsolatedLabels | None = None,
    moved_us: np.ndarray | None = None,
) -> HeteroData:
    """The network's view of one step.

    The graph is without edges inferred from time (ExecutionGraph.step, .for_predictors); `analytic` is the analytical
    prediction for it on the requested cluster, where it has none `floors` do. `isolated`: labels to learn; None: there
    are none, as in a prediction. `moved_us`: [num_nodes] measured on another machine, times speed factors
    (data.source); None: nothing.

    Raises InputError: an edge between node types that the schema does not foresee, or an unknown link class.
    """
    graph = joined_by_parts(graph)
    nodes = graph.nodes
    base = base_us(nodes, analytic.latency_us, floors)  # [num_nodes]
    if moved_us is not None:
        base = source_base_us(nodes, base, moved_us)
    numbers = work_numbers(graph, analytic.latency_us, base, cluster)  # [num_nodes, num_features]
    types = texts_of(nodes["node_type"])  # [num_nodes]
    learned = types != NodeType.COMM  # which rank leaves a collective first is chance: they keep their base
    labels = _labels(nodes["latency_us"].to_numpy(np.float64), base, learned & (base > 0), isolated)
    labels["analytic_us"] = analytic.latency_us
    data = HeteroData()
    for node_type in map(str, WORK_TYPES):
        rows = np.flatnonzero(types == node_type)  # [n]
        store = data[node_type]
        store.x = torch.from_numpy(numbers[rows])
        store.codes = torch.from_numpy(vocabulary.encode(node_type, nodes.iloc[rows]))
        store.node_id = torch.from_numpy(rows)
        for name, values in labels.items():
            store[name] = torch.from_numpy(values[rows])
        store.num_nodes = len(rows)
    collective = data[str(NodeType.COLLECTIVE)]
    collective.known_collective_model = torch.ones(collective.num_nodes, dtype=torch.bool)
    _add_edges(data, graph, types)
    return _checked(data, graph.name)


def _labels(
    latency_us: np.ndarray, base: np.ndarray, learned: np.ndarray, isolated: IsolatedLabels | None
) -> dict[str, np.ndarray]:
    """Targets and weight; a node counts where it is learned and measured."""
    unknown = np.full(len(base), np.nan)
    result = isolated or IsolatedLabels(unknown, unknown)
    usable = learned & is_measured(latency_us)  # [num_nodes]
    mean = latency_us[usable].mean() if usable.any() else 1.0
    return {
        "base_us": base,
        "latency_us": latency_us.copy(),
        "target": _target(result.usual_us, base, learned),
        "steady_target": _target(result.steady_us, base, learned),
        "time_share": np.where(usable, latency_us / mean, 0.0).astype(np.float32),
    }


def _target(latency_us: np.ndarray, base: np.ndarray, learned: np.ndarray) -> np.ndarray:
    """[num_nodes] float32 log(latency / base); NaN where it is not defined or not learned."""
    usable = learned & is_measured(latency_us)  # [num_nodes]
    target = np.full(len(base), np.nan, np.float32)
    target[usable] = np.log(latency_us[usable] / base[usable])
    return target


def _add_edges(data: HeteroData, graph: ExecutionGraph, types: np.ndarray) -> None:
    """Both directions of every edge type, ends renumbered within their node type."""
    local = np.zeros(len(types), dtype=np.int64)  # [num_nodes] position within its type
    for node_type in np.unique(types):
        local[types == node_type] = np.arange(int((types == node_type).sum()))
    src, dst = graph.edges["src"].to_numpy(), graph.edges["dst"].to_numpy()  # [num_edges]
    groups = _edge_groups(graph, src, dst)
    unforeseen = sorted(t for t in groups.keys() - set(FORWARD_EDGE_TYPES) if t[1] not in PLACEMENT)
    if unforeseen:
        raise InputError(
            f"edge type {unforeseen[0]} is not in gnnperf.gnn.data.features", where=f"graph {graph.name!r}"
        )
    for edge_type in FORWARD_EDGE_TYPES:
        rows = groups.get(edge_type, np.empty(0, dtype=np.int64))
        ends = torch.from_numpy(np.stack([local[src[rows]], local[dst[rows]]]))  # [2, num_edges of the type]
        data[edge_type].edge_index = ends
        data[reverse(edge_type)].edge_index = ends.flip(0)


def _edge_groups(graph: ExecutionGraph, src: np.ndarray, dst: np.ndarray) -> dict[EdgeType, np.ndarray]:
    """Edge type -> its rows in the edge table, in order."""
    names, node_type = words_of(graph.nodes["node_type"])  # [num_nodes]
    relations, relation = words_of(graph.edges["relation"])  # [num_edges]
    key = (node_type[src] * len(relations) + relation) * len(names) + node_type[dst]  # [num_edges]
    order = np.argsort(key, kind="stable")
    result, first = np.unique(key[order], return_index=True)
    ends = (result // len(names) // len(relations), result // len(names) % len(relations), result % len(names))
    types = zip(names[ends[0]], relations[ends[1]], names[ends[2]], strict=True)
    return dict(zip(types, np.split(order, first[1:]), strict=True)) if len(result) else {}


def _checked(data: HeteroData, name: str) -> HeteroData:
    """PyG's validate() lets NaN and infinity through."""
    data.validate(raise_on_error=True)
    for node_type in data.node_types:
        if not bool(torch.isfinite(data[node_type].x).all()):
            raise InputError(f"a feature of a {node_type} node is not finite", where=f"graph {name!r}")
    return data
