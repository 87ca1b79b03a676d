"""The words and fields of Kineto files that are read: kinds of events, their arguments, the top level."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Raw

from gnnperf.core import EventKind

Number = int | float | str | None

KINDS: dict[str | None, EventKind] = {
    "cpu_op": EventKind.CPU_OP,
    "Operator": EventKind.CPU_OP,  # 2020 and 2021
    "user_annotation": EventKind.ANNOTATION,
    "cuda_runtime": EventKind.RUNTIME,
    "cuda_driver": EventKind.RUNTIME,
    "Runtime": EventKind.RUNTIME,
    "hip_runtime": EventKind.RUNTIME,
    "roctracer_runtime": EventKind.RUNTIME,
    "xpu_runtime": EventKind.RUNTIME,
    "xpu_driver": EventKind.RUNTIME,
    "mtia_runtime": EventKind.RUNTIME,
    "privateuse1_runtime": EventKind.RUNTIME,
    "privateuse1_driver": EventKind.RUNTIME,
    "kernel": EventKind.KERNEL,
    "Kernel": EventKind.KERNEL,
    "concurrent_kernel": EventKind.KERNEL,
    "mtia_ccp_events": EventKind.KERNEL,
    "gpu_memcpy": EventKind.MEMCPY,
    "Memcpy": EventKind.MEMCPY,
    "gpu_memset": EventKind.MEMSET,
    "Memset": EventKind.MEMSET,
    "cuda_sync": EventKind.SYNC,
}
FLOW = "fwdbwd"  # the only flow that is read; launches are tied by correlation
Phase = Literal["X", "B", "E", "i", "I", "s", "t", "f", "M", "C", "N", "O", "D", "b", "e", "n", "R", "c", "P"]
Category = Literal[
    "cpu_op", "Operator", "user_annotation", "cuda_runtime", "cuda_driver", "Runtime", "hip_runtime",
    "roctracer_runtime", "xpu_runtime", "xpu_driver", "mtia_runtime", "privateuse1_runtime", "privateuse1_driver",
    "kernel", "Kernel", "concurrent_kernel", "mtia_ccp_events", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset",
    "cuda_sync", "python_function", "cpu_instant_event", "gpu_user_annotation", "overhead", "Trace", "fwdbwd", "ac2g",
    "async_cpu_to_gpu", "async", "cuda_profiler_range", "cuda_event", "python_gc", "critical_path", None,
]  # fmt: skip


class Args(msgspec.Struct, gc=False, rename={
    "external_id": "External id", "external_id_2021": "external id", "sequence": "Sequence number",
    "forward_thread": "Fwd thread id", "event_index": "Ev Idx", "record_function": "Record function id",
    "dims": "Input Dims", "types": "Input type", "values": "Concrete Inputs",
    "wait_event": "wait_on_cuda_event_record_corr_id",
}):  # fmt: skip
    """The arguments that are read of any event. -1 where absent."""

    external_id: int | None = -1
    external_id_2021: int | None = -1
    correlation: int | None = -1
    device: int | None = -1
    stream: int | None = -1
    sequence: int | None = -1
    forward_thread: int | None = -1
    event_index: int | None = -1
    record_function: int | None = -1
    dims: Raw = Raw(b"")
    types: Raw = Raw(b"")
    values: Raw = Raw(b"")
    bytes: float | None = None
    size: float | None = None  # MTIA's name for bytes
    wait_on_stream: int | None = -1
    wait_event: int | None = -1


class CommArgs(Args, gc=False, rename={
    "collective": "Collective name", "in_elements": "In msg nelems", "out_elements": "Out msg nelems",
    "group_size": "Group size", "group_name": "Process Group Name", "group_id": "Process Group ID",
    "group_ranks": "Process Group Ranks", "rank_start": "Global rank start", "rank_stride": "Global rank stride",
    "source": "Src Rank", "target": "Dst Rank",
}):  # fmt: skip
    """The same with the metadata of collectives (torch >= 2.4)."""

    collective: str | None = None
    in_elements: float | None = None
    out_elements: float | None = None
    group_size: int | None = None
    group_name: Number = None
    group_id: int | None = None
    group_ranks: str | None = None
    rank_start: int | None = None
    rank_stride: int | None = None
    source: int | None = None
    target: int | None = None
    dtype: str | None = None


NO_ARGS = Args()


class Head(msgspec.Struct, gc=False):
    """The top level of a trace file, undecoded: a field of a wrong type costs that field only."""

    traceEvents: Raw = Raw(b"")
    nodes: Raw = Raw(b"")
    schema: Raw = Raw(b"")
    baseTimeNanoseconds: Raw = Raw(b"")
    deviceProperties: Raw = Raw(b"")
    distributedInfo: Raw = Raw(b"")


def decoded(raw: Raw, kind: Any) -> Any:
    """The value of a field; None where there is none, or none of this kind."""
    try:
        return msgspec.json.decode(raw, type=kind, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
