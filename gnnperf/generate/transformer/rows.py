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
COPY_OP, MESSAGE = "aten::copy_", "send_recv"
LAUNCH, WAIT, COPY = "cudaLaunchKernel", "cudaDeviceSynchronize", "cudaMemcpyAsync"
TRANSFER_OPS = {"all_reduce": "c10d::allreduce_", "reduce_scatter": "c10d::_reduce_scatter_base_",
                "all_gather": "c10d::_allgather_base_", "all_to_all": "c10d::alltoall_base_",
                "broadcast": "c10d::broadcast_", "send": "c10d::send", "recv": "c10d::recv_",
                MESSAGE: "c10d::send"}  # fmt: skip
F, B = Phase.FORWARD, Phase.BACKWARD
MESSAGE_LANES = {
    ("send", Group.NEXT, F): Lane.SEND_NEXT, ("send", Group.NEXT, B): Lane.RETURN_SEND_NEXT,
    ("recv", Group.NEXT, B): Lane.RECV_NEXT, ("recv", Group.NEXT, F): Lane.RETURN_RECV_NEXT,
    ("send", Group.PREVIOUS, B): Lane.SEND_PREVIOUS, ("send", Group.PREVIOUS, F): Lane.RETURN_SEND_PREVIOUS,
    ("recv", Group.PREVIOUS, F): Lane.RECV_PREVIOUS, ("recv", Group.PREVIOUS, B): Lane.RETURN_RECV_PREVIOUS,
}  # fmt: skip
GATHER_LANES = dict.fromkeys((("all_gather", Group.DATA), ("all_gather", Group.EXPERT_DATA)), Lane.GATHER)
GROUP_LANES = {Group.TENSOR: Lane.TENSOR, Group.DATA: Lane.DATA, Group.EXPERT_DATA: Lane.DATA,
               Group.EXPERT: Lane.EXPERT, Group.EMBEDDING: Lane.EMBEDDING, Group.CONTEXT: Lane.CONTEXT}  # fmt: skip


@dataclass(frozen=True)
class ItemRows:
    """Rows of distinct items."""

    table: pd.DataFrame  # [num_rows] schema.NODE_COLUMNS; ranks and numbers are still to be set
    first: np.ndarray  # [num_items + 1] the rows of item i are first[i] to first[i + 1]


def extents(ways: Parallelism) -> dict[Group, tuple[int, int]]:
    """Ranks of a stage's groups, in the graph or not, and the distance of neighbors."""
    tensor = ways.tensor
    return {
        Group.TENSOR: (tensor, 1), Group.CONTEXT: (ways.context, tensor), Group.DATA: (ways.data_context, tensor),
        Group.EXPERT: (ways.expert, tensor), Group.EXPERT_DATA: (ways.expert_data, tensor * ways.expert),
    }  # fmt: skip


def group_size(group: Group, ways: Parallelism) -> int:
    """Ranks in a transfer's group; of groups of stages two."""
    return extents(ways).get(group, (2, 0))[0]


def transfer_rows(
    transfers: Sequence[Transfer], places: Sequence[tuple[int, int]], ways: Parallelism
) -> pd.DataFrame:  # fmt: skip
    """[num_transfers] nodes of what ranks exchange; `places`: lowest rank of each group and distance of neighbors."""
    direct = [t.kind in ("send", "recv") for t in transfers]
    both = list(zip(transfers, direct, strict=True))
    sizes = [t.message_bytes if t.busiest_bytes is None else t.busiest_bytes for t in transfers]
    return node_table(
        len(transfers), node_type=str(NodeType.COLLECTIVE), family=str(OpFamily.COLLECTIVE),
        op_name=np.array([TRANSFER_OPS["send" if d else t.kind] for t, d in both], dtype=object),
        phase=np.array([str(t.phase) for t in transfers], dtype=object),
        dtype=np.array([t.dtype for t in transfers], dtype=object),
        collective=np.array([MESSAGE if d else t.kind for t, d in both], dtype=object),
        message_bytes=np.array(sizes, dtype=np.float64),
        group_size=np.array([group_size(t.group, ways) for t in transfers], dtype=np.int64),
        group_first=np.array([first for first, _ in places], dtype=np.int64),
        group_stride=np.array([stride for _, stride in places], dtype=np.int64),
    )  # fmt: skip


def lane_of(item: Item) -> Lane | None:
    """Where an item's work on the device runs; None: it has none."""
    if isinstance(item, Transfer):
        kind, group = item.kind, item.group
        return MESSAGE_LANES.get((kind, group, item.phase)) or GATHER_LANES.get((kind, group)) or GROUP_LANES[group]
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
    lane = lane_of(item)
    assert lane is not None, "items with work have a lane"
    part = {
        "node_type": NodeType.COMM, "op_name": TRANSFER_OPS[item.kind], "phase": item.phase,
        "family": OpFamily.COLLECTIVE, "dtype": item.dtype, "device": 0, "stream": int(lane),
        "collective": item.kind, "message_bytes": item.message_bytes, "group_size": group_size(item.group, ways),
    }  # fmt: skip
    return [{**part, "segment": end} for end in (Segment.ARRIVE, Segment.EXIT)]


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
            "dtype": cost.dtype, "input_dims": item.dims, "device": 0, "stream": int(item.lane),
            "flops": cost.flops, "bytes": cost.bytes}  # fmt: skip


def _copy(item: Copy) -> dict[str, object]:
    return {"node_type": NodeType.MEMORY, "op_name": COPY_OP, "event_name": item.name, "phase": item.phase,
            "family": OpFamily.COPY, "dtype": item.dtype, "device": 0, "stream": int(item.lane),
            "bytes": item.moved_bytes}  # fmt: skip
