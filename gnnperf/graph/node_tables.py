"""Host pieces and device works as rows of the node table."""

from dataclasses import replace

import numpy as np
import pandas as pd

from gnnperf.core import EventKind, NodeType, OpFamily, Phase, Segment, schema
from gnnperf.graph.cost import fused_name, op_family
from gnnperf.graph.cost.op_call import DTYPE_BYTES
from gnnperf.graph.event_columns import PHASES, RankEvents, by_category
from gnnperf.graph.execution_graph import STEP_END
from gnnperf.graph.host import SEGMENTS, Pieces
from gnnperf.graph.op_costs import OpCosts, launching_op_costs, whole_op_costs
from gnnperf.graph.tables import content_keys, node_table, text
from gnnperf.graph.works import Works

# Kernels that Inductor fused, where no op has their sizes: what their own names contain.
#
# triton_poi_fused_add_mul_0, triton_red_fused_..., triton_per_fused_...: the name shows the family and the ops. It does
# not tell sizes: they are taken from ops of that name elsewhere in the trace, if all of them have the same. Names are
# those of one torch version and one compiled program, so nothing is carried from one trace to another.


def by_kernel_name(events: RankEvents, kernel: np.ndarray, costs: OpCosts) -> OpCosts:
    """Costs [n] with family and sizes of fused kernels that no formula covers yet; `kernel` [n] are event ids or -1."""
    name = fused_names(events)  # [num_events]
    requested = np.flatnonzero((kernel >= 0) & (name[kernel] != "") & (costs.event < 0))
    if not len(requested):
        return costs
    names = name[kernel[requested]].tolist()
    ops = _ops_of_one_size(events, name)
    given = launching_op_costs(events, np.array([ops.get(one, -1) for one in names]))
    family = np.array([str(op_family(one)) for one in names], dtype=object)
    results = replace(costs, event=costs.event.copy(), flops=costs.flops.copy(), bytes=costs.bytes.copy(),
                    family=costs.family.copy(), dtype=costs.dtype.copy())  # fmt: skip
    results.event[requested], results.flops[requested], results.bytes[requested] = given.event, given.flops, given.bytes
    results.family[requested], results.dtype[requested] = family, given.dtype
    return results


def fused_names(events: RankEvents) -> np.ndarray:
    """[num_events] object, what Inductor called each event; "" of everything else."""
    return by_category(events.table.events["name"], lambda name: fused_name(name) or "", object)


def _ops_of_one_size(events: RankEvents, name: np.ndarray) -> dict[str, int]:
    """Name -> an op of that name, where all ops of the name have the same shapes and types."""
    frame = events.table.events
    ops = np.flatnonzero((name != "") & events.is_op)
    sizes = np.stack([schema.codes_of(frame[column])[ops] for column in ("input_dims", "input_types")])  # [2, n]
    results: dict[str, int] = {}
    for one in set(name[ops].tolist()):
        places = np.flatnonzero(name[ops] == one)
        if (sizes[:, places] == sizes[:, places[:1]]).all():
            results[one] = int(ops[places[0]])
    return results


# How many profiler events open in each stretch of host time: each cost time that the program by itself does not take.
#
# thread  ---|  op A                          |--|  op B  |---
#            ^   |op A1|   |op A2|               ^
#     T1: A  |   A1 and A2 open in A             |  T1: B
# The profiler reads the clock last when an event opens and first when it closes, so what an event costs lies outside of
# its own interval: in what comes before it, or in the op around it.


def opened_events(events: RankEvents, pieces: Pieces, kind: EventKind) -> np.ndarray:
    """[num_pieces] int32, host events of a kind that open in each piece: after its begin, at the latest at its end.

    An event that opens where its thread has no piece (before its first op, or while it idles) is counted nowhere.
    """
    opened = np.flatnonzero(events.is_kind(kind) & (events.thread >= 0))
    order = np.lexsort((pieces.begin_ns, pieces.end_ns, pieces.thread))  # a piece of no length after what it follows
    results = [order[:0]]
    for thread in pd.unique(pieces.thread).tolist():
        own = order[pieces.thread[order] == thread]
        start = events.start_ns[opened[events.thread[opened] == thread]]
        results.append(_pieces_at(pieces, own, start))
    return np.bincount(np.concatenate(results), minlength=len(pieces)).astype(np.int32)


def _pieces_at(pieces: Pieces, own: np.ndarray, moment_ns: np.ndarray) -> np.ndarray:
    """Pieces of one thread, sorted by end, around or at the end of which each moment lies; others are left out."""
    end = pieces.end_ns[own]
    slot = np.searchsorted(end, moment_ns, side="right")
    slot -= (slot > 0) & (end[np.maximum(slot - 1, 0)] == moment_ns)
    moment_ns, piece = moment_ns[slot < len(own)], own[slot[slot < len(own)]]
    begin = pieces.begin_ns[piece]
    # What opens where a piece begins is the piece itself, unless that has no length.
    return piece[(begin < moment_ns) | ((begin == moment_ns) & (pieces.end_ns[piece] == begin))]


