"""Which events are collectives, of which kind, group, size and dtype.

One call of a collective leaves a small tree on a host thread, and, on a GPU, one kernel:

    c10d::allreduce_                       shapes of the tensors
      record_param_comms                   metadata (torch >= 2.4), or positional inputs (1.11 to 2.3)
        nccl:all_reduce                    shapes of the tensors
          cudaLaunchKernelExC  ----------> ncclDevKernel_AllReduce_Sum_f32_RING_LL    metadata (torch >= 2.4)
      record_param_comms                   a bare second event: no collective of its own

What one of them states holds for all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import Any

import msgspec
import numpy as np

from gnnperf.schema import EventKind
from gnnperf.trace import kineto
from gnnperf.trace.assemble import KIND_CODES, Assembled
from gnnperf.trace.collective_names import dtype_name, kind_of_host_name, kind_of_kernel_name, kind_of_word
from gnnperf.trace.columns import float_column, int_column, text_column
from gnnperf.trace.linking import Links
from gnnperf.trace.metadata import Distributed

PARAM_COMMS = "record_param_comms"
OUTPUT_FIRST = ("c10d::alltoall_base_", "c10d::_allgather_base_", "c10d::_reduce_scatter_base_")
SAME_SIZE = ("all_reduce", "broadcast", "reduce")


class CommArgs(msgspec.Struct, gc=False, rename={
    "collective": "Collective name", "in_elements": "In msg nelems", "out_elements": "Out msg nelems",
    "group_size": "Group size", "group_name": "Process Group Name", "group_id": "Process Group ID",
    "group_ranks": "Process Group Ranks", "rank_start": "Global rank start", "rank_stride": "Global rank stride",
}):  # fmt: skip
    """Metadata of a collective, on its host event or its kernel."""

    collective: str | None = None
    in_elements: float | None = None
    out_elements: float | None = None
    group_size: int | None = None
    group_name: str | None = None
    group_id: int | None = None
    group_ranks: str | None = None
    rank_start: int | None = None
    rank_stride: int | None = None
    dtype: str | None = None


@dataclass(frozen=True)
class Call:
    """What is known about one call; None where nothing states it."""

    kind: str | None = None
    group: str | None = None
    group_size: int | None = None
    in_elements: float | None = None
    out_elements: float | None = None
    dtype: str | None = None

    def filled_from(self, other: Call) -> Call:
        """Own values first, the other's where unknown."""
        return replace(self, **{f.name: getattr(other, f.name) for f in fields(self) if getattr(self, f.name) is None})


def add_collectives(table: Assembled, links: Links, distributed: Distributed, dropped: dict[str, int]) -> dict[str, Any]:
    """The columns collective, group, group_size, in_elements, out_elements, comm_dtype of all events."""
    own = _host_calls(table, distributed, dropped)
    trees = _trees(own, links)
    known = {root: _merged([own[row] for row in rows]) for root, rows in trees.items()}
    calls = _spread(table, own, trees, known)
    calls |= _kernel_calls(table, links, {r: known[root] for root, rows in trees.items() for r in rows}, distributed, dropped)
    return _columns(calls, len(table.kind))


def _host_calls(table: Assembled, distributed: Distributed, dropped: dict[str, int]) -> dict[int, Call]:
    """Host rows that belong to a collective, by row, with what each states itself."""
    name = table.columns["name"]
    kinds = {c: kind_of_host_name(t) for c, t in enumerate(name.categories)}
    comms = {c for c, t in enumerate(name.categories) if t == PARAM_COMMS}
    wanted = np.array([c in comms or kinds[c] is not None for c in kinds] + [False], dtype=bool)
    host = table.is_kind(EventKind.CPU_OP, EventKind.ANNOTATION)
    rows = np.flatnonzero(host & wanted[name.codes]).tolist()
    args = kineto.decode_args([table.events[r] for r in rows], CommArgs, dropped)
    return {
        row: _stated(a, distributed).filled_from(_shaped(table, row, name.categories[code], kinds[code]))
        for row, a, code in zip(rows, args, name.codes[rows].tolist(), strict=True)
        if not (a.collective and kind_of_word(a.collective) is None)  # "wait", "init"
    }


def _stated(args: CommArgs, distributed: Distributed) -> Call:
    """What metadata says."""
    if not args.collective:
        return Call()
    return Call(
        kind_of_word(args.collective), _group(args, distributed), args.group_size, args.in_elements, args.out_elements,
        dtype_name(args.dtype),
    )  # fmt: skip


def _group(args: CommArgs, distributed: Distributed) -> str | None:
    """The group's ranks as text, e.g. "[0,1]"; else its name."""
    stated = re.sub(r"\s+", "", args.group_ranks or "")
    if re.fullmatch(r"\[\d[\d,]*\]", stated) and (args.group_size is None or stated.count(",") + 1 == args.group_size):
        return stated
    name = args.group_name if args.group_name is not None else str(args.group_id) if args.group_id is not None else None
    ranks = (distributed.group_ranks or {}).get(name or "")
    if ranks is None and args.group_size and args.rank_stride and args.rank_start is not None and args.rank_start >= 0:
        ranks = tuple(args.rank_start + i * args.rank_stride for i in range(min(args.group_size, 100_000)))
    return "[" + ",".join(map(str, ranks)) + "]" if ranks else name[:64] if name else None


