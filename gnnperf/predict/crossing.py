"""Links that messages cross on the cluster asked about, which may divide the ranks over other nodes than the trace's.

traced on one host    comm -> intra                 asked about on two    comm -> inter

What a link takes follows from the cluster; which link a message crosses is an edge of the graph, laid when the trace
was read. A network that is told the new link's base and the old link's features corrects the one by what it knows of
the other.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnnperf.core import NodeType, Relation
from gnnperf.graph import INTER, INTRA, EdgeList, ExecutionGraph, concat_tables, node_table
from gnnperf.hardware import ClusterSpec


def asked_over(graph: ExecutionGraph, cluster: ClusterSpec) -> ExecutionGraph:
    """The graph with the crossings of the cluster; a link that it does not have yet is its last node.

    Groups larger than what a node of the cluster holds cross the link between nodes, as do groups that nobody knows
    where there are several nodes. A graph whose card says nothing of its hosts stays as it was trained on.
    """
    names = graph.nodes["op_name"].astype(object).to_numpy()
    is_link = (graph.nodes["node_type"] == NodeType.LINK).to_numpy()
    links = {str(names[place]): int(place) for place in np.flatnonzero(is_link)}
    comm = np.flatnonzero((graph.nodes["node_type"] == NodeType.COMM).to_numpy())
    if graph.placement is None or INTRA not in links or not len(comm):
        return graph
    leaves = _leaves(graph, comm, cluster)  # [num_comm]
    if INTER not in links and not leaves.any():
        return graph
    if INTER not in links:
        graph, links = _with_inter(graph), {**links, INTER: graph.num_nodes}
    src, dst = graph.edges["src"].to_numpy(), graph.edges["dst"].to_numpy(copy=True)
    crossed = np.full(graph.num_nodes, -1, dtype=np.int64)  # by comm node
    crossed[comm] = np.where(leaves, links[INTER], links[INTRA])
    own = (graph.edges["relation"] == Relation.CROSSES).to_numpy() & (crossed[src] >= 0)
    dst[own] = crossed[src[own]]
    return replace(graph, edges=graph.edges.assign(dst=dst))


def _leaves(graph: ExecutionGraph, comm: np.ndarray, cluster: ClusterSpec) -> np.ndarray:
    """[num_comm] bool, by the rule of `graph.hardware_nodes`."""
    if graph.world_size <= cluster.ranks_per_node:
        return np.zeros(len(comm), dtype=bool)
    size = graph.nodes["group_size"].to_numpy()[comm]
    return (size < 0) | (size > cluster.ranks_per_node)


def _with_inter(graph: ExecutionGraph) -> ExecutionGraph:
    """One more node, connected to every device."""
    link = node_table(1, node_type=str(NodeType.LINK), op_name=INTER, node_id=graph.num_nodes)
    devices = np.flatnonzero((graph.nodes["node_type"] == NodeType.DEVICE).to_numpy())
    edges = EdgeList()
    edges.add(np.full(len(devices), graph.num_nodes), devices, Relation.CONNECTS)
    return replace(graph, nodes=concat_tables([graph.nodes, link]), edges=concat_tables([graph.edges, edges.table()]))
