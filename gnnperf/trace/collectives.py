"""Which events are collectives, of which kind, group, size and dtype.

One call of a collective leaves a small tree on a host thread, and, on a GPU, one kernel:

    c10d::allreduce_                       shapes of the tensors
      record_param_comms                   metadata (torch >= 2.4), or positional inputs (1.11 to 2.3)
        nccl:all_reduce                    shapes of the tensors
          cudaLaunchKernelExC  ----------> ncclDevKernel_AllReduce_Sum_f32_RING_LL    metadata (torch >= 2.4)
      record_param_comms                   a bare second event: no collective of its own

What one of them states holds for all of them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

import msgspec
import numpy as np

from gnnperf.core import EventKind, schema
from gnnperf.trace.assembly import KIND_CODES, Assembled
from gnnperf.trace.columns import DTYPE, coded, float_column, int_column
from gnnperf.trace.groups import POINT_TO_POINT, channel, peer_of_inputs, peer_of_metadata, peer_of_name
from gnnperf.trace.kineto import CommArgs
from gnnperf.trace.limits import MAX_RANKS
from gnnperf.trace.linking import Links
from gnnperf.trace.metadata import Distributed, ranks_of_text, ranks_text

# The names that collectives have: in metadata, on host ranges, on kernels.

# Normalized words (lower case, letters only) -> kind. Metadata, c10d:: ops and nccl:/gloo: ranges use all of these.
KINDS: dict[str, str] = {
    word: kind
    for kind, words in {
        "all_reduce": "allreduce allreducecoalesced allreducesparse",
        "all_gather": "allgather allgatherbase allgathercoalesced allgatherintotensor allgatherintotensorcoalesced",
        "reduce_scatter": "reducescatter reducescatterbase reducescattertensor reducescattertensorcoalesced",
        "all_to_all": "alltoall alltoallbase alltoallv alltoallsingle",
        "broadcast": "broadcast broadcastoop",
        "reduce": "reduce reduceoop",
        "gather": "gather",
        "scatter": "scatter",
        "send": "send",
        "recv": "recv recvanysource",
        "barrier": "barrier monitoredbarrier",
    }.items()
    for word in words.split()
}

BACKENDS = ("nccl", "gloo", "hccl", "mpi", "ucc", "xccl", "rccl")
HOST_NAME = re.compile(rf"(?:(?:{'|'.join(BACKENDS)}):|c10d::)(\w+)(?: |$)")

KERNEL_NAMES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"nccl(?:Dev)?Kernel_AllReduce"), "all_reduce"),
    (re.compile(r"nccl(?:Dev)?Kernel_AllGather"), "all_gather"),
    (re.compile(r"nccl(?:Dev)?Kernel_ReduceScatter"), "reduce_scatter"),
    (re.compile(r"nccl(?:Dev)?Kernel_Broadcast"), "broadcast"),
    (re.compile(r"nccl(?:Dev)?Kernel_Reduce_"), "reduce"),
    (re.compile(r"nccl(?:Dev)?Kernel_SendRecv"), "all_to_all"),  # point-to-point kernels; metadata states send or recv
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
    """all_reduce, all_to_all, ... from any spelling; None for what moves nothing (wait, init, coalesced)."""
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


PARAM_COMMS = "record_param_comms"
OUTPUT_FIRST = ("c10d::alltoall_base_", "c10d::_allgather_base_", "c10d::_reduce_scatter_base_")
UNSIZED_FIRST = ("c10d::allgather_",)  # lists of lists of tensors have no shapes
SAME_SIZE = ("all_reduce", "broadcast", "reduce")
MAX_STRIDED = 2**17  # ranks of groups that are stated as a first rank, a distance and a size


@dataclass(frozen=True)
class Call:
    """What is known about one call; None where nothing states it."""

    kind: str | None = None
    group: str | None = None
    group_size: int | None = None
    in_elements: float | None = None
    out_elements: float | None = None
    dtype: str | None = None
    peer: int | None = None  # of a send or receive: rank of the group at its other end
    tag: int = 0

    def filled_from(self, other: "Call") -> "Call":
        """Own values first, the other's where unknown."""
        if self == NOTHING:
            return other
        own = {name: value for name, value in vars(self).items() if value is not None}
        return Call(**(vars(other) | own | {"tag": other.tag if self.peer is None else self.tag}))


NOTHING = Call()


