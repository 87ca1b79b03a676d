"""Device and link nodes: placement and topology as edges, exchangeable for other hardware."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.graph.tables import EdgeList, concat_tables, node_table
from gnnperf.schema import NodeType, Relation

INTRA, HOST_LINK = "intra", "host_link"


def add_hardware(graph: ExecutionGraph) -> ExecutionGraph:
    """Append one device node per traced rank, one link between ranks and one host link, and their edges."""
    nodes, num_ranks, base = graph.nodes, len(graph.ranks), graph.num_nodes
    devices = node_table(
        num_ranks, node_type=str(NodeType.DEVICE), rank=np.array(graph.ranks),
        op_name=np.array([n or "unknown" for n in graph.device_names], dtype=object),
    )  # fmt: skip
    links = node_table(2, node_type=str(NodeType.LINK), op_name=np.array([INTRA, HOST_LINK], dtype=object))
    device_of = {rank: base + i for i, rank in enumerate(graph.ranks)}
    intra, host_link = base + num_ranks, base + num_ranks + 1
    kind, rank = nodes["node_type"], nodes["rank"].to_numpy()
    edges = EdgeList()
    work = np.flatnonzero(kind.isin([NodeType.COMPUTE, NodeType.MEMORY, NodeType.COMM]).to_numpy())
    edges.add(work, np.array([device_of[r] for r in rank[work].tolist()], dtype=np.int64), Relation.RUNS_ON)
    comm, copy = (
        np.flatnonzero((kind == NodeType.COMM).to_numpy()),
        np.flatnonzero((kind == NodeType.MEMORY).to_numpy()),
    )
    edges.add(comm, np.full(len(comm), intra), Relation.CROSSES)
    edges.add(copy, np.full(len(copy), host_link), Relation.CROSSES)
    device = np.arange(base, base + num_ranks)
    for link in (intra, host_link):
        edges.add(np.full(num_ranks, link), device, Relation.CONNECTS)
    all_nodes = concat_tables([nodes, devices, links])
    all_nodes = all_nodes.assign(node_id=np.arange(len(all_nodes), dtype=np.int64))
    return replace(graph, nodes=all_nodes, edges=concat_tables([graph.edges, edges.table()]))
