"""What each runtime call does to the schedule. A table of exact names; what is not in it only costs host time."""

from __future__ import annotations

from enum import IntEnum


class CallClass(IntEnum):
    """How a runtime call takes part in the schedule."""

    OTHER = 0  # costs host time only
    LAUNCH = 1  # starts device work
    GRAPH_LAUNCH = 2  # starts many kernels at once
    SYNC_DEVICE = 3  # returns when all earlier device work has ended
    SYNC_STREAM = 4  # ... the work of one stream
    SYNC_EVENT = 5  # ... the work before one event
    ALLOCATE = 6  # cudaMalloc, cudaFree: synchronise when the allocator needs it
    RECORD_EVENT = 7  # marks a point in a stream
    WAIT_EVENT = 8  # makes a stream wait for a mark
    COPY_AND_WAIT = 9  # starts a copy and returns when it has ended
    BEGIN_CAPTURE = 10  # from here on launches are noted down in a graph and start nothing
    END_CAPTURE = 11


BLOCKING = (CallClass.SYNC_DEVICE, CallClass.SYNC_STREAM, CallClass.SYNC_EVENT, CallClass.ALLOCATE)
SYNCHRONIZING = (CallClass.SYNC_DEVICE, CallClass.SYNC_STREAM, CallClass.SYNC_EVENT)
# Calls that become a T4 node. An allocation is a miss of the caching allocator: it differs from step to step, so it is
# latency of the segment that contains it, not structure.
SEGMENTING = (*SYNCHRONIZING, CallClass.LAUNCH, CallClass.GRAPH_LAUNCH, CallClass.COPY_AND_WAIT)

_NAMES: dict[CallClass, tuple[str, ...]] = {
    CallClass.LAUNCH: (
        "LaunchKernel", "LaunchKernelExC", "LaunchKernelExC_v11060", "LaunchCooperativeKernel", "ExtLaunchKernel",
        "ModuleLaunchKernel", "ExtModuleLaunchKernel", "HccModuleLaunchKernel", "ExtModuleLaunchCooperativeKernel",
        "LaunchCooperativeKernelMultiDevice", "ExtLaunchMultiKernelMultiDevice", "LaunchKernelEx",
        "MemcpyAsync", "Memcpy2DAsync", "Memcpy3DAsync", "MemcpyPeer", "MemcpyPeerAsync", "MemcpyHtoDAsync",
        "MemcpyDtoHAsync", "MemcpyDtoDAsync", "MemcpyToSymbolAsync",
        "MemcpyBatchAsync", "Memcpy3DBatchAsync", "Memcpy3DPeerAsync", "Memset3DAsync", "MemsetD16Async",
        "Memset", "MemsetAsync", "Memset2DAsync", "MemsetD8Async", "MemsetD32Async",
        "LaunchByPtr", "LaunchHostFunc",
    ),
    CallClass.GRAPH_LAUNCH: ("GraphLaunch",),
    CallClass.COPY_AND_WAIT: ("Memcpy", "Memcpy2D", "Memcpy3D", "MemcpyWithStream", "MemcpyHtoD", "MemcpyDtoH"),
    CallClass.SYNC_DEVICE: ("DeviceSynchronize", "CtxSynchronize", "ThreadSynchronize"),
    CallClass.SYNC_STREAM: ("StreamSynchronize",),
    CallClass.SYNC_EVENT: ("EventSynchronize",),
    CallClass.ALLOCATE: ("Malloc", "Free", "MallocHost", "FreeHost", "HostAlloc", "HostFree", "MallocManaged",
                         "HostMalloc", "HostRegister", "HostUnregister"),
    CallClass.RECORD_EVENT: ("EventRecord", "EventRecordWithFlags"),
    CallClass.WAIT_EVENT: ("StreamWaitEvent",),
    CallClass.BEGIN_CAPTURE: ("StreamBeginCapture", "StreamBeginCaptureToGraph"),
    CallClass.END_CAPTURE: ("StreamEndCapture",),
}  # fmt: skip

CALL_CLASS: dict[str, CallClass] = {
    prefix + name + suffix: call_class
    for call_class, names in _NAMES.items()
    for name in names
    for prefix in ("cuda", "cu", "hip")
    for suffix in ("", "_ptsz", "_spt", "_v2")
}


def call_class(name: str) -> CallClass:
    """The class of a runtime call by its exact name (cuda…, cu…, hip…)."""
    return CALL_CLASS.get(name, CallClass.OTHER)