def add_collectives(table: Assembled, links: Links, distributed: Distributed) -> dict[str, Any]:
    """The columns collective, group, group_size, in_elements, out_elements, comm_dtype of all events."""
    own = _host_calls(table, distributed)
    trees: dict[int, list[int]] = {}  # rows of one call by the outermost of them
    for row in own:
        root = row
        while (parent := int(links.op_event[root])) in own:
            root = parent
        trees.setdefault(root, []).append(row)
    known = {root: _merged([own[row] for row in rows]) for root, rows in trees.items()}
    calls = _spread(table, own, trees, known)
    of_host = {row: known[root] for root, rows in trees.items() for row in rows}
    calls |= _kernel_calls(table, links, of_host, distributed)
    return _columns({row: _between(call, distributed) for row, call in calls.items()}, len(table.kind))


def _host_calls(table: Assembled, distributed: Distributed) -> "dict[int, Call]":
    """Host rows that belong to a collective, by row, with what each states itself."""
    name = table.columns["name"]
    kinds = {c: kind_of_host_name(t) for c, t in enumerate(table.names)}
    comms = {c for c, t in enumerate(table.names) if t == PARAM_COMMS}
    wanted = np.array([c in comms or kinds[c] is not None for c in kinds] + [False], dtype=bool)
    host = table.is_kind(EventKind.CPU_OP, EventKind.ANNOTATION)
    rows = np.flatnonzero(host & wanted[name.codes]).tolist()
    texts, codes = table.names, name.codes[rows].tolist()
    inputs = zip(*(_texts(table, name, rows) for name in ("input_dims", "input_types", "input_values")), strict=True)
    by_inputs = lru_cache(maxsize=4096)(lambda code, *given: _of_inputs(texts[code], kinds[code], *given))
    return {
        row: _stated(args, distributed).filled_from(by_inputs(code, *given))
        for row, code, given in zip(rows, codes, inputs, strict=True)
        if (args := table.metadata.get(row)) is None or kind_of_word(args.collective or "")
    }


def _texts(table: Assembled, column: str, rows: list[int]) -> list[str | None]:
    """The JSON of some rows; None where unknown."""
    texts, codes = table.columns[column].categories, table.columns[column].codes[rows].tolist()
    known = {code: texts[code] for code in set(codes) if code >= 0}
    return [known.get(code) for code in codes]


def _of_inputs(name: str, kind: str | None, *texts: str | None) -> "Call":
    """What a call's inputs state: shapes, types and values as JSON."""
    dims, types, values = (None if text is None else msgspec.json.decode(text) for text in texts)
    peer, tag = peer_of_inputs(name, values) or (peer_of_name(name), 0)
    return _shaped(name, kind, dims, types).filled_from(Call(peer=peer, tag=tag))


def _stated(args: CommArgs | None, distributed: Distributed) -> "Call":
    """What metadata states."""
    if args is None or args.collective is None:
        return Call()
    kind = kind_of_word(args.collective)
    return Call(
        kind, _group(args, distributed), args.group_size, args.in_elements, args.out_elements, dtype_name(args.dtype),
        peer_of_metadata(kind, args),
    )  # fmt: skip


def _group(args: CommArgs, distributed: Distributed) -> str | None:
    """The group's ranks as text, e.g. "[0,1]"; else its name."""
    stated = "".join((args.group_ranks or "").split())
    if (ranks := ranks_of_text(stated)) and args.group_size in (None, len(ranks)):
        return stated
    stated_name = args.group_name if args.group_name is not None else args.group_id
    name = None if stated_name is None else str(stated_name)[:64]
    ranks = (distributed.group_ranks or {}).get(name or "") or _strided(
        args.rank_start, args.rank_stride, args.group_size
    )
    return ranks_text(ranks) if ranks else name or None


@lru_cache(maxsize=256)
def _strided(start: int | None, stride: int | None, size: int | None) -> tuple[int, ...]:
    """Ranks at equal distances; () where they are not stated, or no ranks."""
    if start is None or stride is None or size is None or min(start, stride - 1, size - 1) < 0:
        return ()
    return tuple(range(start, start + size * stride, stride)) if start + size * stride <= MAX_STRIDED else ()


def _between(call: "Call", distributed: Distributed) -> "Call":
    """A send or receive whose peer is known: its channel, between two ranks, is its group."""
    if call.kind not in POINT_TO_POINT or call.peer is None or distributed.rank is None:
        return call
    groups = set((distributed.group_ranks or {}).values())
    ranks: Sequence[int] = ranks_of_text(call.group) if call.group is not None else ()
    if not ranks:  # unstated: of the only one there is
        ranks = groups.pop() if len(groups) == 1 else () if groups else range(distributed.world_size or 0)
    result = channel(call.kind, distributed.rank, call.peer, ranks, call.tag)
    return call if result is None else replace(call, group=result, group_size=2)


