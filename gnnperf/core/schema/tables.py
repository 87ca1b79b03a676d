"""Columns of the tables: events, nodes, edges, predictions; the check of a table that enters a package."""

from dataclasses import dataclass, replace

import pandas as pd

from gnnperf.core.errors import InputError


@dataclass(frozen=True)
class Column:
    """One column of a table: its numpy or pandas dtype, its unit and what it means."""

    name: str
    dtype: str
    unit: str
    meaning: str


def names(columns: tuple[Column, ...]) -> tuple[str, ...]:
    """Their names, in order."""
    return tuple(column.name for column in columns)


def validate(frame: pd.DataFrame, columns: tuple[Column, ...], where: str) -> None:
    """Refuse a table without these columns, or with other dtypes, where it enters a package."""
    dtypes = dict(frame.dtypes.items())
    for column in columns:
        if column.name not in dtypes:
            raise InputError(f"column {column.name!r} is missing", where=where, allowed=", ".join(names(columns)))
        result = str(dtypes[column.name])
        if result != column.dtype and (column.dtype, result) != ("str", "object"):
            raise InputError(f"column {column.name!r} has dtype {result}", where=where, allowed=column.dtype)


LAUNCH_COLUMNS = (  # how a kernel was launched: evidence of measurements, no features
    Column("grid", "category", "", "JSON list of a kernel's blocks per axis; null unknown"),
    Column("block", "category", "", "JSON list of threads of a block per axis; null unknown"),
    Column("registers", "int32", "", "registers of a thread; -1 unknown"),
    Column("shared_bytes", "int64", "bytes", "shared memory of a block; -1 unknown"),
    Column("occupancy_percent", "int32", "percent", "occupancy that the profiler estimates; -1 unknown"),
)

EVENT_COLUMNS = (
    Column("event_id", "int64", "", "row number; events are sorted by start_ns, longer first"),
    Column("kind", "category", "", "EventKind"),
    Column("name", "category", "", "name as the profiler wrote it"),
    Column("start_ns", "int64", "ns", "start, relative to the table's base_time_ns"),
    Column("duration_ns", "int64", "ns", "duration"),
    Column("thread", "int64", "", "host thread; -1 for device work"),
    Column("device", "int32", "", "device ordinal; -1 for host events"),
    Column("stream", "int64", "", "device stream; for sync: the stream waited for; -1 unknown"),
    Column("correlation", "int64", "", "runtime call <-> device work; -1 unknown"),
    Column("external_id", "int64", "", "the file's own id linking device work to CPU ops; -1 unknown"),
    Column("sequence", "int64", "", "autograd sequence number; -1 none"),
    Column("forward_event", "int64", "", "event_id of the forward op of this backward op; -1 none"),
    Column("op_event", "int64", "", "event_id of the innermost CPU op this belongs to; -1 none"),
    Column("launch_event", "int64", "", "device work: event_id of the runtime call that launched it; -1 none"),
    Column("link", "category", "", "Link: how op_event was determined; null on host events"),
    Column("wait_event", "int64", "", "sync: correlation of the call that recorded the awaited event; -1 unknown"),
    Column("waiting_stream", "int64", "", "the stream that a stream wait holds back; -1 unknown"),
    Column("input_dims", "category", "", "JSON list of input shapes, one per argument; null unknown"),
    Column("input_types", "category", "", "JSON list of input dtypes; null unknown"),
    Column("input_values", "category", "", "JSON list of scalar inputs (strides, axes); null unknown"),
    Column("bytes", "float64", "bytes", "bytes moved by a copy or memset; NaN unknown"),
    Column("collective", "category", "", "all_reduce, all_to_all, ...; null if not a collective"),
    Column("group", "category", "", "process group: its ranks as text if known, else its name; null unknown"),
    Column("group_size", "int32", "", "number of ranks in the group; -1 unknown"),
    Column("in_elements", "float64", "elements", "elements this rank sends; NaN unknown"),
    Column("out_elements", "float64", "elements", "elements this rank receives; NaN unknown"),
    Column("comm_dtype", "category", "", "dtype of the message; null unknown"),
    *LAUNCH_COLUMNS,
)