def _shaped(table: Assembled, row: int, name: str, kind: str | None) -> Call:
    """What the shapes of its inputs say: elements and dtype."""
    dims, types = _value(table, "input_dims", row), _value(table, "input_types", row)
    if not dims:
        return Call(kind)
    output_first = name in OUTPUT_FIRST
    at = 1 if output_first and len(dims) > 1 else 0
    sent = elements(dims[at])
    received = elements(dims[0]) if output_first else None
    dtype = types[at] if isinstance(types, list) and at < len(types) and types[at] not in ("", "TensorList") else None
    if not name.startswith("c10d::") and name != PARAM_COMMS:  # a range lists its tensors one by one
        sent = _total([elements(d) for d in dims])
    return Call(kind, in_elements=sent, out_elements=received, dtype=dtype_name(dtype))


def _value(table: Assembled, column: str, row: int) -> Any:
    code = table.columns[column].codes[row]
    return msgspec.json.decode(table.columns[column].categories[code]) if code >= 0 else None


def elements(dims: Any) -> float | None:
    """Number of elements of a shape, or of a list of shapes; None unknown (an empty list says nothing)."""
    if not isinstance(dims, list) or not dims:
        return None
    if all(isinstance(d, (int, float)) for d in dims):
        return float(np.prod([float(d) for d in dims]))
    return _total([elements(d) for d in dims])


def _total(parts: list[float | None]) -> float | None:
    known = [p for p in parts if p is not None]
    return sum(known) if known else None


def _trees(own: dict[int, Call], links: Links) -> dict[int, list[int]]:
    """Rows of one call by the outermost of them."""
    trees: dict[int, list[int]] = {}
    for row in own:
        root = row
        while (parent := int(links.op_event[root])) in own:
            root = parent
        trees.setdefault(root, []).append(row)
    return trees


def _merged(calls: list[Call]) -> Call:
    """One call from what its rows state: the innermost that states something wins, metadata before shapes."""
    merged = Call()
    for call in sorted(calls, key=lambda c: c.group is None):
        merged = merged.filled_from(call)
    return _complete(merged)


def _complete(call: Call) -> Call:
    """Sizes that follow from each other."""
    size, sent, received = call.group_size, call.in_elements, call.out_elements
    if call.kind in SAME_SIZE:
        return replace(call, out_elements=received if received is not None else sent)
    if call.kind == "all_gather" and size and size > 0:
        if received is None and sent is not None:
            return replace(call, out_elements=sent * size)
    if call.kind == "reduce_scatter" and size and size > 0:
        if received is None and sent is not None:
            return replace(call, out_elements=sent / size)
    return call


def _spread(table: Assembled, own: dict[int, Call], trees: dict[int, list[int]], known: dict[int, Call]) -> dict[int, Call]:
    """The whole tree's knowledge on each of its rows, except on bare `record_param_comms` events."""
    name = table.columns["name"]
    calls = {}
    for root, rows in trees.items():
        if known[root].kind is None:
            continue
        for row in rows:
            is_bare = name.categories[name.codes[row]] == PARAM_COMMS and own[row] == Call()
            if not is_bare or _has_child(table, row, rows):
                calls[row] = known[root]
    return calls


def _has_child(table: Assembled, row: int, rows: list[int]) -> bool:
    start, duration = table.columns["start_ns"], table.columns["duration_ns"]
    return any(r > row and start[r] + duration[r] <= start[row] + duration[row] for r in rows)


def _kernel_calls(
    table: Assembled, links: Links, of_host: dict[int, Call], distributed: Distributed, dropped: dict[str, int]
) -> dict[int, Call]:
    """Kernels that are a rank's part in a collective: by metadata, else by their host call, else by name."""
    name = table.columns["name"]
    named = [kind_of_kernel_name(t) for t in name.categories]
    kernels = np.flatnonzero(table.kind == KIND_CODES[EventKind.KERNEL]).tolist()
    codes = name.codes.tolist()
    rows = [r for r in kernels if named[codes[r]] is not None or b"Collective name" in bytes(table.events[r].args)]
    args = kineto.decode_args([table.events[r] for r in rows], CommArgs, dropped)
    calls = {}
    for row, a in zip(rows, args, strict=True):
        by_name = named[codes[row]]
        call = _stated(a, distributed).filled_from(of_host.get(int(links.op_event[row]), Call()))
        calls[row] = _complete(call.filled_from(Call(by_name or "unknown")))
    return calls


def _columns(calls: dict[int, Call], size: int) -> dict[str, Any]:
    rows = sorted(calls)

    def spread(field: str) -> list[Any]:
        values: list[Any] = [None] * size
        for row in rows:
            values[row] = getattr(calls[row], field)
        return values

    return {
        "collective": text_column(spread("kind")),
        "group": text_column(spread("group")),
        "group_size": int_column(spread("group_size")).astype(np.int32),
        "in_elements": float_column(spread("in_elements")),
        "out_elements": float_column(spread("out_elements")),
        "comm_dtype": text_column(spread("dtype")),
    }