_WORK_TYPES = (NodeType.COMM, NodeType.COMPUTE, NodeType.MEMORY)
_COMM, _COMPUTE, _MEMORY = range(len(_WORK_TYPES))
_HOST_CONTENT = ("node_type", "thread", "op_name", "segment", "event_name")
_WORK_CONTENT = ("node_type", "stream", "op_name", "segment", "event_name", "ordinal")
_NULL = np.array(None, dtype=object)  # what np.where puts where a text is unknown
_OTHER = PHASES.index(Phase.OTHER)
_NO_CPU_WORK = (OpFamily.VIEW, OpFamily.UNKNOWN, OpFamily.COLLECTIVE)


def host_table(
    events: RankEvents, pieces: Pieces, step: np.ndarray, main_thread: int, free_ns: np.ndarray, *, device_is_cpu: bool
) -> pd.DataFrame:
    """[num_pieces] nodes. On a CPU device an op that computes is `compute`, in its thread's chain.

    Until `free_ns` a piece waits for device work, which is no part of its latency.
    """
    columns, computes = _op_columns(events, pieces) if device_is_cpu else (_ON_HOST, False)
    t1 = pieces.is_segment(Segment.T1)
    phase = np.where(pieces.op >= 0, events.phase[pieces.op], _OTHER)
    others = np.setdiff1d(pd.unique(pieces.thread), [main_thread])  # threads by number, after the main one
    table = node_table(
        len(pieces),
        rank=events.rank, step=step,
        thread=np.where(pieces.thread == main_thread, 0, 1 + np.searchsorted(others, pieces.thread)),
        op_name=_taken(events.table.events["name"], pieces.op, missing=STEP_END),
        event_name=_taken(events.table.events["name"], pieces.call),
        segment=schema.in_use(np.where(computes, -1, pieces.segment), SEGMENTS),
        phase=schema.in_use(phase, PHASES),
        input_dims=_taken(events.table.events["input_dims"], np.where(t1, -1, pieces.op)),
        opened_ops=opened_events(events, pieces, EventKind.CPU_OP),
        opened_ranges=opened_events(events, pieces, EventKind.ANNOTATION),
        event_id=np.where(pieces.call >= 0, pieces.call, np.where(t1, -1, pieces.op)),
        start_us=pieces.begin_ns / 1000.0 + (free_ns - pieces.begin_ns) / 1000.0,
        latency_us=(pieces.end_ns - free_ns) / 1000.0,
        blocked_us=(free_ns - pieces.begin_ns) / 1000.0,
        **columns,
    )  # fmt: skip
    return table.assign(content_key=content_keys(table, _HOST_CONTENT))


_ON_HOST: dict[str, object] = {"node_type": NodeType.HOST, "family": OpFamily.UNKNOWN}


def _op_columns(events: RankEvents, pieces: Pieces) -> tuple[dict[str, object], np.ndarray]:
    """Columns of host pieces where ops compute on the CPU, and [num_pieces] bool which do."""
    whole_op = pieces.is_segment(Segment.T5) & (pieces.inner == 1)
    costs = whole_op_costs(events, np.where(whole_op, pieces.op, -1))
    computes = whole_op & ~np.isin(costs.family, [str(f) for f in _NO_CPU_WORK])
    return {
        "node_type": np.where(computes, text(NodeType.COMPUTE), text(NodeType.HOST)),
        "device": np.where(computes, 0, -1),
        "family": np.where(whole_op, costs.family, text(OpFamily.UNKNOWN)),
        "dtype": np.where(whole_op, costs.dtype, _NULL),
        "flops": np.where(computes, costs.flops, np.nan),
        "bytes": np.where(computes, costs.bytes, np.nan),
    }, computes


