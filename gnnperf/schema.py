"""The vocabulary: every node type, relation and column, with dtype, unit and meaning.

All rooms speak these words. Unknown is NaN (floats), None (strings) or -1 (identifiers), never 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd

from gnnperf.errors import InputError


class EventKind(StrEnum):
    """What one row of a TraceTable is."""

    CPU_OP = "cpu_op"  # an operator on a host thread
    ANNOTATION = "annotation"  # a named range on a host thread (ProfilerStep#3, nccl:all_reduce, user code)
    RUNTIME = "runtime"  # a CUDA/HIP runtime or driver call on a host thread
    KERNEL = "kernel"  # device work
    MEMCPY = "memcpy"  # device work
    MEMSET = "memset"  # device work
    SYNC = "sync"  # a cuda_sync event: which stream or event a wait refers to


DEVICE_KINDS = (EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET)


class Link(StrEnum):
    """How a device event or runtime call found the CPU op it belongs to."""

    EXTERNAL_ID = "external_id"  # the file's true id of the CPU op
    CORRELATION = "correlation"  # correlation -> runtime call -> innermost enclosing CPU op of that thread
    BEFORE_WINDOW = "before_window"  # launched before the profiler's window: a class of its own
    NONE = "none"  # launch in the file, but no CPU op encloses it


class NodeType(StrEnum):
    """Node types of the ExecutionGraph (ARCHITECTURE.md, "The execution graph")."""

    HOST = "host"
    COMPUTE = "compute"
    MEMORY = "memory"
    COMM = "comm"
    COLLECTIVE = "collective"
    DEVICE = "device"
    LINK = "link"


WORK_TYPES = (NodeType.HOST, NodeType.COMPUTE, NodeType.MEMORY, NodeType.COMM, NodeType.COLLECTIVE)


class Segment(StrEnum):
    """The five host overheads (Lin et al. 2022, section 3.2), the two ends of a rank's part in a collective."""

    T1 = "T1"  # between ops
    T2 = "T2"  # in an op, before its first launch
    T3 = "T3"  # in an op, after its last launch
    T4 = "T4"  # the launch call itself (any runtime call)
    T5 = "T5"  # in an op, between launches; or the whole op if it launches nothing
    PEER_WAIT = "peer_wait"  # waiting for ranks that were not traced; label unknown
    ARRIVE = "arrive"  # comm: the rank has reached the collective (latency 0 unless measured)
    EXIT = "exit"  # comm: from the end of the transfer until this rank is released


class Relation(StrEnum):
    """Edge types of the ExecutionGraph. Reverse relations are `rev_` + name and exist in `data` only."""

    FOLLOWS = "follows"  # same thread or same stream
    LAUNCHES = "launches"  # host -> device work; constrains START to START
    WAITS = "waits"  # device -> host (synchronizing call), device -> device (event), host -> host (thread fork/join)
    FEEDS = "feeds"  # tensor data dependency
    JOINS = "joins"  # comm(arrive) -> collective
    RELEASES = "releases"  # collective -> comm(exit)
    RUNS_ON = "runs_on"  # work -> device
    CROSSES = "crosses"  # comm, memory -> link
    CONNECTS = "connects"  # link -> device


TIMED_RELATIONS = (Relation.FOLLOWS, Relation.LAUNCHES, Relation.WAITS, Relation.JOINS, Relation.RELEASES)


class Evidence(StrEnum):
    """Why an edge is believed."""

    ID = "id"  # the trace names both ends
    ORDER = "order"  # follows from program order or nesting; survives any order-preserving time warp
    TIMING = "timing"  # inferred from time distances: replay only, absent from graphs that predictors get


class Phase(StrEnum):
    """Part of the training step an op belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    OTHER = "other"


class Source(StrEnum):
    """Where a node's latency came from, best first."""

    MEASURED = "measured"
    GNN = "gnn"
    GNN_CALIBRATED = "gnn_calibrated"
    ANALYTIC = "analytic"
    DECLARED = "declared"  # set by an edit (whatif)
    UNCOVERED = "uncovered"
    CLASS_MEDIAN = "class_median"  # replay only: the median of the node's class on other steps or ranks


