"""Kinds of everything: events, nodes, relations, evidence, phases, sources, families."""

from enum import StrEnum


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

    MEASURED = "measured"  # a row of an op table; in a replay the trace
    TRACE = "trace"  # measured in this trace; after a change times a model's ratio (predict.trace_evidence)
    GNN = "gnn"
    GNN_CALIBRATED = "gnn_calibrated"
    ANALYTIC = "analytic"
    SCALED = "scaled"  # measured in this trace, times the ratio of its family: no model knows the node
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
