"""Device and link nodes: placement and topology as edges, exchangeable for other hardware."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnnperf.core import NodeType, Relation
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.graph.tables import EdgeList, concat_tables, node_table

INTRA, INTER, HOST_LINK = "intra", "inter", "host_link"


def add_hardware(graph: ExecutionGraph) -> ExecutionGraph:
    """Append one device node per traced rank, the links between ranks and one host link, and their edges.

    A link between hosts is there if the run's card says that there were several: groups larger than what one host
    holds cross it.
    """
    nodes, num_ranks, base = graph.nodes, len(graph.ranks), graph.num_nodes
    devices = node_table(
        num_ranks, node_type=str(NodeType.DEVICE), rank=np.array(graph.ranks),
        op_name=np.array([n or "unknown" for n in graph.device_names], dtype=object),
    )  # fmt: skip
    several = graph.placement is not None and graph.placement.hosts > 1
    names = [INTRA, HOST_LINK, *([INTER] if several else [])]
    links = node_table(len(names), node_type=str(NodeType.LINK), op_name=np.array(names, dtype=object))
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
    crossed = np.where(_leaves_its_host(graph, comm), base + num_ranks + 2, intra) if several else intra
    edges.add(comm, np.broadcast_to(crossed, len(comm)), Relation.CROSSES)
    edges.add(copy, np.full(len(copy), host_link), Relation.CROSSES)
    device = np.arange(base, base + num_ranks)
    for link in range(intra, intra + len(names)):
        edges.add(np.full(num_ranks, link), device, Relation.CONNECTS)
    all_nodes = concat_tables([nodes, devices, links])
    all_nodes = all_nodes.assign(node_id=np.arange(len(all_nodes), dtype=np.int64))
    return replace(graph, nodes=all_nodes, edges=concat_tables([graph.edges, edges.table()]))


def _leaves_its_host(graph: ExecutionGraph, comm: np.ndarray) -> np.ndarray:
    """[num_comm] bool: the group is larger than what one host holds; unknown groups are taken to be."""
    assert graph.placement is not None
    per_host = max(graph.world_size // graph.placement.hosts, 1)
    group_size = graph.nodes["group_size"].to_numpy()[comm]
    return (group_size < 0) | (group_size > per_host)