class StepTimeKind(StrEnum):
    """The three step labels. They are different quantities and never compared with each other."""

    PERIOD = "period"  # C(k) - C(k-1), C = completion of step k; needs two steps
    MAKESPAN = "makespan"  # latest C(k) minus earliest rank start of step k
    WINDOW = "window"  # a trace without step marks: first start to last end


class OpFamily(StrEnum):
    """Families of ops that share a cost formula."""

    GEMM = "gemm"
    CONV = "conv"
    ATTENTION = "attention"
    NORM = "norm"
    SOFTMAX = "softmax"
    REDUCTION = "reduction"
    ELEMENTWISE = "elementwise"
    EMBEDDING = "embedding"
    POOLING = "pooling"
    OPTIMIZER = "optimizer"
    COPY = "copy"
    INDEXING = "indexing"
    RANDOM = "random"
    LOSS = "loss"
    COLLECTIVE = "collective"
    VIEW = "view"  # touches no memory
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Column:
    """One column of a table: its numpy or pandas dtype, its unit and what it means."""

    name: str
    dtype: str
    unit: str
    meaning: str


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
    Column("link", "category", "", "Link: how op_event was found; null on host events"),
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
    Column(
        "event_name",
        "category",
        "",
        "kernel, call, annotation; no feature (the base reads call and copy names)",
    ),
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
        "message_bytes",
        "float64",
        "bytes",
        "collective: bytes each rank sends, of an even one as long; NaN unknown",
    ),
    Column("group_size", "int32", "", "collective: number of ranks; -1 unknown"),
    Column("group_first", "int32", "", "collective: lowest rank of the group; -1 unknown"),
    Column("group_stride", "int32", "", "collective: from one rank of the group to the next; -1 unknown or uneven"),
    Column("collective", "category", "", "kind of collective; null otherwise"),
    Column("opened_ops", "int32", "", "op events the profiler opened during this host time; no feature: its own cost"),
    Column("opened_ranges", "int32", "", "annotations the profiler opened during this host time; no feature"),
    Column("event_id", "int64", "", "row in the rank's TraceTable; -1 derived"),
    Column("content_key", "int64", "", "hash of lane, op, segment and kernel, whatever the shapes: aligns steps"),
    Column("start_us", "float64", "us", "LABEL: measured start, common clock; NaN unknown"),
    Column("latency_us", "float64", "us", "LABEL: own time, without waits; NaN unknown"),
    Column("blocked_us", "float64", "us", "LABEL: time spent waiting inside the measured interval; 0 if none"),
)

LABEL_COLUMNS = ("start_us", "latency_us", "blocked_us", "event_id")

EDGE_COLUMNS = (
    Column("src", "int64", "", "node_id"),
    Column("dst", "int64", "", "node_id"),
    Column("relation", "category", "", "Relation"),
    Column("evidence", "category", "", "Evidence"),
    Column("lag_class", "category", "", "which constant delays the edge; null for none"),
    Column("lag_us", "float64", "us", "LABEL: measured delay along the edge if it was binding; NaN otherwise"),
)

PREDICTION_COLUMNS = (
    Column("node_id", "int64", "", "row number in the graph"),
    Column("rank", "int32", "", "rank; -1 for collectives"),
    Column("node_type", "str", "", "NodeType"),
    Column("op_name", "str", "", "CPU op"),
    Column("segment", "str", "", "Segment"),
    Column("stream", "int64", "", "stream ordinal; -1 none"),
    Column("start_us", "float64", "us", "predicted start"),
    Column("latency_us", "float64", "us", "predicted latency; NaN if uncovered"),
    Column("mean_latency_us", "float64", "us", "on average, stalls included: what the step adds up; NaN if uncovered"),
    Column("latency_low_us", "float64", "us", "lower end of the interval; NaN until intervals ship"),
    Column("latency_high_us", "float64", "us", "upper end of the interval"),
    Column("measured_latency_us", "float64", "us", "measured latency; NaN unknown"),
    Column("analytic_latency_us", "float64", "us", "the analytical model's answer; NaN if it has none"),
    Column("source", "str", "", "Source"),
    Column("on_critical_path", "bool", "", "whether the step time changes with this node"),
)