def work_table(
    events: RankEvents, works: Works, step: np.ndarray, offset: int
) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Nodes of works, two (arrive, exit) for communication; [num_works] first and last node id, from `offset`."""
    work = np.repeat(np.arange(len(works)), np.where(works.is_comm, 2, 1))  # [num_nodes]
    last = offset + np.cumsum(np.where(works.is_comm, 2, 1)) - 1
    first = np.where(works.is_comm, last - 1, last)
    is_exit = np.r_[False, work[1:] == work[:-1]][: len(work)]
    comm, copy = works.is_comm[work], works.is_copy[work]
    moves = works.is_comm | works.is_copy
    costs = launching_op_costs(events, np.where(moves, -1, works.recorded_op))
    costs = by_kernel_name(events, np.where(moves | (works.num_kernels > 1), -1, works.event), costs)
    names = events.name[works.event].copy()
    for i in np.flatnonzero(works.num_kernels > 1):  # a graph launch
        names[i] = f"{events.name[works.call[i]]}[{works.num_kernels[i]} kernels]"
    event = np.where(works.recorded_op >= 0, works.recorded_op, works.call)
    inductor = np.where(works.num_kernels == 1, fused_names(events)[works.event], "")
    # The op whose cost is known, else what Inductor calls the kernel, the innermost op, the call.
    op_name = np.where(inductor != "", inductor, np.where(event >= 0, events.name[event], _NULL))
    op_name = np.where(costs.event >= 0, events.name[costs.event], op_name)
    share = works.num_siblings[work]
    duration_ns = (works.end_ns - works.begin_ns).astype(np.float64)
    tick_ns = 1000.0 if len(duration_ns) and not (works.begin_ns % 1000).any() else 1.0  # the clock's resolution
    duration_us = (np.where(duration_ns == 0, tick_ns / 2, duration_ns) / 1000.0)[work]
    moved = events.column("bytes", works.event)[work]
    fused = works.num_kernels[work] > 1
    family = np.select([comm, copy], [text(OpFamily.COLLECTIVE), text(OpFamily.COPY)], costs.family[work])
    table = node_table(
        len(work),
        node_type=schema.in_use(np.select([comm, copy], [_COMM, _MEMORY], _COMPUTE), _WORK_TYPES),
        rank=events.rank, step=step[work], device=works.device[work], stream=works.stream[work],
        op_name=op_name[work],
        event_name=names[work],
        segment=schema.in_use(np.where(comm, is_exit, -1), (Segment.ARRIVE, Segment.EXIT)),
        phase=schema.in_use(np.where(works.recorded_op >= 0, events.phase[works.recorded_op], _OTHER)[work], PHASES),
        family=family,
        dtype=np.where(comm, events.column("comm_dtype", works.event)[work], costs.dtype[work]),
        input_dims=_taken(events.table.events["input_dims"], np.where(copy | comm, -1, costs.event[work])),
        ordinal=works.ordinal[work], num_siblings=share,
        flops=np.where(copy, 0.0, np.where(fused | comm, np.nan, costs.flops[work] / share)),
        bytes=np.where(copy, moved, np.where(fused | comm, np.nan, costs.bytes[work] / share)),
        message_bytes=np.where(comm, message_bytes(events, works.event)[work], np.nan),
        group_size=np.where(comm, events.column("group_size", works.event)[work], -1),
        collective=np.where(comm, events.column("collective", works.event)[work], _NULL),
        **_launches(events, np.where(comm | copy | fused, -1, works.event[work])),
        event_id=works.event[work],
        start_us=np.where(is_exit, works.end_ns[work], works.begin_ns[work]) / 1000.0,
        latency_us=np.where(comm, 0.0, duration_us),
    )  # fmt: skip
    return table.assign(content_key=content_keys(table, _WORK_CONTENT)), first, last


def _launches(events: RankEvents, kernel: np.ndarray) -> dict[str, object]:
    """The columns of schema.LAUNCH_COLUMNS for kernels [n] (event id; -1 is no single kernel)."""
    frame = events.table.events
    result: dict[str, object] = {}
    for column in schema.LAUNCH_COLUMNS:
        if column.dtype == "category":
            result[column.name] = _taken(frame[column.name], kernel)
        else:
            result[column.name] = np.where(kernel >= 0, frame[column.name].to_numpy()[kernel], -1)
    return result


def message_bytes(events: RankEvents, event: np.ndarray) -> np.ndarray:
    """[n] bytes each rank sends into the collectives of events [n]; NaN unknown.

    What a rank receives stands in where only that is known, unless the kind makes the two differ.
    """
    kind = events.table.events["collective"].iloc[event]
    uneven = by_category(kind, lambda kind: kind in ("all_gather", "reduce_scatter"), bool)
    sent, received = events.column("in_elements", event), events.column("out_elements", event)
    return np.where(np.isnan(sent) & ~uneven, received, sent) * item_bytes(events, event)


def item_bytes(events: RankEvents, event: np.ndarray) -> np.ndarray:
    """[n] bytes per element of the messages of events [n]; NaN unknown."""
    dtypes = events.table.events["comm_dtype"].iloc[event]
    return by_category(dtypes, lambda dtype: DTYPE_BYTES.get(dtype, np.nan), np.float64)


def _taken(series: pd.Series, index: np.ndarray, missing: str | None = None) -> pd.Categorical:
    """[n] values of a categorical column at event ids; `missing` (or null) where the id is -1."""
    texts = schema.categories_of(series)
    other = -1
    if missing is not None:
        texts = [*texts, missing] if missing not in texts else texts
        other = texts.index(missing)
    return schema.in_use(np.where(index >= 0, schema.codes_of(series)[index], other), texts)
