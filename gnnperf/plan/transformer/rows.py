"""Nodes of each distinct item, once: a program then takes its rows from these.

op         T1 T2 T4 T3   kernel             the call that launches it (T4) is the third of four host segments
transfer   T1 T2 T4 T3   arrive exit
host wait  T4
views      T1 T5 each
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.graph.tables import node_table
from gnnperf.plan.transformer.items import Group, HostWait, Item, Op, Views
from gnnperf.plan.transformer.plan import Parallelism
from gnnperf.schema import NodeType, OpFamily, Phase, Segment

LAUNCH_SEGMENTS = (Segment.T1, Segment.T2, Segment.T4, Segment.T3)
LAUNCH_AT = LAUNCH_SEGMENTS.index(Segment.T4)
FIRST_WORK = len(LAUNCH_SEGMENTS)  # where an item's device nodes begin
LAUNCH, WAIT = "cudaLaunchKernel", "cudaDeviceSynchronize"
TRANSFER_OPS = {
    "all_reduce": "c10d::allreduce_",
    "broadcast": "c10d::broadcast_",
    "send": "c10d::send",
    "recv": "c10d::recv_",
}
COMPUTE_STREAM = 0
# Transfers in flight together have streams of their own, so that none of them waits for another's peer.
STREAMS = {("all_reduce", Group.TENSOR): 1, ("all_reduce", Group.DATA): 2, ("all_reduce", Group.EMBEDDING): 3,
           ("send", Group.NEXT): 4, ("recv", Group.NEXT): 5, ("send", Group.PREVIOUS): 6,
           ("recv", Group.PREVIOUS): 7, ("broadcast", Group.DATA): 2}  # fmt: skip


@dataclass(frozen=True)
class ItemRows:
    """Rows of distinct items.

    Attributes:
        table: [num_rows] schema.NODE_COLUMNS; ranks and numbers are still to be set.
        first: [num_items + 1] the rows of item i are first[i] to first[i + 1].
    """

    table: pd.DataFrame
    first: np.ndarray


def group_size(group: Group, ways: Parallelism) -> int:
    """Ranks in a transfer's group, in the graph or not."""
    return {Group.TENSOR: ways.tensor, Group.DATA: ways.data}.get(group, 2)


def item_rows(items: Sequence[Item], ways: Parallelism) -> ItemRows:
    """The rows of distinct items."""
    rows = [_rows(item, ways) for item in items]
    flat = [row for own in rows for row in own]
    names = list(dict.fromkeys(name for row in flat for name in row))
    columns = {name: _column([row.get(name) for row in flat]) for name in names}
    return ItemRows(node_table(len(flat), **columns), np.cumsum([0, *map(len, rows)]))


def _column(values: list[object]) -> np.ndarray:
    """Numbers as numbers, unknown ones as what their column holds for unknown; texts as objects."""
    if any(isinstance(v, str) for v in values):
        return np.array([None if v is None else str(v) for v in values], dtype=object)
    if all(isinstance(v, int | None) for v in values):
        return np.array([-1 if v is None else v for v in values], dtype=np.int64)
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


def _rows(item: Item, ways: Parallelism) -> list[dict[str, object]]:
    if isinstance(item, HostWait):
        return [_host(WAIT, Segment.T4, item.phase, None)]
    if isinstance(item, Views):
        return [_host(name, segment, item.phase, None) for name in item.names for segment in (Segment.T1, Segment.T5)]
    if isinstance(item, Op):
        return [*_launching(item.name, item.phase, item.dims), _kernel(item)]
    name = TRANSFER_OPS[item.kind]
    part = {
        "node_type": NodeType.COMM, "op_name": name, "phase": item.phase, "family": OpFamily.COLLECTIVE,
        "dtype": item.dtype, "device": 0, "stream": STREAMS[item.kind, item.group], "collective": item.kind,
        "message_bytes": item.message_bytes, "group_size": group_size(item.group, ways),
    }  # fmt: skip
    ends: list[dict[str, object]] = [{**part, "segment": end} for end in (Segment.ARRIVE, Segment.EXIT)]
    return [*_launching(name, item.phase, None), *ends]


def _launching(name: str, phase: Phase, dims: str | None) -> list[dict[str, object]]:
    return [_host(name, segment, phase, dims) for segment in LAUNCH_SEGMENTS]


def _host(name: str, segment: Segment, phase: Phase, dims: str | None) -> dict[str, object]:
    call = WAIT if name == WAIT else LAUNCH if segment is Segment.T4 else None
    return {"node_type": NodeType.HOST, "op_name": name, "segment": segment, "phase": phase, "thread": 0,
            "family": OpFamily.UNKNOWN, "event_name": call,
            "input_dims": None if segment is Segment.T1 else dims}  # fmt: skip


def _kernel(item: Op) -> dict[str, object]:
    cost = item.cost
    return {"node_type": NodeType.COMPUTE, "op_name": item.name, "phase": item.phase, "family": cost.family,
            "dtype": cost.dtype, "input_dims": item.dims, "device": 0, "stream": COMPUTE_STREAM,
            "flops": cost.flops, "bytes": cost.bytes}  # fmt: skip
