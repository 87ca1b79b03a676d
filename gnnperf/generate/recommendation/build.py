"""RecommendationPlan -> ExecutionGraph: the graph of a step that nobody ran, in the form that recorded ones have.

Ranks hold different tables, so all of them are in it unless others are asked for. What they have in common is made once
(`shared.Shared`), and rows of distinct items are taken for all ranks together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, OpFamily, Relation, Segment
from gnnperf.generate.recommendation.items import Item, Transfer
from gnnperf.generate.recommendation.plan import RecommendationPlan
from gnnperf.generate.recommendation.program import rank_program
from gnnperf.generate.recommendation.rows import TRANSFER_OPS, item_rows
from gnnperf.generate.recommendation.shared import shared_by_all
from gnnperf.generate.recommendation.waits import Pair, Waits, waits_of
from gnnperf.generate.transformer.rows import LAUNCH_AT
from gnnperf.graph import (
    EdgeList,
    ExecutionGraph,
    StepLabel,
    add_hardware,
    concat_tables,
    consecutive,
    content_keys,
    lane_keys,
    node_table,
)

STEP_NAME = "planned"
_CONTENT = ("node_type", "thread", "stream", "op_name", "segment", "event_name", "collective")


def build_recommendation(plan: RecommendationPlan, ranks: Sequence[int] | None = None) -> ExecutionGraph:
    """The graph of one step.

    Args:
        plan: the configuration.
        ranks: which are in the graph, ascending; None: all. Collectives are those of all ranks in any case.

    Returns:
        Every latency, start and lag is NaN.
    """
    shared, chosen = shared_by_all(plan), tuple(range(plan.ranks) if ranks is None else ranks)
    programs = [rank_program(shared, rank) for rank in chosen]
    nodes, first = _nodes(programs, chosen, plan.ranks)
    edges = _lanes(nodes)
    ends = np.append(first, len(nodes))  # [num_items + 1]
    met: dict[str, list[tuple[Transfer, int]]] = {}
    begin = np.cumsum([0, *map(len, programs)])
    found = [waits_of(program, ends[a:b].tolist(), LAUNCH_AT)
             for program, (a, b) in zip(programs, pairwise(begin), strict=True)]  # fmt: skip
    for program, waits in zip(programs, found, strict=True):
        for transfer in (item for item in program if isinstance(item, Transfer)):
            met.setdefault(transfer.name, []).append((transfer, waits.arrivals[transfer.name]))
    _add_waits(edges, found)
    nodes = concat_tables([t for t in (nodes, _transfers(met, plan.ranks, len(nodes), edges)) if len(t)])
    nodes = nodes.assign(node_id=np.arange(len(nodes)), step=np.zeros(len(nodes), np.int32))
    nodes = nodes.assign(blocked_us=np.full(len(nodes), np.nan), content_key=content_keys(nodes, _CONTENT))
    return _graph(plan, chosen, nodes, edges)


def _nodes(
    programs: Sequence[tuple[Item, ...]], ranks: tuple[int, ...], group_size: int
) -> tuple[pd.DataFrame, np.ndarray]:  # fmt: skip
    """[num_nodes] rows of the ranks one after the other, and [num_items] the first node of each item."""
    numbers: dict[int, int] = {}  # by identity: ranks share most items
    distinct: list[Item] = []
    index = []
    for item in (item for program in programs for item in program):
        if id(item) not in numbers:
            numbers[id(item)] = len(distinct)
            distinct.append(item)
        index.append(numbers[id(item)])
    rows, of_item = item_rows(distinct, group_size)
    width = np.diff(of_item)[index]  # [num_items]
    first = np.cumsum(width) - width  # [num_items]
    row = np.repeat(of_item[index] - first, width) + np.arange(int(width.sum()))  # [num_nodes]
    per_rank = np.add.reduceat(width, np.cumsum([0, *map(len, programs[:-1])]))  # [ranks]
    rank = np.repeat(np.array(ranks, dtype=np.int32), per_rank)  # [num_nodes]
    return rows.take(row).reset_index(drop=True).assign(rank=rank), first


def _lanes(nodes: pd.DataFrame) -> EdgeList:
    """Order of threads and streams; an exit is released by its transfer."""
    edges, thread = EdgeList(), (nodes["thread"] >= 0).to_numpy()
    keys = lane_keys(nodes)  # [num_nodes]
    edges.add(*consecutive(np.where(thread, keys, -1)), Relation.FOLLOWS)
    src, dst = consecutive(np.where(thread, -1, keys))
    between = (nodes["segment"] != Segment.EXIT).to_numpy()[dst]
    edges.add(src[between], dst[between], Relation.FOLLOWS, "stream")
    return edges


def _add_waits(edges: EdgeList, found: Sequence[Waits]) -> None:
    _add(edges, [pair for waits in found for pair in waits.launches], Relation.LAUNCHES, "launch")
    _add(edges, [pair for waits in found for pair in waits.events], Relation.WAITS, "event")
    _add(edges, [pair for waits in found for pair in waits.syncs], Relation.WAITS, "sync")


def _add(edges: EdgeList, pairs: list[Pair], relation: Relation, lag_class: str) -> None:
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)  # [n, 2]
    edges.add(both[:, 0], both[:, 1], relation, lag_class)


def _transfers(
    met: dict[str, list[tuple[Transfer, int]]], group_size: int, offset: int, edges: EdgeList
) -> pd.DataFrame:  # fmt: skip
    """[num_transfers] nodes, and their edges to the ranks' parts; the busiest rank's message is the exchange's."""
    groups = list(met.values())
    if not groups:
        return node_table(0)
    first = [parts[0][0] for parts in groups]
    node = np.repeat(offset + np.arange(len(groups)), [len(parts) for parts in groups])
    arrive = np.array([place for parts in groups for _, place in parts])
    edges.add(arrive, node, Relation.JOINS)
    edges.add(node, arrive + 1, Relation.RELEASES)
    return node_table(
        len(groups), node_type=str(NodeType.COLLECTIVE), family=str(OpFamily.COLLECTIVE),
        op_name=np.array([TRANSFER_OPS[t.kind] for t in first], dtype=object),
        phase=np.array([str(t.phase) for t in first], dtype=object),
        dtype=np.array([t.dtype for t in first], dtype=object),
        collective=np.array([t.kind for t in first], dtype=object),
        message_bytes=np.array([t.busiest_bytes for t in first]),
        group_size=np.full(len(groups), group_size), group_first=0, group_stride=1,
    )  # fmt: skip


def _graph(
    plan: RecommendationPlan, ranks: tuple[int, ...], nodes: pd.DataFrame, edges: EdgeList
) -> ExecutionGraph:  # fmt: skip
    unknown = tuple(float("nan") for _ in ranks)
    label = StepLabel(0, STEP_NAME, None, float("nan"), unknown, unknown)
    graph = ExecutionGraph(
        name=plan.name, nodes=nodes, edges=edges.table(), steps=(label,), ranks=ranks, world_size=plan.ranks,
        device_names=("",) * len(ranks), counts={}, fingerprint=hashlib.sha256(repr(plan).encode()).hexdigest(),
        carried=np.zeros((2, 0), dtype=np.int64),
    )  # fmt: skip
    return add_hardware(graph).validate()
