"""A list of ops to measure: JSON lines or YAML.

{"op": "aten::addmm", "shapes": [[64], [32, 128], [128, 64]], "dtype": "float32"}
{"op": "aten::embedding_bag", "shapes": [[1000, 16], [256], [64]], "dtypes": ["float32", "int64", "int64"],
 "arguments": {"mode": 0}, "direction": "backward", "skew": 4.0}
{"op": "aten::add_", "shapes": [[1000, 16], [256, 16]], "dtypes": ["float32", "sparse_float32"]}

The last one adds a sparse gradient of 256 rows to a table of 1000.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gnnperf.core import InputError, reading
from gnnperf.hardware import parse_yaml
from gnnperf.record.calibrate.call import dtype_of, overload_of
from gnnperf.record.calibrate.point import CommPoint, Direction, OpPoint, Point, frozen
from gnnperf.record.calibrate.rounds import Result

KEYS = ("op", "shapes", "dtype", "dtypes", "arguments", "direction", "tables", "skew", "tf32", "transposed")


def read_ops(path: Path) -> tuple[OpPoint, ...]:
    """The points of a file, without repetitions."""
    with reading(path):
        entries = _entries(path.read_text(encoding="utf-8"), path)
        if not entries:
            raise InputError("names no op", where=str(path), allowed="JSON lines or a YAML list: op, shapes and dtype")
        return tuple(dict.fromkeys(_point(entry, where) for where, entry in entries))


def _entries(text: str, path: Path) -> list[tuple[str, object]]:
    if path.suffix in (".yaml", ".yml"):
        loaded = parse_yaml(text, str(path))
        if not isinstance(loaded, list):
            raise InputError("is not a list of ops", where=str(path), allowed="- op: ...")
        return [(f"{path}, entry {place + 1}", entry) for place, entry in enumerate(loaded)]
    lines = [(f"{path}, line {place + 1}", line) for place, line in enumerate(text.splitlines()) if line.strip()]
    return [(where, _json(line, where)) for where, line in lines]


def _json(line: str, where: str) -> object:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"is not JSON ({error})", where=where) from None


def _point(entry: object, where: str) -> OpPoint:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("op"), str):
        raise InputError(f"{entry!r} names no op", where=where, allowed=", ".join(KEYS))
    unknown = [key for key in entry if key not in KEYS]
    if unknown:
        raise InputError(f"unknown key {unknown[0]!r}", where=where, allowed=", ".join(KEYS))
    shapes = _shapes(entry.get("shapes"), where)
    point = OpPoint(entry["op"], shapes, _dtypes(entry, len(shapes), where), _arguments(entry, where),
                    _direction(entry, where), _positive(entry, "tables", int, where),
                    _positive(entry, "skew", float, where), bool(entry.get("tf32", False)),
                    _places(entry, len(shapes), where))  # fmt: skip
    try:
        overload_of(point)
    except InputError as error:
        raise InputError(error.what, where=where, allowed=error.allowed) from None
    return point


def _shapes(result: object, where: str) -> tuple[tuple[int, ...] | None, ...]:
    whole = isinstance(result, list) and all(
        shape is None or (isinstance(shape, list) and all(type(edge) is int and edge >= 0 for edge in shape))
        for shape in result
    )
    if not whole or not result:
        raise InputError(f"shapes is {result!r}", where=where, allowed="a list of shapes, e.g. [[32, 64], [64, 8]]")
    return frozen(result)  # type: ignore[no-any-return]


def _dtypes(entry: Mapping[str, Any], num_tensors: int, where: str) -> tuple[str, ...]:
    dtypes = entry.get("dtypes", [entry.get("dtype")] * num_tensors)
    if not isinstance(dtypes, list) or len(dtypes) != num_tensors or not all(isinstance(d, str) for d in dtypes):
        raise InputError(f"dtypes are {dtypes!r}", where=where, allowed="dtype: one name, or dtypes: one per shape")
    for dtype in dtypes:
        dtype_of(dtype)
    return tuple(dtypes)


def _places(entry: Mapping[str, Any], num_tensors: int, where: str) -> tuple[int, ...]:
    places = entry.get("transposed", [])
    if not isinstance(places, list) or not all(type(place) is int and 0 <= place < num_tensors for place in places):
        raise InputError(f"transposed is {places!r}", where=where, allowed="positions of tensors, from 0, e.g. [1]")
    return tuple(places)


def _arguments(entry: Mapping[str, Any], where: str) -> tuple[tuple[str, Any], ...]:
    arguments = entry.get("arguments", {})
    if not isinstance(arguments, Mapping):
        raise InputError(f"arguments is {arguments!r}", where=where, allowed="a mapping of names to values")
    return tuple((str(name), frozen(value)) for name, value in sorted(arguments.items()))


def _direction(entry: Mapping[str, Any], where: str) -> Direction:
    try:
        return Direction(entry.get("direction", Direction.FORWARD))
    except ValueError:
        raise InputError(f"direction is {entry['direction']!r}", where=where, allowed=", ".join(Direction)) from None


def _positive(entry: Mapping[str, Any], key: str, kind: type[int] | type[float], where: str) -> Any:
    value: Any = entry.get(key, 1)
    if isinstance(value, bool) or not isinstance(value, int | kind) or value <= 0:
        raise InputError(f"{key} is {value!r}", where=where, allowed=f"a positive {kind.__name__}")
    return kind(value)


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
