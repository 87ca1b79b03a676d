"""The op table: one row per measured point and way of measuring, as Parquet with the columns' meaning inside."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from gnnperf.record.calibrate.point import CommPoint, OpPoint
from gnnperf.record.calibrate.rounds import Result

COLUMNS: Mapping[str, tuple[pa.DataType, str]] = {
    "op": (pa.string(), "as in traces, e.g. aten::mm; all_reduce, ... and send for collectives; a host cost's name"),
    "kind": (pa.string(), "op, collective or host"),
    "direction": (pa.string(), "forward or backward; null for collectives and host costs"),
    "shapes": (pa.string(), "JSON: one list per tensor argument, null for one left out"),
    "dtypes": (pa.string(), "JSON: of these tensors"),
    "arguments": (pa.string(), "JSON: the other arguments that were given, by name"),
    "transposed": (pa.string(), "JSON: places of the tensors that lie in memory column by column"),
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
    return [{**dict.fromkeys(COLUMNS), **_what(result), **_how(result), **facts} for result in results]


def _what(result: Result) -> dict[str, object]:
    point = result.way.point
    if isinstance(point, OpPoint):
        return {"op": point.op, "kind": "op", "direction": str(point.direction), "shapes": json.dumps(point.shapes),
                "dtypes": json.dumps(point.dtypes), "arguments": json.dumps(dict(point.arguments)),
                "transposed": json.dumps(point.transposed), "tf32": point.tf32, "tables": point.tables,
                "skew": point.skew, "flops": point.flops, "moved_bytes": point.moved_bytes}  # fmt: skip
    if isinstance(point, CommPoint):
        return {"op": point.op, "kind": "collective", "message_bytes": float(point.num_bytes),
                "ranks": json.dumps(point.ranks), "link": point.link}  # fmt: skip
    return {"op": point.quantity, "kind": "host"}


def _how(result: Result) -> dict[str, object]:
    outcome = result.latency_us
    return {"cache": str(result.way.cache), "launch_included": result.way.launch_included, "latency_us": outcome.value,
            "latency_low_us": outcome.low, "latency_high_us": outcome.high, "num_rounds": len(result.round_medians_us),
            "num_samples": result.num_samples}  # fmt: skip


def parquet_bytes(outcome: Sequence[Mapping[str, object]]) -> bytes:
    """The file: rows, and each column's meaning in its field's metadata."""
    schema = pa.schema([pa.field(name, kind, metadata={"meaning": text}) for name, (kind, text) in COLUMNS.items()])
    table = pa.Table.from_pylist([dict(row) for row in outcome], schema=schema)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def read_table(content: bytes) -> list[dict[str, object]]:
    """Rows of a file that `parquet_bytes` made."""
    return [dict(row) for row in pq.read_table(io.BytesIO(content)).to_pylist()]
