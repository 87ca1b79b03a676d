"""Nodes of each distinct item, once: programs of all ranks then take their rows from these.

kernel     T1 T2 T4 T3   kernel             the call that launches it (T4) is the third of four host segments
transfer   T1 T2 T4 T3   arrive exit
host wait  T4
views      T1 T5 each
await      nothing
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, OpFamily, Phase, Segment
from gnnperf.generate.recommendation.items import Await, Item, Kernel, Transfer
from gnnperf.generate.transformer.items import HostWait, Lane, Views
from gnnperf.generate.transformer.rows import LAUNCH, LAUNCH_SEGMENTS, WAIT
from gnnperf.graph import node_table

TRANSFER_STREAM = 1
TRANSFER_OPS = {"all_to_all": "c10d::alltoall_base_", "all_reduce": "c10d::allreduce_",
                "all_gather": "c10d::_allgather_base_", "reduce_scatter": "c10d::_reduce_scatter_base_"}  # fmt: skip
Row = dict[str, object]


def item_rows(items: Sequence[Item], group_size: int) -> tuple[pd.DataFrame, np.ndarray]:
    """[num_rows] schema.NODE_COLUMNS without ranks, and [num_items + 1] where the rows of each item begin."""
    rows = [_rows(item, group_size) for item in items]
    flat = [row for own in rows for row in own]
    names = list(dict.fromkeys(name for row in flat for name in row))
    columns = {name: _column([row.get(name) for row in flat]) for name in names}
    return node_table(len(flat), **columns), np.cumsum([0, *map(len, rows)])


def _column(values: list[object]) -> np.ndarray:
    """Numbers as numbers, unknown ones as what their column holds for unknown; texts as objects."""
    if any(isinstance(v, str) for v in values):
        return np.array([None if v is None else str(v) for v in values], dtype=object)
    if all(isinstance(v, int | None) for v in values):
        return np.array([-1 if v is None else v for v in values], dtype=np.int64)
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


def _rows(item: Item, group_size: int) -> list[Row]:
    if isinstance(item, Await):
        return []
    if isinstance(item, HostWait):
        return [_host(WAIT, Segment.T4, item.phase, WAIT)]
    if isinstance(item, Views):
        return [_host(name, segment, item.phase) for name in item.names for segment in (Segment.T1, Segment.T5)]
    if isinstance(item, Transfer):
        return [*_launching(TRANSFER_OPS[item.kind], item.phase), *_ends(item, group_size)]
    return [*_launching(item.name, item.phase), _kernel(item)]


def _launching(name: str, phase: Phase) -> list[Row]:
    return [_host(name, segment, phase, LAUNCH if segment is Segment.T4 else None) for segment in LAUNCH_SEGMENTS]


def _host(name: str, segment: Segment, phase: Phase, call: str | None = None) -> Row:
    return {"node_type": NodeType.HOST, "op_name": name, "segment": segment, "phase": phase, "thread": 0,
            "family": OpFamily.UNKNOWN, "event_name": call}  # fmt: skip


def _ends(item: Transfer, group_size: int) -> list[Row]:
    part: Row = {
        "node_type": NodeType.COMM, "op_name": TRANSFER_OPS[item.kind], "phase": item.phase,
        "family": OpFamily.COLLECTIVE, "dtype": item.dtype, "device": 0, "stream": TRANSFER_STREAM,
        "collective": item.kind, "message_bytes": item.message_bytes, "group_size": group_size,
    }  # fmt: skip
    return [{**part, "segment": end} for end in (Segment.ARRIVE, Segment.EXIT)]


def _kernel(item: Kernel) -> Row:
    cost = item.cost
    return {"node_type": NodeType.COMPUTE, "op_name": item.name, "phase": item.phase, "family": cost.family,
            "dtype": cost.dtype, "input_dims": item.dims, "device": 0, "stream": int(Lane.COMPUTE),
            "flops": cost.flops, "bytes": cost.bytes}  # fmt: skip
