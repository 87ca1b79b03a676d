"""A list of ops to measure: JSON lines.

{"op": "aten::addmm", "shapes": [[64], [32, 128], [128, 64]], "dtype": "float32"}
{"op": "aten::embedding_bag", "shapes": [[1000, 16], [256], [64]], "dtypes": ["float32", "int64", "int64"],
 "arguments": {"mode": 0}, "direction": "backward", "skew": 4.0}
{"op": "aten::add_", "shapes": [[1000, 16], [256, 16]], "dtypes": ["float32", "sparse_float32"]}

The last one adds a sparse gradient of 256 rows to a table of 1000.
"""

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Meta

from gnnperf.core import InputError, reading
from gnnperf.record.calibrate.call import dtype_of, overload_of
from gnnperf.record.calibrate.point import CommPoint, Direction, OpPoint, Point, frozen
from gnnperf.record.calibrate.rounds import Result


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """A line, as written; `dtypes` has one per shape, `dtype` is that of all."""

    op: str
    shapes: Annotated[list[list[Annotated[int, Meta(ge=0)]] | None], Meta(min_length=1)]
    dtype: str = ""
    dtypes: list[str] = []
    arguments: dict[str, Any] = {}
    direction: Direction = Direction.FORWARD
    tables: Annotated[int, Meta(ge=1)] = 1
    skew: Annotated[float, Meta(gt=0)] = 1.0
    tf32: bool = False
    transposed: list[Annotated[int, Meta(ge=0)]] = []


def read_ops(path: Path) -> tuple[OpPoint, ...]:
    """The points of a file, without repetitions."""
    with reading(path):
        lines = [(f"{path}, line {number}", line) for number, line in enumerate(path.read_bytes().splitlines(), 1)]
        result = tuple(dict.fromkeys(_point(line, where) for where, line in lines if line.strip()))
    if not result:
        raise InputError("names no op", where=str(path), allowed="JSON lines with op, shapes and dtype")
    return result


def _point(line: bytes, where: str) -> OpPoint:
    try:
        entry = msgspec.json.decode(line, type=_Entry)
    except msgspec.MsgspecError as error:
        raise InputError(str(error), where=where, allowed=", ".join(_Entry.__struct_fields__)) from None
    dtypes = entry.dtypes or [entry.dtype] * len(entry.shapes)
    if len(dtypes) != len(entry.shapes):
        raise InputError(f"dtypes are {dtypes!r}", where=where, allowed="dtype: one name, or dtypes: one per shape")
    if max(entry.transposed, default=0) >= len(dtypes):
        raise InputError(f"transposed is {entry.transposed}", where=where, allowed="positions of tensors, from 0")
    point = OpPoint(entry.op, frozen(entry.shapes), tuple(dtypes), frozen(sorted(entry.arguments.items())),
                    entry.direction, entry.tables, entry.skew, entry.tf32, tuple(entry.transposed))  # fmt: skip
    try:
        for dtype in dtypes:
            dtype_of(dtype)
        overload_of(point)
    except InputError as error:
        raise InputError(error.what, where=where, allowed=error.allowed) from None
    return point


# The op table: one row per measured point and way of measuring, as Parquet with the columns' meaning inside.

COLUMNS: Mapping[str, tuple[pa.DataType, str]] = {
    "op": (pa.string(), "as in traces, e.g. aten::mm; all_reduce, ... and send for collectives; a host cost's name"),
    "kind": (pa.string(), "op, collective or host"),
    "direction": (pa.string(), "forward or backward; null for collectives and host costs"),
    "shapes": (pa.string(), "JSON: one list per tensor argument, null for one left out"),
    "dtypes": (pa.string(), "JSON: of these tensors"),
    "arguments": (pa.string(), "JSON: the other arguments that were given, by name"),
    "transposed": (pa.string(), "JSON: positions of the tensors that are stored column by column"),
    "tf32": (pa.bool_(), "products in float32 may use TF32"),
    "tables": (pa.int64(), "calls in turn on tensors of their own (embedding tables); latency is per call"),
    "skew": (pa.float64(), "integer inputs: row = floor(rows u^skew), u uniform; 1: uniform"),
    "flops": (pa.float64(), "floating-point operations of one call; null unknown"),
    "moved_bytes": (pa.float64(), "bytes read and written at least; null unknown"),
    "message_bytes": (pa.float64(), "collectives: bytes of one rank's input"),
    "ranks": (pa.string(), "collectives: JSON, the group's ranks"),
    "link": (pa.string(), "collectives: what joins the ranks"),
    "cache": (pa.string(), "warm: the same call came right before; flushed: the last-level cache was overwritten"),
    "launch_included": (pa.bool_(), "true: host time from call to end of its work, with 1 to 2 us of Python and "
                                    "torch.ops (collectives: last arrival to last end); false: the device's own time"),
    "device": (pa.string(), "name of the device"),
    "torch_version": (pa.string(), "torch"),
    "cuda_version": (pa.string(), "CUDA of torch; null without"),
    "driver_version": (pa.string(), "of the device's driver; null without"),
    "latency_us": (pa.float64(), "us: median over rounds of the rounds' medians, of one call"),
    "latency_low_us": (pa.float64(), "us: a repeat is expected above (95 % interval)"),
    "latency_high_us": (pa.float64(), "us: ... and below"),
    "num_rounds": (pa.int64(), "processes that measured it"),
    "num_samples": (pa.int64(), "samples over all rounds"),
}  # fmt: skip


def rows(results: Iterable[Result], facts: Mapping[str, object]) -> list[dict[str, object]]:
    """Rows of the table."""
    return [
        {**dict.fromkeys(COLUMNS), **_what(result.way.point), "cache": str(result.way.cache),
         "launch_included": result.way.launch_included, "latency_us": result.latency_us.value,
         "latency_low_us": result.latency_us.low, "latency_high_us": result.latency_us.high,
         "num_rounds": len(result.round_medians_us), "num_samples": result.num_samples, **facts}
        for result in results
    ]  # fmt: skip


def _what(point: Point) -> dict[str, object]:
    if isinstance(point, OpPoint):
        return {"op": point.op, "kind": "op", "direction": str(point.direction), "shapes": json.dumps(point.shapes),
                "dtypes": json.dumps(point.dtypes), "arguments": json.dumps(dict(point.arguments)),
                "transposed": json.dumps(point.transposed), "tf32": point.tf32, "tables": point.tables,
                "skew": point.skew, "flops": point.flops, "moved_bytes": point.moved_bytes}  # fmt: skip
    if isinstance(point, CommPoint):
        return {"op": point.op, "kind": "collective", "message_bytes": float(point.num_bytes),
                "ranks": json.dumps(point.ranks), "link": point.link}  # fmt: skip
    return {"op": point.quantity, "kind": "host"}


def parquet_bytes(outcome: Sequence[Mapping[str, object]]) -> bytes:
    """The file: rows, and each column's meaning in its field's metadata."""
    schema = pa.schema([pa.field(name, kind, metadata={"meaning": text}) for name, (kind, text) in COLUMNS.items()])
    table = pa.Table.from_pylist([dict(row) for row in outcome], schema=schema)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()
