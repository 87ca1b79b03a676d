"""An execution graph as boxes and arrows: what the pictures of graphs and schedules have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from docs.made.drawing import Arrow, Box
from gnnperf.core import NodeType, Relation
from gnnperf.graph import ExecutionGraph

COLOR_OF_TYPE = {
    NodeType.HOST: "#cfd8dc",
    NodeType.COMPUTE: "#aed581",
    NodeType.COMM: "#ffb74d",
    NodeType.COLLECTIVE: "#ffcc80",
}
COLOR_OF_RELATION = {
    Relation.LAUNCHES: "#5c6bc0",
    Relation.WAITS: "#c62828",
    Relation.JOINS: "#ef6c00",
    Relation.RELEASES: "#6d4c41",
}
BETWEEN = "between ranks"
NODE_LEGEND = tuple((color, str(kind)) for kind, color in COLOR_OF_TYPE.items())
EDGE_LEGEND = tuple((color, str(kind)) for kind, color in COLOR_OF_RELATION.items())


def shown(graph: ExecutionGraph) -> list[int]:
    """Nodes of work; what a step's mark holds beyond the last op is left out."""
    kind, name = graph.nodes["node_type"], graph.nodes["op_name"]
    return [i for i in range(graph.num_nodes) if kind[i] in COLOR_OF_TYPE and name[i] != "step_end"]


def lane_of(graph: ExecutionGraph, node: int) -> str:
    """rank 0, host | rank 0, stream 1 | between ranks."""
    row = graph.nodes.iloc[node]
    if row["node_type"] == NodeType.COLLECTIVE:
        return BETWEEN
    return f"rank {row['rank']}, " + ("host" if row["stream"] < 0 else f"stream {row['stream']}")


def lanes_of(graph: ExecutionGraph) -> tuple[str, ...]:
    """The first rank from host to streams, what is between ranks, the others from streams to host."""
    names = list(dict.fromkeys(lane_of(graph, node) for node in shown(graph)))
    first = [name for name in names if name.startswith("rank 0")]
    others = [name for name in names if not name.startswith("rank 0") and name != BETWEEN]
    return (*first, BETWEEN, *reversed(others))


def colors_by_type(graph: ExecutionGraph) -> list[str]:
    """[num_nodes]; "" for hardware."""
    return [COLOR_OF_TYPE.get(NodeType(kind), "") for kind in graph.nodes["node_type"]]


def boxes_of(graph: ExecutionGraph, start_us: np.ndarray, end_us: np.ndarray, colors: Sequence[str]) -> list[Box]:
    """One per shown node; `start_us`, `end_us` and `colors` are [num_nodes]."""
    return [_box(graph, node, start_us[node], end_us[node], colors[node]) for node in shown(graph)]


def _box(graph: ExecutionGraph, node: int, start_us: float, end_us: float, color: str) -> Box:
    row = graph.nodes.iloc[node]
    segment = str(row["segment"]) if isinstance(row["segment"], str) else ""
    label = segment if row["node_type"] == NodeType.HOST else str(row["op_name"]).rpartition("::")[2].rstrip("_")
    about = f"{row['node_type']} {row['op_name']} {segment}".rstrip()
    return Box(lane_of(graph, node), start_us, end_us, color, label, f"{about}: {end_us - start_us:.1f} us")


def arrows_of(graph: ExecutionGraph) -> tuple[Arrow, ...]:
    """Relations that constrain time next to those along a lane; places are those of `boxes_of`."""
    place = {node: i for i, node in enumerate(shown(graph))}
    edges = graph.edges[graph.edges["relation"].isin([str(relation) for relation in COLOR_OF_RELATION])]
    return tuple(
        Arrow(place[src], place[dst], COLOR_OF_RELATION[Relation(relation)], relation == Relation.LAUNCHES)
        for src, dst, relation in edges[["src", "dst", "relation"]].itertuples(index=False, name=None)
        if src in place and dst in place
    )
