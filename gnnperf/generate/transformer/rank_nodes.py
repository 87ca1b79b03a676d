"""One rank of a plan: its nodes, and the edges among them.

host     |T1|T2|T4|T3|T1|T2|T4|T3|            |wait|T1 ...
               `launches    `launches            ^
compute        |-- kernel --|          ,->|-- kernel --|
                            `->       |          |
tensor                       arrive ... exit     `waits
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core import Relation
from gnnperf.generate.transformer.events import (
    ASIDE,
    AWAITED,
    EVENT,
    HOST,
    KERNEL,
    LAUNCHED,
    NONE,
    UNAWAITED,
    WAIT,
    event_waits,
)
from gnnperf.generate.transformer.items import Await, Copy, HostAwait, HostWait, Lane, Op, Placed, Record, Transfer
from gnnperf.generate.transformer.plan import Parallelism
from gnnperf.generate.transformer.rows import FIRST_WORK, LAUNCH_AT, item_rows
from gnnperf.graph import EdgeList, consecutive


@dataclass(frozen=True)
class Part:
    """One rank's part in a transfer: what it is, and the node where it arrives; it leaves at the next node."""

    transfer: Transfer
    tag: str
    arrive: int


@dataclass(frozen=True)
class RankNodes:
    """A rank's nodes, numbered from 0.

    Attributes:
        table: [num_nodes] rows; `rank` is still to be set.
        edges: among them.
        parts: of transfers, in order.
    """

    table: pd.DataFrame
    edges: EdgeList
    parts: tuple[Part, ...]


def rank_nodes(program: Sequence[Placed], ways: Parallelism) -> RankNodes:
    """The nodes of a program and what they wait for on their own rank."""
    numbers: dict[int, int] = {}  # by identity: a program repeats the same few items
    index = np.array([numbers.setdefault(id(p.item), len(numbers)) for p in program])  # [num_items]
    by_number = {numbers[id(p.item)]: p.item for p in program}
    distinct = [by_number[n] for n in range(len(numbers))]
    rows = item_rows(distinct, ways)
    width = np.diff(rows.first)[index]  # [num_items]
    begin = np.cumsum(width) - width  # [num_items] first node of each item
    row = np.repeat(rows.first[index] - begin, width) + np.arange(int(width.sum()))  # [num_nodes]
    table = rows.table.take(row).reset_index(drop=True)
    kind = np.array([_kind(item) for item in distinct])[index]  # [num_items]
    parts = tuple(Part(p.item, p.tag, int(b) + FIRST_WORK) for p, b in zip(program, begin, strict=True)
                  if isinstance(p.item, Transfer))  # fmt: skip
    edges = _edges(table, begin, kind)
    event_waits(edges, program, begin, kind)
    return RankNodes(table, edges, parts)


def _kind(item: object) -> int:
    if isinstance(item, Op):
        return KERNEL if item.lane is Lane.COMPUTE else ASIDE
    if isinstance(item, Transfer):
        return (AWAITED if item.awaited else UNAWAITED) if item.follows_compute else ASIDE
    if isinstance(item, Copy):
        return ASIDE
    if isinstance(item, Record | Await | HostAwait):
        return EVENT
    return WAIT if isinstance(item, HostWait) else HOST


def _edges(table: pd.DataFrame, begin: np.ndarray, kind: np.ndarray) -> EdgeList:
    """Order of thread and streams, launches, and waits between streams and of the host."""
    edges = EdgeList()
    thread, stream = table["thread"].to_numpy(), table["stream"].to_numpy()
    edges.add(*consecutive(thread), Relation.FOLLOWS)
    src, dst = consecutive(stream)
    between = (table["segment"] != "exit").to_numpy()[dst]  # an exit is released by its transfer
    edges.add(src[between], dst[between], Relation.FOLLOWS, "stream")
    launching = np.isin(kind, LAUNCHED)
    edges.add(begin[launching] + LAUNCH_AT, begin[launching] + FIRST_WORK, Relation.LAUNCHES, "launch")
    work = begin + FIRST_WORK  # [num_items] kernel, or arrival
    kernel, transfer, awaited, waits = (
        kind == KERNEL,
        np.isin(kind, (AWAITED, UNAWAITED)),
        kind == AWAITED,
        kind == WAIT,
    )
    _before(edges, np.where(kernel, work, NONE), np.where(transfer, work, NONE), "event")
    _before(edges, np.where(kernel, work, NONE), np.where(waits, begin, NONE), "sync")
    exits = np.where(awaited, work + 1, NONE)  # what holds the compute stream holds all that is issued after it
    _after(edges, exits, np.where(kernel, work, NONE), "event")
    _after(edges, exits, np.where(transfer, work, NONE), "event")
    _after(edges, exits, np.where(waits, begin, NONE), "sync")
    return edges


def _before(edges: EdgeList, src: np.ndarray, dst: np.ndarray, lag_class: str) -> None:
    """Every `dst` waits for the last `src` before it; both are [num_items] nodes, NONE where an item is none."""
    latest = np.r_[NONE, np.maximum.accumulate(src)[:-1]]
    known = (dst != NONE) & (latest != NONE)
    edges.add(latest[known], dst[known], Relation.WAITS, lag_class)


def _after(edges: EdgeList, src: np.ndarray, dst: np.ndarray, lag_class: str) -> None:
    """The first `dst` after each `src` waits for it."""
    never = np.iinfo(np.int64).max
    result = np.where(dst == NONE, never, dst)
    following = np.r_[np.minimum.accumulate(result[::-1])[::-1][1:], never]
    known = (src != NONE) & (following != never)
    edges.add(src[known], following[known], Relation.WAITS, lag_class)
