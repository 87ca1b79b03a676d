"""Take nodes out of a graph. Within a lane, node ids stay in order of execution.

before   [T1|op A]-[T1|op B]-[T1|op C]                one lane
remove   [T1|op A]-[T1|op C]
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnnperf.core import TIMED_RELATIONS
from gnnperf.graph import ExecutionGraph, consecutive, lane_keys, take


def remove(graph: ExecutionGraph, gone: np.ndarray) -> tuple[ExecutionGraph, np.ndarray]:
    """Take nodes out. What they waited for, the next node of their lane waits for; what waited for them, waits no more.

    `gone` [num_nodes] bool. Returns the graph, [num_nodes] the node that each one was.
    """
    heir = next_retained(lane_keys(graph.nodes), gone)  # [num_nodes]
    edges = graph.edges
    src, dst = edges["src"].to_numpy(), edges["dst"].to_numpy()
    timed = edges["relation"].isin([str(r) for r in TIMED_RELATIONS]).to_numpy()
    inherited = timed & ~gone[src] & gone[dst] & (heir[dst] >= 0)
    moved = edges.assign(dst=np.where(inherited, heir[dst], dst), lag_us=edges["lag_us"].mask(inherited))
    nodes, left = take(graph.nodes, moved, ~gone)
    cross_step = graph.cross_step
    if cross_step is not None:  # waits for the step before, of the nodes that are left, by their new numbers
        both = np.stack([cross_step[0], heir[cross_step[1]]])
        cross_step = (np.cumsum(~gone) - 1)[both[:, ~gone[both[0]] & (both[1] >= 0)]]
    return replace(graph, nodes=nodes, edges=left, cross_step=cross_step), np.flatnonzero(~gone)


def next_retained(lane: np.ndarray, gone: np.ndarray) -> np.ndarray:
    """[num_nodes] itself if kept, else the next kept node of its lane; -1 none."""
    heir = np.where(gone, -1, np.arange(len(lane)))
    before, after = consecutive(lane)
    for node, following in zip(before[::-1].tolist(), after[::-1].tolist(), strict=True):
        if gone[node]:
            heir[node] = heir[following]
    return heir