def _shaped(name: str, kind: str | None, dims: Any, types: Any) -> "Call":
    """What the shapes of its inputs state: elements and dtype."""
    if not dims:
        return Call(kind)
    output_first = name in OUTPUT_FIRST
    at = 1 if (output_first or name in UNSIZED_FIRST) and len(dims) > 1 else 0
    sent = elements(dims[at])
    received = elements(dims[0]) if output_first else None
    dtype = types[at] if isinstance(types, list) and at < len(types) and types[at] not in ("", "TensorList") else None
    if not name.startswith("c10d::") and name != PARAM_COMMS:  # a range lists its tensors one by one
        sent = _total([elements(d) for d in dims])
    return Call(kind, in_elements=sent, out_elements=received, dtype=dtype_name(dtype))


def elements(dims: Any) -> float | None:
    """Number of elements of a shape, or of a list of shapes; None unknown (an empty list states nothing)."""
    if not isinstance(dims, list) or not dims:
        return None
    if all(isinstance(d, (int, float)) for d in dims):
        return prod(float(d) for d in dims)
    return _total([elements(d) for d in dims])


def _total(parts: list[float | None]) -> float | None:
    known = [p for p in parts if p is not None]
    return sum(known) if known else None


def _merged(calls: "list[Call]") -> "Call":
    """One call from what its rows state: the innermost that states something wins, metadata before shapes."""
    merged = Call()
    for call in sorted(calls, key=lambda c: c.group is None):
        merged = merged.filled_from(call)
    return _complete(merged)


def _complete(call: "Call") -> "Call":
    """Sizes that follow from each other."""
    size, sent = call.group_size, call.in_elements
    if call.out_elements is not None or sent is None:
        return call
    if call.kind in SAME_SIZE:
        return replace(call, out_elements=sent)
    if call.kind == "all_gather" and size and size > 0:
        return replace(call, out_elements=sent * size)
    if call.kind == "reduce_scatter" and size and size > 0:
        return replace(call, out_elements=sent / size)
    return call


def _spread(
    table: Assembled, own: "dict[int, Call]", trees: dict[int, list[int]], known: "dict[int, Call]"
) -> "dict[int, Call]":
    """The whole tree's knowledge on each of its rows, except on bare `record_param_comms` events."""
    end = table.columns["start_ns"] + table.columns["duration_ns"]
    calls: dict[int, Call] = {}
    for root, rows in trees.items():
        if known[root].kind is not None:
            given = [r for r in rows if own[r] != NOTHING or any(c > r and end[c] <= end[r] for c in rows)]
            calls |= dict.fromkeys(given, known[root])
    return calls


def _kernel_calls(
    table: Assembled, links: Links, of_host: "dict[int, Call]", distributed: Distributed
) -> "dict[int, Call]":
    """Kernels that are a rank's part in a collective: by metadata, else by their host call, else by name."""
    name = table.columns["name"]
    named = [kind_of_kernel_name(t) for t in table.names]
    is_named = np.array([kind is not None for kind in named] + [False])[name.codes]  # [num_events]
    is_named[list(table.metadata)] = True
    kernels = (table.kind == KIND_CODES[EventKind.KERNEL]) & is_named
    calls = {}
    for row in np.flatnonzero(kernels).tolist():
        by_name = Call(named[name.codes[row]] or "unknown")
        of_its_host = of_host.get(int(links.op_event[row]), NOTHING)
        calls[row] = _complete(
            _stated(table.metadata.get(row), distributed).filled_from(of_its_host).filled_from(by_name)
        )
    return calls


def _columns(calls: "dict[int, Call]", size: int) -> dict[str, Any]:
    rows = np.array(sorted(calls), dtype=np.int64)
    ordered = [calls[row] for row in rows.tolist()]

    def spread(values: np.ndarray, unknown: float) -> np.ndarray:
        result = np.full(size, unknown, dtype=values.dtype)
        result[rows] = values
        return result

    def text(values: list[str | None]) -> Any:
        codes, texts = coded(values)
        return schema.categorical(spread(codes, -1), texts)

    sizes = int_column([c.group_size for c in ordered], below=MAX_RANKS + 1)
    return {
        "collective": text([c.kind for c in ordered]),
        "group": text([c.group for c in ordered]),
        "group_size": spread(np.where(sizes > 0, sizes, -1).astype(np.int32), -1),
        "in_elements": spread(float_column([c.in_elements for c in ordered]), np.nan),
        "out_elements": spread(float_column([c.out_elements for c in ordered]), np.nan),
        "comm_dtype": text([c.dtype for c in ordered]),
    }