# What the network knows of a node before the run (gnnperf.data). Unknown is 0 beside a flag that says so.
WORK_FEATURES = (
    Column("log_flops", "float32", "log flop", "FLOPs of the node"),
    Column("log_bytes", "float32", "log bytes", "bytes read and written"),
    Column("log_message_bytes", "float32", "log bytes", "bytes each rank sends in a collective"),
    Column("flops_unknown", "float32", "", "1: FLOPs unknown"),
    Column("bytes_unknown", "float32", "", "1: bytes unknown"),
    Column("message_bytes_unknown", "float32", "", "1: no collective, or its message unknown"),
    Column("log_intensity", "float32", "log flop/byte", "FLOPs per byte"),
    Column("log_num_inputs", "float32", "log", "tensors among the arguments"),
    Column("max_dims", "float32", "", "dimensions of the argument that has most"),
    Column("log_elements", "float32", "log elements", "of all arguments"),
    Column("log_largest", "float32", "log elements", "of the largest argument"),
    Column("log_second", "float32", "log elements", "of the second largest argument"),
    Column("log_first_dim", "float32", "log", "first dimension of the largest argument"),
    Column("log_last_dim", "float32", "log", "last dimension of the largest argument"),
    Column("dims_unknown", "float32", "", "1: shapes unknown"),
    Column("is_product", "float32", "", "1: a matrix product whose sizes are known"),
    Column("log_batch", "float32", "log", "products: how many of them"),
    Column("log_m", "float32", "log", "products: rows of the result"),
    Column("log_n", "float32", "log", "products: columns of the result"),
    Column("log_k", "float32", "log", "products: length of the sums"),
    Column("align_m", "float32", "log2", "largest power of two that divides m, up to 64"),
    Column("align_n", "float32", "log2", "... n"),
    Column("align_k", "float32", "log2", "... k"),
    Column("align_last_dim", "float32", "log2", "... the last dimension of the largest argument"),
    Column("log_waves", "float32", "log", "tiles of 128 x 128 (else blocks of 1024 elements) per SM"),
    Column("wave_efficiency", "float32", "", "waves / whole waves: how full the last one is"),
    Column("log_compute_us", "float32", "log us", "FLOPs / sustained rate of the dtype"),
    Column("log_memory_us", "float32", "log us", "bytes / sustained bandwidth"),
    Column("is_memory_bound", "float32", "", "1: the second is the longer one"),
    Column("log_bytes_per_cache", "float32", "log", "bytes / last-level cache"),
    Column("log_moved_between", "float32", "log bytes", "moved by this thread since it last ran the op: cold caches"),
    Column("log_ordinal", "float32", "log", "position among the kernels of its op call"),
    Column("log_num_siblings", "float32", "log", "kernels of its op call"),
    Column("log_from_first", "float32", "log", "nodes of its lane before it in the step"),
    Column("log_to_last", "float32", "log", "nodes of its lane after it in the step"),
    Column("log_analytic_us", "float32", "log us", "the analytical model's answer"),
    Column("analytic_unknown", "float32", "", "1: it has none"),
    Column("log_base_us", "float32", "log us", "what the residual multiplies"),
    Column("log_world_size", "float32", "log", "ranks of the run"),
    Column("log_group_size", "float32", "log", "collective: ranks of its group"),
    Column("group_size_unknown", "float32", "", "1: no collective, or its group unknown"),
    Column("log_machines", "float32", "log", "collective: machines that its group spans (hops of a ring between them)"),
    Column("is_first_rank", "float32", "", "1: rank 0, which often does more (first stage of a pipeline, logging)"),
    Column("is_last_rank", "float32", "", "1: the last rank (last stage of a pipeline: the loss)"),
    Column("rank_share", "float32", "", "rank / (ranks - 1)"),
    Column("from_split", "float32", "", "collective: ranks hold parts before it"),
    Column("from_partial", "float32", "", "... terms of a sum"),
    Column("from_replicate", "float32", "", "... the same"),
    Column("to_split", "float32", "", "collective: ranks hold parts after it"),
    Column("to_replicate", "float32", "", "... the same"),
    Column("log_ranks_per_node", "float32", "log", "ranks of a machine"),
    Column("log_host_speed", "float32", "log", "single-thread speed of the host, relative"),
    Column("log_link_bytes_per_s", "float32", "log bytes/s", "slowest link it crosses, sustained; 0: none"),
    Column("log_link_latency_us", "float32", "log us", "its latency; 0: none"),
    Column("crosses_machines", "float32", "", "1: that link joins machines"),
    Column("log_flops_per_sm", "float32", "log flop/s", "sustained rate of the dtype, per SM or core"),
    Column("log_bandwidth_per_sm", "float32", "log bytes/s", "sustained memory bandwidth, per SM or core"),
    Column("log_cache_per_sm", "float32", "log bytes", "last-level cache, per SM or core"),
    Column("log_num_sms", "float32", "log", "SMs or cores"),
)
NUM_TEXT_FEATURES = 32  # beside them, text_0 ...: pieces of the op's name, hashed (gnnperf.data.text)

