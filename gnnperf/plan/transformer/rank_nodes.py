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

from gnnperf.graph.lanes import consecutive
from gnnperf.graph.tables import EdgeList
from gnnperf.plan.transformer.items import HostWait, Op, Placed, Transfer
from gnnperf.plan.transformer.plan import Parallelism
from gnnperf.plan.transformer.rows import FIRST_WORK, LAUNCH_AT, item_rows
from gnnperf.schema import Relation

NOTHING_BEFORE = -1


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
    return RankNodes(table, _edges(table, begin, kind), parts)


KERNEL, AWAITED, UNAWAITED, WAIT = range(4)


def _kind(item: object) -> int:
    if isinstance(item, Op):
        return KERNEL
    if isinstance(item, Transfer):
        return AWAITED if item.awaited else UNAWAITED
    assert isinstance(item, HostWait)
    return WAIT


def _edges(table: pd.DataFrame, begin: np.ndarray, kind: np.ndarray) -> EdgeList:
    """Order of thread and streams, launches, and waits between streams and of the host."""
    edges = EdgeList()
    thread, stream = table["thread"].to_numpy(), table["stream"].to_numpy()
    edges.add(*consecutive(thread), Relation.FOLLOWS)
    src, dst = consecutive(stream)
    between = (table["segment"] != "exit").to_numpy()[dst]  # an exit is released by its transfer
    edges.add(src[between], dst[between], Relation.FOLLOWS, "stream")
    launching = kind != WAIT
    edges.add(begin[launching] + LAUNCH_AT, begin[launching] + FIRST_WORK, Relation.LAUNCHES, "launch")
    work = begin + FIRST_WORK  # [num_items] kernel, or arrival
    kernel_before = _latest(np.where(kind == KERNEL, work, NOTHING_BEFORE))  # [num_items]
    awaited_before = _latest(np.where(kind == AWAITED, work + 1, NOTHING_BEFORE))
    comes = np.isin(kind, (AWAITED, UNAWAITED))
    _wait(edges, kernel_before[comes], work[comes], "event")
    goes_on = (kind == KERNEL) & (awaited_before > kernel_before_this(kernel_before))
    _wait(edges, awaited_before[goes_on], work[goes_on], "event")
    stops = kind == WAIT
    for awaited in (kernel_before, awaited_before):
        _wait(edges, awaited[stops], begin[stops], "sync")
    return edges


def kernel_before_this(kernel_before: np.ndarray) -> np.ndarray:
    """[num_items] the kernel before each item, not counting itself."""
    return np.r_[NOTHING_BEFORE, kernel_before[:-1]]


def _latest(nodes: np.ndarray) -> np.ndarray:
    """[num_items] the last node so far."""
    return np.maximum.accumulate(nodes)


def _wait(edges: EdgeList, src: np.ndarray, dst: np.ndarray, lag_class: str) -> None:
    known = src != NOTHING_BEFORE
    edges.add(src[known], dst[known], Relation.WAITS, lag_class)
