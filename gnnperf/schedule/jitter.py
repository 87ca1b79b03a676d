"""Ranks of one role do not take the same time. The last one to arrive begins a collective: an order statistic.

rank 0   |== work ==|·······|               the schedule has the median, for every rank alike
rank 1   |== work ====|·····|               a group waits for the slowest of its M ranks
rank 2   |== work ========|·|= transfer =|  = median + deviation x e(M)

A rank's time t since it last met the ranks of a group deviates by sqrt((rank_share t)^2 + moment_us t). Times before
the last meeting do not count between its ranks, but do in a larger group: every node carries both deviations since the
last meeting of each kind of group. When M ranks meet, their deviation becomes the (smaller) one of a maximum.

The delay is a lag of the edges into the transfer, the same for all its ranks. It is computed without contention.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType, Relation, require
from gnnperf.graph import ExecutionGraph, lane_ends
from gnnperf.schedule.jitter_pass import walk
from gnnperf.schedule.longest_path import TimedEdges, cross_step_edges, timed_edges

ON_DEVICE = (NodeType.COMPUTE, NodeType.MEMORY)
ALONE = -1


@dataclass(frozen=True)
class Spread:
    """How much ranks of one role differ in the time of one kind of work."""

    rank_share: float = 0.0  # standard deviation over time, of what a rank keeps for a whole step
    moment_us: float = 0.0  # variance over time, of what differs from moment to moment

    def __post_init__(self) -> None:
        require(0 <= self.rank_share < 1, "rank_share of jitter", self.rank_share, "0 or more, below 1")
        require(self.moment_us >= 0, "moment_us of jitter", self.moment_us, "0 or more")


@dataclass(frozen=True)
class Jitter:
    """How much ranks of one role differ."""

    host: Spread = Spread()  # in host time
    device: Spread = Spread()  # in kernels and copies; on a CPU in the ops themselves


def arrival_lags_us(
    graph: ExecutionGraph, latency_us: np.ndarray, lag_us: np.ndarray, jitter: Jitter, *, repeats: bool = False
) -> np.ndarray:
    """[num_edges] what to add to lags so that transfers begin when the last of all ranks is expected.

    Ranks that a rank stands for (`ExecutionGraph.stands_for`) count: a folded graph waits as long as the whole one.

    Of one step, [num_nodes] and [num_edges] finite; `repeats`: it follows on itself, and ranks begin it as far apart as
    they end it.
    """
    edges = timed_edges(graph)
    kinds, of_node = _kinds(graph)
    count = _part_counts(graph, edges)
    contains = _contains(kinds)
    state = np.zeros((2, graph.num_nodes, len(kinds)))
    constraints = (edges.order, edges.in_first, edges.by_dst, edges.src, edges.from_start, lag_us[edges.index])
    given = (constraints, latency_us, _own(graph, latency_us, jitter), (of_node, count, contains))
    end_us, ended, delay_us = walk(*given, state)
    if repeats:
        _, _, delay_us = walk(*given, _begun(graph, state, end_us, ended))
    joins = (graph.edges["relation"] == Relation.JOINS).to_numpy()
    return np.where(joins, delay_us[graph.edges["dst"].to_numpy()], 0.0)


def _own(graph: ExecutionGraph, latency_us: np.ndarray, jitter: Jitter) -> tuple[np.ndarray, np.ndarray]:
    """[num_nodes] deviation (us) and variance (us^2) that the own work of a rank adds; 0 for all other nodes."""
    kind = graph.nodes["node_type"]
    host, device = (kind == NodeType.HOST).to_numpy(), kind.isin([str(t) for t in ON_DEVICE]).to_numpy()
    steady = np.select([host, device], [jitter.host.rank_share, jitter.device.rank_share], 0.0)
    moment = np.select([host, device], [jitter.host.moment_us, jitter.device.moment_us], 0.0)
    return steady * latency_us, moment * latency_us


def _begun(graph: ExecutionGraph, state: np.ndarray, end_us: np.ndarray, ended: np.ndarray) -> np.ndarray:
    """[2, num_nodes, num_kinds] deviations with which nodes begin that wait for the step before."""
    awaited, waiting = cross_step_edges(graph, lane_ends(graph.nodes))
    order = np.argsort(end_us[awaited], kind="stable")
    result = state.copy()
    for node, after in zip(awaited[order].tolist(), waiting[order].tolist(), strict=True):
        result[:, after] = ended[:, node]
    return result


def _kinds(graph: ExecutionGraph) -> tuple[np.ndarray, np.ndarray]:
    """[num_kinds, 2] (size, stride) of groups, [num_nodes] kind of each transfer; ALONE for all other nodes."""
    nodes = graph.nodes
    meets = (nodes["node_type"] == NodeType.COLLECTIVE).to_numpy()
    pairs = nodes.loc[meets, ["group_size", "group_stride"]].to_numpy()
    kinds, of = np.unique(pairs, axis=0, return_inverse=True) if len(pairs) else (np.zeros((0, 2)), np.zeros(0))
    result = np.full(len(nodes), ALONE, dtype=np.int64)
    result[meets] = of.reshape(-1)
    return kinds.astype(np.int64), result


def _contains(kinds: np.ndarray) -> np.ndarray:
    """[num_kinds, num_kinds] bool: a group of the first kind holds whole groups of the second; itself."""
    size, stride = kinds[:, 0], np.maximum(kinds[:, 1], 1)
    fine = (stride[:, None] <= stride[None]) & (stride[None] % stride[:, None] == 0)
    reach = (size * stride)[:, None] >= (size * stride)[None]
    known = (kinds[:, 1] > 0)[:, None] & (kinds[:, 1] > 0)[None]
    return (fine & reach & known) | np.eye(len(kinds), dtype=bool)


def _part_counts(graph: ExecutionGraph, edges: TimedEdges) -> np.ndarray:
    """[num_timed] ranks of the group that arrive over an edge into a transfer; 1 elsewhere.

    Of a group the ranks of one class are as many as the class has ranks, of all ranks of the classes that meet.
    """
    joins = (graph.edges["relation"] == Relation.JOINS).to_numpy()[edges.index]
    rank = graph.nodes["rank"].to_numpy()
    own = np.array([graph.multiplicity.get(int(r), 1) for r in rank[edges.src].tolist()], dtype=float)
    together = np.bincount(edges.dst[joins], weights=own[joins], minlength=graph.num_nodes)
    size = graph.nodes["group_size"].to_numpy()[edges.dst]
    parts = np.bincount(edges.dst[joins], minlength=graph.num_nodes)[edges.dst]
    whole = np.where(size > 0, np.maximum(size, parts), parts)
    share = np.divide(own, together[edges.dst], out=np.ones(len(own)), where=joins & (together[edges.dst] > 0))
    return np.where(joins, np.maximum(share * whole, 1.0), 1.0)


LEAST = 2  # ranks, and steps
MOST_SHARE = 0.99


def jitter_of(graph: ExecutionGraph) -> Jitter:
    """From the steps of a recording.

    Args:
        graph: a whole window, with measured latencies.

    Raises:
        InputError: it has one rank, or fewer than two whole steps.
    """
    if len(graph.ranks) < LEAST or len(graph.steps) < LEAST:
        raise InputError(
            f"{len(graph.ranks)} ranks and {len(graph.steps)} whole steps do not show how ranks differ",
            where=f"graph {graph.name!r}, jitter", allowed="a recording of several ranks and several steps",
            remedy="state it: jitter={host:{rank_share:0.02}}",
        )  # fmt: skip
    return Jitter(_spread(graph, (NodeType.HOST,)), _spread(graph, ON_DEVICE))


def _spread(graph: ExecutionGraph, types: tuple[NodeType, ...]) -> Spread:
    nodes = graph.nodes
    steps = [step.step for step in graph.steps]
    chosen = nodes["node_type"].isin([str(t) for t in types]) & nodes["step"].isin(steps) & nodes["latency_us"].notna()
    rows = nodes.loc[chosen, ["rank", "step", "content_key", "latency_us"]]
    rows = rows.assign(position=rows.groupby(["rank", "step", "content_key"]).cumcount())
    table = rows.pivot_table("latency_us", ["rank", "content_key", "position"], "step").dropna()
    if table.empty or table.index.get_level_values("rank").nunique() < LEAST:
        return Spread()
    return _spread_of(table)


def _spread_of(table: pd.DataFrame) -> Spread:
    """`table`: [num_nodes of all ranks, num_steps] us, index rank first.

    The mean of a rank is its role, the mean of a step is common to all ranks: both are removed. Of the rest of a rank's
    time T,  var = (rank_share T)^2 + moment_us T,  moment_us = variances of nodes / T, less the part of rank_share.
    """
    num_steps = table.shape[1]
    total = table.groupby(level="rank").sum().to_numpy()  # [num_ranks, num_steps]
    mean_us = float(total.mean())
    if mean_us <= 0.0:
        return Spread()
    left = total - total.mean(axis=1, keepdims=True) - total.mean(axis=0, keepdims=True) + mean_us
    variance = float((left**2).sum()) / ((total.shape[0] - 1) * (num_steps - 1))
    own = table.to_numpy()
    raw = float(own.var(axis=1, ddof=1).sum()) / float(own.mean(axis=1).sum())  # us
    share = np.sqrt(max(variance - raw * mean_us, 0.0)) / mean_us
    of_nodes = float((own.mean(axis=1) ** 2).sum()) / float(own.mean(axis=1).sum())  # us
    return Spread(min(float(share), MOST_SHARE), max(raw - share**2 * of_nodes, 0.0))
