"""Align the nodes of two steps by content: of one run, or of two.

step i   A B C D   F        what a lane (thread, stream) did in one step
step j   A B   D E F        longest common subsequence (Myers 1986); C and E stay unaligned
"""

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, Relation, compiled
from gnnperf.graph import ExecutionGraph, by_category, lane_keys

_MAX_EDITS = 3000


def align(structure: ExecutionGraph, other: ExecutionGraph) -> np.ndarray:
    """[num_nodes of structure] the node of `other` with the same content in the same lane, in order; -1 unaligned.

    Both are single steps.
    """
    matched = np.full(structure.num_nodes, -1, dtype=np.int64)
    keys_a, keys_b = (graph.nodes["content_key"].to_numpy() for graph in (structure, other))
    lanes_a, lanes_b = lane_keys(structure.nodes), lane_keys(other.nodes)
    for lane in np.unique(lanes_a[lanes_a >= 0]):
        a, b = np.flatnonzero(lanes_a == lane), np.flatnonzero(lanes_b == lane)
        pairs = common_subsequence(keys_a[a], keys_b[b])
        matched[a[pairs[0]]] = b[pairs[1]]
    joined_b = dict(_part_of(other).T.tolist())  # a collective matches the one that its parts' matches join
    for part, node in _part_of(structure).T.tolist():  # likewise a wait for untraced peers
        if matched[part] >= 0 and matched[node] < 0:
            matched[node] = joined_b.get(int(matched[part]), -1)
    return matched


def common_subsequence(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[2, n] positions of a longest common subsequence of two key sequences."""
    if len(a) == len(b) and (a == b).all():
        return np.stack([np.arange(len(a)), np.arange(len(a))])
    result = _compiled_myers(a, b, _MAX_EDITS)
    return result if len(result[0]) or not len(np.intersect1d(a, b)) else _by_occurrence(a, b)


def _by_occurrence(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The n-th occurrence of a key in `a` with the n-th in `b`: for sequences too different for Myers."""
    frames = [
        pd.DataFrame({"key": x, "n": pd.Series(x).groupby(x).cumcount(), "at": np.arange(len(x))}) for x in (a, b)
    ]
    both = frames[0].merge(frames[1], on=["key", "n"])
    return both[["at_x", "at_y"]].to_numpy().T


def _myers(a, b, max_edits):  # type: ignore[no-untyped-def] # pragma: no cover
    """Myers' greedy diff, O((n + m) d); an empty result beyond `max_edits` edits."""
    n, m = len(a), len(b)
    limit = min(n + m, max_edits)
    history = np.zeros((limit + 1, 2 * limit + 3), dtype=np.int32)
    reach = np.zeros(2 * limit + 3, dtype=np.int32)
    done = -1
    for d in range(limit + 1):
        for k in range(-d, d + 1, 2):
            at = limit + 1 + k
            x = reach[at + 1] if k == -d or (k != d and reach[at - 1] < reach[at + 1]) else reach[at - 1] + 1
            y = x - k
            while x < n and y < m and a[x] == b[y]:
                x += 1
                y += 1
            reach[at] = x
            if x >= n and y >= m:
                done = d
        history[d] = reach
        if done >= 0:
            break
    pairs = np.zeros((2, min(n, m)), dtype=np.int64)
    count = 0
    x, y = n, m
    for d in range(done, 0, -1):
        before = history[d - 1]
        k = x - y
        at = limit + 1 + k
        previous_k = k + 1 if k == -d or (k != d and before[at - 1] < before[at + 1]) else k - 1
        px = before[limit + 1 + previous_k]
        py = px - previous_k
        while x > px and y > py and x > 0 and y > 0 and a[x - 1] == b[y - 1]:
            x -= 1
            y -= 1
            pairs[0, count], pairs[1, count] = x, y
            count += 1
        x, y = px, py
    while done >= 0 and x > 0 and y > 0:
        x -= 1
        y -= 1
        pairs[0, count], pairs[1, count] = x, y
        count += 1
    return pairs[:, :count][:, ::-1]


_compiled_myers = compiled(_myers, in_python=0)


def _part_of(graph: ExecutionGraph) -> np.ndarray:
    """[2, n] (comm arrive, collective) and (comm arrive, peer_wait), then (peer_wait, collective)."""
    edges, kind = graph.edges, graph.nodes["node_type"]
    src, dst = edges["src"].to_numpy(), edges["dst"].to_numpy()
    joins, follows = (by_category(edges["relation"], one.__eq__, bool) for one in (Relation.JOINS, Relation.FOLLOWS))
    comm, host = (by_category(kind, one.__eq__, bool) for one in (NodeType.COMM, NodeType.HOST))
    to_wait = follows & comm[src] & host[dst]
    return np.concatenate([np.stack([src[to_wait], dst[to_wait]]), np.stack([src[joins], dst[joins]])], axis=1)
