"""Collectives over ranks: arrival, transfer, exit.

rank 0   arrive |--- waits for rank 1 ---|== transfer ==|exit|
rank 1                            arrive |== transfer ==| exit |
         transfer = earliest end - last arrival;  exit = own end - earliest end
A rank's kernel contains the wait for the slowest peer; the three moments take it apart.

root     arrive |== exit ==|  next work             one-sided collectives: a rank that needs nothing of its peers leaves
rank 1                        arrive |== transfer ==|        early: it joins, but no one releases it

send     arrive |···|=exit=|                a send of a host thread: once the receiver is there, the system takes the
recv         arrive |== transfer ==|exit|   message; it need not have come when the sender goes on
"""

from dataclasses import dataclass
from math import isnan

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, OpFamily, Relation, Segment
from gnnperf.graph.matching import SEND_RECV, CommPart, Release, group_size, is_consistent, releases
from gnnperf.graph.rank_graph import RankGraph
from gnnperf.graph.tables import EdgeList, concat_tables, content_keys, node_table
from gnnperf.hardware import UNKNOWN, progression

_CONTENT = ("node_type", "collective", "op_name", "message_bytes", "group_size")


@dataclass(frozen=True)
class CollectiveNodes:
    """Nodes and edges to append, and corrected labels of the comm exit nodes."""

    nodes: pd.DataFrame  # collective nodes (and peer_wait nodes, where peers were not traced)
    edges: EdgeList  # joins, releases, and what lets those go on whom no transfer releases
    exit_node: np.ndarray  # [num_parts] exit node of each part
    exit_us: np.ndarray  # [num_parts] measured exit latencies; NaN where peers are missing
    counts: dict[str, int]  # matched, incomplete and inconsistent collectives


def collective_nodes(
    groups: list[tuple[CommPart, ...]], ranks: list[RankGraph], offsets: list[int], nodes: pd.DataFrame, world_size: int
) -> CollectiveNodes:
    """One collective node per group; node ids continue after `nodes`."""
    complete = np.array([len(g) == group_size(g, world_size) for g in groups], dtype=bool)
    arrive = [[offsets[p.rank_index] + int(ranks[p.rank_index].first_node[p.work]) for p in g] for g in groups]
    release = releases(groups)
    begin, transfer = _moments(groups, release)
    n = len(groups)
    first = np.array([a[0] for a in arrive], dtype=np.int64)
    ids = len(nodes) + np.arange(n)  # [num_groups] collective node ids
    lowest, stride = np.array([
        progression([ranks[p.rank_index].rank for p in g]) if whole else (UNKNOWN, UNKNOWN)
        for g, whole in zip(groups, complete, strict=True)
    ], dtype=np.int64).reshape(-1, 2).T  # fmt: skip
    hidden = np.array([any(p.hidden for p in g) for g in groups], dtype=bool)  # nothing saw the transfer end
    copied = {c: nodes[c].iloc[first].array for c in ("op_name", "phase", "dtype", "step")}
    direct = np.array([g[0].key[0] == SEND_RECV and len(g) > 1 for g in groups], dtype=bool)  # a send and its receive
    kind = nodes["collective"].iloc[first].astype(object)
    table = node_table(
        n, node_type=str(NodeType.COLLECTIVE), family=str(OpFamily.COLLECTIVE),
        **{k: (v if k != "step" else np.asarray(v)) for k, v in copied.items()},
        collective=np.where(direct, SEND_RECV, kind.where(kind.notna(), None).to_numpy()),
        message_bytes=np.array([_message_bytes(g) for g in groups]),
        group_size=np.array([group_size(g, world_size) for g in groups]),
        group_first=lowest, group_stride=stride,
        start_us=np.where(complete, begin, np.nan),
        latency_us=np.where(complete & ~hidden, transfer, np.nan),
    )  # fmt: skip
    table = table.assign(content_key=content_keys(table, _CONTENT))
    edges, exit_node, exit_us = _edges(groups, arrive, ids, complete, begin + transfer, release)
    waits = _peer_waits(groups, arrive, nodes, ids, complete, edges)
    counts = {
        "collectives_matched": int(complete.sum()),
        "collectives_without_all_peers": int((~complete).sum()),
        "collectives_inconsistent": sum(not is_consistent(g) for g, ok in zip(groups, complete, strict=True) if ok),
    }
    return CollectiveNodes(concat_tables([table, waits]) if len(waits) else table, edges, exit_node, exit_us, counts)


def _message_bytes(group: tuple[CommPart, ...]) -> float:
    """What the busiest rank sends; of an uneven exchange, the even one that keeps that rank as busy.

    Of an uneven all-gather the largest part rules too: in each of a ring's n-1 steps some link carries it, and the
    others wait for it.
    """
    stated = (p.bytes if isnan(p.even_bytes) else p.even_bytes for p in group)
    return max((size for size in stated if not isnan(size)), default=float("nan"))