DEVICE_FEATURES = (
    Column("log_float32", "float32", "log flop/s", "peak without matrix units"),
    Column("log_float32_matrix", "float32", "log flop/s", "peak with matrix units"),
    Column("log_float16_matrix", "float32", "log flop/s", "peak of half precision"),
    Column("log_bandwidth", "float32", "log bytes/s", "memory bandwidth, data sheet"),
    Column("log_l2", "float32", "log bytes", "last-level cache"),
    Column("log_num_sms", "float32", "log", "SMs or cores"),
    Column("log_clock", "float32", "log Hz", "boost clock"),
    Column("log_memory", "float32", "log bytes", "memory"),
    Column("log_launch_floor_us", "float32", "log us", "the shortest kernel"),
    Column("flops_share", "float32", "", "sustained / peak rate"),
    Column("bandwidth_share", "float32", "", "sustained / peak bandwidth"),
    Column("is_gpu", "float32", "", "1: a GPU"),
)

LINK_FEATURES = (
    Column("log_bandwidth", "float32", "log bytes/s", "per device and direction, data sheet"),
    Column("log_latency_us", "float32", "log us", "of one hop"),
    Column("bandwidth_share", "float32", "", "sustained / peak"),
    Column("is_intra", "float32", "", "1: between ranks of a machine"),
    Column("is_inter", "float32", "", "1: between machines"),
    Column("is_host_link", "float32", "", "1: between host and device"),
)


def names(columns: tuple[Column, ...]) -> tuple[str, ...]:
    """Their names, in order."""
    return tuple(column.name for column in columns)


def validate(frame: pd.DataFrame, columns: tuple[Column, ...], where: str) -> None:
    """Check a table at a room's door.

    Raises:
        InputError: a column is missing or has another dtype.
    """
    for column in columns:
        if column.name not in frame.columns:
            raise InputError(
                f"column {column.name!r} is missing", where=where, allowed=", ".join(c.name for c in columns)
            )
        found = str(frame[column.name].dtype)
        if found != column.dtype and np.dtype("O") != frame[column.name].dtype:
            raise InputError(f"column {column.name!r} has dtype {found}", where=where, allowed=column.dtype)