NODE_COLUMNS = (
    Column("node_id", "int64", "", "row number"),
    Column("node_type", "category", "", "NodeType"),
    Column("rank", "int32", "", "rank; -1 for collective, link"),
    Column("step", "int32", "", "ordinal of the step in the window, from 0; -1 outside whole steps"),
    Column("thread", "int64", "", "host thread ordinal of the rank (0 = main); -1 none"),
    Column("device", "int32", "", "device ordinal; -1 none"),
    Column("stream", "int64", "", "stream ordinal of the rank by first use; -1 none"),
    Column("op_name", "category", "", "CPU op this work belongs to (host: the op of the segment)"),
    Column("event_name", "category", "", "kernel, call, annotation; no feature (the base reads call and copy names)"),
    Column("segment", "category", "", "Segment; null on device work"),
    Column("phase", "category", "", "Phase"),
    Column("family", "category", "", "OpFamily"),
    Column("dtype", "category", "", "dtype of the op's largest input; null unknown"),
    Column("input_dims", "category", "", "JSON list of input shapes; null unknown"),
    Column("ordinal", "int32", "", "position among the kernels of one op call, from 0"),
    Column("num_siblings", "int32", "", "number of kernels of that op call"),
    Column("flops", "float64", "flop", "FLOPs of the node (its share of the op call); NaN unknown"),
    Column("bytes", "float64", "bytes", "bytes read and written (its share); copies: bytes moved; NaN unknown"),
    Column(
        "message_bytes", "float64", "bytes", "collective: bytes each rank sends, of an even one as long; NaN unknown"
    ),
    Column("group_size", "int32", "", "collective: number of ranks; -1 unknown"),
    Column("group_first", "int32", "", "collective: lowest rank of the group; -1 unknown"),
    Column("group_stride", "int32", "", "collective: from one rank of the group to the next; -1 unknown or uneven"),
    Column("collective", "category", "", "kind of collective; null otherwise"),
    Column("opened_ops", "int32", "", "op events the profiler opened during this host time; no feature: its own cost"),
    Column("opened_ranges", "int32", "", "annotations the profiler opened during this host time; no feature"),
    *LAUNCH_COLUMNS,
    Column("event_id", "int64", "", "row in the rank's TraceTable; -1 derived"),
    Column("content_key", "int64", "", "hash of lane, op, segment and kernel, whatever the shapes: aligns steps"),
    Column("start_us", "float64", "us", "LABEL: measured start, common clock; NaN unknown"),
    Column("latency_us", "float64", "us", "LABEL: own time, without waits; NaN unknown"),
    Column("blocked_us", "float64", "us", "LABEL: time spent waiting inside the measured interval; 0 if none"),
)

EVIDENCE_COLUMNS = tuple(column.name for column in LAUNCH_COLUMNS)  # of nodes: for classes of measurements only
LABEL_COLUMNS = ("start_us", "latency_us", "blocked_us", "event_id")

EDGE_COLUMNS = (
    Column("src", "int64", "", "node_id"),
    Column("dst", "int64", "", "node_id"),
    Column("relation", "category", "", "Relation"),
    Column("evidence", "category", "", "Evidence"),
    Column("lag_class", "category", "", "which constant delays the edge; null for none"),
    Column("lag_us", "float64", "us", "LABEL: measured delay along the edge if it was binding; NaN otherwise"),
)

OF_NODES = ("node_id", "rank", "node_type", "op_name", "event_name", "segment", "phase", "family", "dtype",
            "input_dims", "message_bytes", "thread", "stream", "flops", "bytes")  # fmt: skip

PREDICTION_COLUMNS = (
    *(
        replace(column, dtype="str" if column.dtype == "category" else column.dtype)
        for name in OF_NODES
        for column in NODE_COLUMNS
        if column.name == name
    ),
    Column("transfer", "int64", "", "node_id of the transfer that a rank's part in a collective belongs to; -1 none"),
    Column("start_us", "float64", "us", "predicted start"),
    Column("latency_us", "float64", "us", "predicted latency; NaN if uncovered"),
    Column(
        "mean_latency_us", "float64", "us", "what the step adds up: in steps of about the median time; NaN if uncovered"
    ),
    Column("latency_low_us", "float64", "us", "lower end of the interval; NaN: the error is unknown"),
    Column("latency_high_us", "float64", "us", "upper end of the interval"),
    Column("measured_start_us", "float64", "us", "measured start since that of the step; NaN unknown"),
    Column("measured_latency_us", "float64", "us", "measured latency; NaN unknown"),
    Column("measured_wait_us", "float64", "us", "measured wait of a blocking call before its own time; NaN unknown"),
    Column("analytic_latency_us", "float64", "us", "the analytical model's prediction; NaN if it has none"),
    Column("bound", "str", "", "the largest part of a compute node's analytical latency: Bound"),
    Column("source", "str", "", "Source"),
    Column("reason", "str", "", "why it has this source"),
    Column("on_critical_path", "bool", "", "whether the step time changes with this node"),
    Column("critical_us", "float64", "us", "time the critical path spends at the node; they add up to the step"),
)