def _moments(groups: list[tuple[CommPart, ...]], release: list[list[Release]]) -> tuple[np.ndarray, np.ndarray]:
    """(last arrival, transfer) in us, [num_groups] each.

    Where a rank that is not free leaves before the last arrives (clocks apart), the transfer is the shortest part's
    duration.
    """
    held = [
        [p for p, by in zip(g, r, strict=True) if by == Release.TRANSFER] or list(g)
        for g, r in zip(groups, release, strict=True)
    ]
    last = np.array([max(p.begin_ns for p in g) for g in groups], dtype=np.float64)
    earliest = np.array([min(p.end_ns for p in g) for g in held], dtype=np.float64)
    shortest = np.array([min(p.end_ns - p.begin_ns for p in g) for g in held], dtype=np.float64)
    transfer = np.where(earliest > last, earliest - last, shortest)
    return last / 1000.0, np.maximum(transfer, 0.5) / 1000.0


def _edges(
    groups: list[tuple[CommPart, ...]], arrive: list[list[int]], ids: np.ndarray, complete: np.ndarray,
    done_us: np.ndarray, release: list[list[Release]],
) -> tuple[EdgeList, np.ndarray, np.ndarray]:  # fmt: skip
    """Joins and releases, exit nodes and their latencies [num_parts]; a rank's exit node comes after its arrive node.

    Where peers are missing, the exit cannot be determined from the transfer: NaN.
    """
    part_node = np.array([a for nodes in arrive for a in nodes], dtype=np.int64)
    owner = np.repeat(np.arange(len(groups)), [len(g) for g in groups])
    by = np.array([b.value for flags in release for b in flags], dtype=np.int64)
    by[~complete[owner]] = Release.TRANSFER.value
    free, on_peer = by == Release.NOTHING.value, by == Release.PEER.value
    held = ~free & ~on_peer
    edges = EdgeList()
    edges.add(part_node[complete[owner]], ids[owner][complete[owner]], Relation.JOINS)
    edges.add(ids[owner][held], part_node[held] + 1, Relation.RELEASES)
    edges.add(part_node[free | on_peer], part_node[free | on_peer] + 1, Relation.FOLLOWS)
    following = np.r_[part_node[1:], part_node[:1]]  # the other part of a pair; of a larger group, some other part
    is_followed = np.r_[owner[1:] == owner[:-1], False][: len(owner)]
    other = np.where(is_followed, following, np.r_[part_node[-1:], part_node[:-1]])  # [num_parts]
    edges.add(other[on_peer], part_node[on_peer] + 1, Relation.WAITS)
    begin_us, end_us = (
        np.array([getattr(p, moment) for g in groups for p in g], dtype=np.float64) / 1000.0
        for moment in ("begin_ns", "end_ns")
    )
    last_us = np.array([max(p.begin_ns for p in g) for g in groups], dtype=np.float64)[owner] / 1000.0
    since = np.select([free, on_peer], [begin_us, last_us], done_us[owner])
    exit_us = np.maximum(end_us - since, 0.0)
    return edges, part_node + 1, np.where(complete[owner], exit_us, np.nan)


def _peer_waits(
    groups: list[tuple[CommPart, ...]], arrive: list[list[int]], nodes: pd.DataFrame, ids: np.ndarray,
    complete: np.ndarray, edges: EdgeList,
) -> pd.DataFrame:  # fmt: skip
    """Nodes of arrive -> peer_wait -> collective where peers are missing.

    Wait and transfer cannot be distinguished there: both labels are unknown, and `blocked_us` holds their sum.
    """
    incomplete = np.flatnonzero(~complete)
    parts = [(g, a, p) for g in incomplete for a, p in zip(arrive[g], groups[g], strict=True)]
    at = np.array([a for _, a, _ in parts], dtype=np.int64)
    node = (ids[-1] + 1 if len(ids) else len(nodes)) + np.arange(len(parts))
    edges.add(at, node, Relation.FOLLOWS)
    edges.add(node, ids[[g for g, _, _ in parts]] if parts else node, Relation.JOINS)
    rows = nodes.iloc[at]
    table = node_table(
        len(parts), node_type=str(NodeType.HOST), segment=str(Segment.PEER_WAIT), rank=rows["rank"].to_numpy(),
        step=rows["step"].to_numpy(), op_name=rows["op_name"].array, phase=rows["phase"].array,
        family=str(OpFamily.COLLECTIVE), collective=rows["collective"].array,
        start_us=np.array([p.begin_ns / 1000.0 for _, _, p in parts]),
        blocked_us=np.array([(p.end_ns - p.begin_ns) / 1000.0 for _, _, p in parts]),
    )  # fmt: skip
    return table.assign(content_key=content_keys(table, ("segment", "op_name", "collective")))
