"""Which edge types exist: every graph carries all of them, so that graphs of different runs can be batched."""

from __future__ import annotations

from gnnperf.core import NodeType, Relation

REVERSE_PREFIX = "rev_"
EdgeType = tuple[str, str, str]

_LANES = (NodeType.HOST, NodeType.COMPUTE, NodeType.MEMORY, NodeType.COMM)
_DEVICE_WORK = (NodeType.COMPUTE, NodeType.MEMORY, NodeType.COMM)
_WORK = (*_LANES, NodeType.COLLECTIVE)

RELATION_ENDS: dict[Relation, tuple[tuple[NodeType, ...], tuple[NodeType, ...]]] = {
    Relation.FOLLOWS: (_LANES, _LANES),
    Relation.LAUNCHES: (
        (NodeType.HOST, NodeType.COMPUTE),
        _DEVICE_WORK,
    ),  # compute: on a CPU, where ops issue collectives
    Relation.WAITS: (_WORK, _LANES),
    Relation.FEEDS: (_LANES, _LANES),
    Relation.JOINS: ((NodeType.COMM,), (NodeType.COLLECTIVE,)),
    Relation.RELEASES: ((NodeType.COLLECTIVE,), (NodeType.COMM,)),
    Relation.RUNS_ON: (_WORK, (NodeType.DEVICE,)),
    Relation.CROSSES: ((NodeType.COMM, NodeType.MEMORY, NodeType.COLLECTIVE), (NodeType.LINK,)),
    Relation.CONNECTS: ((NodeType.LINK,), (NodeType.DEVICE,)),
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
