"""The names that collectives have: in metadata, on host ranges, on kernels."""

from __future__ import annotations

import re

from gnnperf.trace.input_texts import DTYPE

# Normalized words (lower case, letters only) -> kind. Metadata, c10d:: ops and nccl:/gloo: ranges use all of these.
KINDS: dict[str, str] = {
    "allreduce": "all_reduce",
    "allreducecoalesced": "all_reduce",
    "allreducesparse": "all_reduce",
    "allgather": "all_gather",
    "allgatherbase": "all_gather",
    "allgathercoalesced": "all_gather",
    "allgatherintotensor": "all_gather",
    "allgatherintotensorcoalesced": "all_gather",
    "reducescatter": "reduce_scatter",
    "reducescatterbase": "reduce_scatter",
    "reducescattertensor": "reduce_scatter",
    "reducescattertensorcoalesced": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallbase": "all_to_all",
    "alltoallv": "all_to_all",
    "alltoallsingle": "all_to_all",
    "broadcast": "broadcast",
    "broadcastoop": "broadcast",
    "reduce": "reduce",
    "reduceoop": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send",
    "recv": "recv",
    "recvanysource": "recv",
    "barrier": "barrier",
    "monitoredbarrier": "barrier",
}

BACKENDS = ("nccl", "gloo", "hccl", "mpi", "ucc", "xccl", "rccl")
HOST_NAME = re.compile(rf"(?:(?:{'|'.join(BACKENDS)}):|c10d::)(\w+)(?: |$)")
COALESCED = "coalesced"  # nccl:coalesced wraps several calls and is none itself

KERNEL_NAMES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"nccl(?:Dev)?Kernel_AllReduce"), "all_reduce"),
    (re.compile(r"nccl(?:Dev)?Kernel_AllGather"), "all_gather"),
    (re.compile(r"nccl(?:Dev)?Kernel_ReduceScatter"), "reduce_scatter"),
    (re.compile(r"nccl(?:Dev)?Kernel_Broadcast"), "broadcast"),
    (re.compile(r"nccl(?:Dev)?Kernel_Reduce_"), "reduce"),
    (re.compile(r"nccl(?:Dev)?Kernel_SendRecv"), "all_to_all"),  # point-to-point kernels; metadata says send or recv
    (re.compile(r"nccl(?:Dev)?Kernel_?"), "unknown"),  # RCCL's ncclDevKernel_Generic
    (re.compile(r"cross_device_reduce|(?:one|two)_shot_all_reduce|multimem_all_reduce"), "all_reduce"),
    (re.compile(r"multimem_all_gather"), "all_gather"),
    (re.compile(r"deep_ep::\w+::(?:dispatch|combine)\b"), "all_to_all"),
)

DTYPES: dict[str, str] = {
    "float": "float32", "Float": "float32", "double": "float64", "Double": "float64",
    "Half": "float16", "c10::Half": "float16", "BFloat16": "bfloat16", "c10::BFloat16": "bfloat16",
    "long": "int64", "long int": "int64", "Long": "int64", "int": "int32", "Int": "int32",
    "short": "int16", "Short": "int16", "signed char": "int8", "Char": "int8",
    "unsigned char": "uint8", "Byte": "uint8", "bool": "bool", "Bool": "bool",
    "c10::Float8_e4m3fn": "float8_e4m3fn", "Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e5m2": "float8_e5m2", "Float8_e5m2": "float8_e5m2",
}  # fmt: skip


def kind_of_word(word: str) -> str | None:
    """all_reduce, all_to_all, ... from any spelling; None for what is no collective (wait, init, coalesced)."""
    return KINDS.get(re.sub(r"[^a-z]", "", word.lower()))


def kind_of_host_name(name: str) -> str | None:
    """The kind of collective a host range's name states: nccl:all_reduce, c10d::alltoall_base_; None otherwise."""
    match = HOST_NAME.match(name)
    return kind_of_word(match.group(1)) if match else None


ANY_KERNEL_NAME = re.compile("|".join(pattern.pattern for pattern, _ in KERNEL_NAMES))


def kind_of_kernel_name(name: str) -> str | None:
    """The kind a kernel's name states; "unknown" for communication of an unstated kind; None otherwise."""
    result = ANY_KERNEL_NAME.search(name)
    return next(kind for pattern, kind in KERNEL_NAMES if pattern.match(result[0])) if result else None


def dtype_name(text: object) -> str | None:
    """float32, int64, ... from any spelling; None where it is absent or no dtype."""
    if not isinstance(text, str) or text in DTYPES.values():
        return text if isinstance(text, str) else None
    return DTYPES.get(text, text if DTYPE.fullmatch(text) else None)
