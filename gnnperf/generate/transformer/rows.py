"""Nodes of each distinct item, once: a program then takes its rows from these.

op         T1 T2 T4 T3   kernel             the call that launches it (T4) is the third of four host segments
transfer   T1 T2 T4 T3   arrive exit
copy       T1 T2 T4 T3   copy
host wait  T4
host work  T1 T5
views      T1 T5 each
events     nothing: what they cost the host is in the segments around them
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, OpFamily, Phase, Segment
from gnnperf.generate.transformer.items import (
    Await,
    Copy,
    Group,
    HostAwait,
    HostWait,
    HostWork,
    Item,
    Lane,
    Op,
    Record,
    Transfer,
    Views,
)
from gnnperf.generate.transformer.plan import Parallelism
from gnnperf.graph import node_table

LAUNCH_SEGMENTS = (Segment.T1, Segment.T2, Segment.T4, Segment.T3)
LAUNCH_AT = LAUNCH_SEGMENTS.index(Segment.T4)
FIRST_WORK = len(LAUNCH_SEGMENTS)  # where an item's device nodes begin
COPY_OP = "aten::copy_"
LAUNCH, WAIT, COPY = "cudaLaunchKernel", "cudaDeviceSynchronize", "cudaMemcpyAsync"
TRANSFER_OPS = {"all_reduce": "c10d::allreduce_", "reduce_scatter": "c10d::_reduce_scatter_base_",
                "all_gather": "c10d::_allgather_base_", "all_to_all": "c10d::alltoall_base_",
                "broadcast": "c10d::broadcast_", "send": "c10d::send", "recv": "c10d::recv_"}  # fmt: skip
STREAMS = {("send", Group.NEXT): Lane.SEND_NEXT, ("recv", Group.NEXT): Lane.RECV_NEXT,
           ("send", Group.PREVIOUS): Lane.SEND_PREVIOUS, ("recv", Group.PREVIOUS): Lane.RECV_PREVIOUS,
           ("all_gather", Group.DATA): Lane.GATHER, ("all_gather", Group.EXPERT_DATA): Lane.GATHER}  # fmt: skip
GROUP_LANES = {Group.TENSOR: Lane.TENSOR, Group.DATA: Lane.DATA, Group.EXPERT_DATA: Lane.DATA,
               Group.EXPERT: Lane.EXPERT, Group.EMBEDDING: Lane.EMBEDDING}  # fmt: skip


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
    several = {Group.TENSOR: ways.tensor, Group.DATA: ways.data, Group.EXPERT: ways.expert,
               Group.EXPERT_DATA: ways.expert_data}  # fmt: skip
    return several.get(group, 2)


def lane_of(item: Item) -> Lane | None:
    """Where an item's work on the device runs; None: it has none."""
    if isinstance(item, Transfer):
        return STREAMS.get((item.kind, item.group)) or GROUP_LANES[item.group]
    return item.lane if isinstance(item, Op | Copy) else None


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
    if isinstance(item, Record | Await):
        return []
    if isinstance(item, HostWait | HostAwait):
        return [_host(WAIT, Segment.T4, item.phase, None)]
    if isinstance(item, Views):
        return [_host(name, segment, item.phase, None) for name in item.names for segment in (Segment.T1, Segment.T5)]
    if isinstance(item, HostWork):
        work = {**_host(item.name, Segment.T5, item.phase, None), "bytes": item.moved_bytes}
        return [_host(item.name, Segment.T1, item.phase, None), work]
    if isinstance(item, Copy):
        return [*_launching(COPY_OP, item.phase, None, COPY), _copy(item)]
    if isinstance(item, Op):
        return [*_launching(item.name, item.phase, item.dims if item.stated_cost is None else None), _kernel(item)]
    return [*_launching(TRANSFER_OPS[item.kind], item.phase, None), *_ends(item, ways)]


def _ends(item: Transfer, ways: Parallelism) -> list[dict[str, object]]:
    part = {
        "node_type": NodeType.COMM, "op_name": TRANSFER_OPS[item.kind], "phase": item.phase,
        "family": OpFamily.COLLECTIVE, "dtype": item.dtype, "device": 0, "stream": _stream(item),
        "collective": item.kind, "message_bytes": item.message_bytes, "group_size": group_size(item.group, ways),
    }  # fmt: skip
    return [{**part, "segment": end} for end in (Segment.ARRIVE, Segment.EXIT)]


def _stream(item: Item) -> int:
    lane = lane_of(item)
    assert lane is not None, "items with work have a lane"
    return int(lane)


def _launching(name: str, phase: Phase, dims: str | None, call: str = LAUNCH) -> list[dict[str, object]]:
    return [_host(name, segment, phase, dims, call) for segment in LAUNCH_SEGMENTS]


def _host(name: str, segment: Segment, phase: Phase, dims: str | None, call: str = LAUNCH) -> dict[str, object]:
    event = WAIT if name == WAIT else call if segment is Segment.T4 else None
    return {"node_type": NodeType.HOST, "op_name": name, "segment": segment, "phase": phase, "thread": 0,
            "family": OpFamily.UNKNOWN, "event_name": event,
            "input_dims": None if segment is Segment.T1 else dims}  # fmt: skip


def _kernel(item: Op) -> dict[str, object]:
    cost = item.cost
    return {"node_type": NodeType.COMPUTE, "op_name": item.name, "phase": item.phase, "family": cost.family,
            "dtype": cost.dtype, "input_dims": item.dims, "device": 0, "stream": _stream(item),
            "flops": cost.flops, "bytes": cost.bytes}  # fmt: skip


def _copy(item: Copy) -> dict[str, object]:
    return {"node_type": NodeType.MEMORY, "op_name": COPY_OP, "event_name": item.name, "phase": item.phase,
            "family": OpFamily.COPY, "dtype": item.dtype, "device": 0, "stream": _stream(item),
            "bytes": item.moved_bytes}  # fmt: skip
