"""Op tables as rows: the Parquet of `gnnperf calibrate`, CSV, or JSON lines as `gnnperf calibrate --ops` reads them."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from gnnperf.analytic.kernels.call import LookupAccess
from gnnperf.analytic.op_tables import columns
from gnnperf.core import InputError, reading

DIRECTIONS = ("forward", "backward")
SUFFIXES = (".parquet", ".csv", ".jsonl", ".json")
NEEDED = ("op", "shapes")
KNOWN = ", ".join(("op, shapes, dtype or dtypes, arguments, direction", *columns.COLUMNS, "those of calibrate"))
OP = "op"
MEASURED = "measured_latency_us"  # the name in a predicted table, whose latency_us is the prediction
Shape = tuple[int, ...]


@dataclass(frozen=True)
class OpRow:
    """One row."""

    op: str  # as in traces, e.g. "aten::mm"; an overload ("aten::add.out") is left out.
    # one per tensor argument, in the order of the op's schema; None for one left out
    shapes: tuple[Shape | None, ...] = ()
    dtypes: tuple[str, ...] = ()  # of these tensors, torch's names
    arguments: Mapping[str, Any] = field(default_factory=dict)  # the other arguments, by name of the schema
    direction: str = DIRECTIONS[0]  # "forward", or "backward": the gradients of its inputs
    kind: str = OP  # "op", "collective" or "host"
    tf32: bool = False  # products in float32 may use TF32
    measured_us: float | None = None  # None not measured
    launch_included: bool = False  # the measured time is the host's, from the call to the end of its work
    access: LookupAccess = field(default_factory=LookupAccess)  # of an embedding lookup
    turns: float | None = None  # products in turn on operands of their own; None: as in programs


def read_op_rows(path: Path) -> tuple[pd.DataFrame, tuple[OpRow, ...]]:
    """The table as it is, and its rows.

    Raises:
        InputError: it cannot be read, lacks a column, is empty, or a row is no op (names the row).
    """
    with reading(path):
        table = _read(path)
        missing = [name for name in NEEDED if name not in table.columns]
        if missing:
            raise InputError(f"column {missing[0]!r} is missing", where=str(path), allowed=KNOWN)
        if table.empty:
            raise InputError("holds no rows", where=str(path))
        records = table.astype(object).where(table.notna(), None).to_dict("records")
        return table, tuple(_row(record, f"{path}, row {place + 1}") for place, record in enumerate(records))


def _read(path: Path) -> pd.DataFrame:
    if path.suffix not in SUFFIXES:
        raise InputError(f"suffix {path.suffix!r}", where=str(path), allowed=", ".join(SUFFIXES))
    if not path.is_file():
        raise InputError("no such file", where=str(path), allowed=f"an op table: {', '.join(SUFFIXES)}")
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    return pd.read_csv(path) if path.suffix == ".csv" else pd.DataFrame(_lines(path.read_text(encoding="utf-8"), path))


def _lines(text: str, path: Path) -> list[dict[str, object]]:
    result = []
    for place, line in enumerate(text.splitlines()):
        if line.strip():
            where = f"{path}, line {place + 1}"
            entry = _json(line, where)
            if not isinstance(entry, dict):
                raise InputError("is no object", where=where, allowed='{"op": ..., "shapes": ...}')
            result.append(entry)
    return result


def _json(text: str, where: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"is not JSON ({error})", where=where) from None


def _row(entry: Mapping[Any, Any], where: str) -> OpRow:
    op, kind = entry.get("op"), entry.get("kind") or OP
    if not isinstance(op, str) or not op:
        raise InputError(f"op is {op!r}", where=where, allowed="a name as in traces, e.g. aten::mm")
    measured = _measured(entry.get(MEASURED if MEASURED in entry else "latency_us"), where)
    launched = bool(entry.get("launch_included") or False)
    if kind != OP:
        return OpRow(op, kind=str(kind), measured_us=measured, launch_included=launched)
    shapes = _shapes(_decoded(entry.get("shapes"), f"{where}, shapes"), where)
    direction = entry.get("direction") or DIRECTIONS[0]
    if direction not in DIRECTIONS:
        raise InputError(f"direction is {direction!r}", where=where, allowed=", ".join(DIRECTIONS))
    arguments = _decoded(entry.get("arguments"), f"{where}, arguments") or {}
    if not isinstance(arguments, Mapping):
        raise InputError(f"arguments is {arguments!r}", where=where, allowed="a mapping of names to values")
    dtypes, plain = _dtypes(entry, len(shapes), where), op.split(".")[0]
    decoded = {**entry, **{name: _decoded(entry.get(name), f"{where}, {name}") for name in columns.LISTS}}
    access = columns.read_access(decoded, plain, shapes, where)
    return OpRow(plain, shapes, dtypes, arguments, str(direction), OP, bool(entry.get("tf32") or False),
                 measured, launched, access, columns.read_turns(entry, where))  # fmt: skip


def _decoded(value: object, where: str) -> object:
    """JSON text (Parquet, CSV), or a value as it is (JSON lines)."""
    return _json(value, where) if isinstance(value, str) else value


def _shapes(result: object, where: str) -> tuple[Shape | None, ...]:
    whole = isinstance(result, list) and all(
        shape is None or (isinstance(shape, list) and all(type(edge) is int and edge >= 0 for edge in shape))
        for shape in result
    )
    if not whole or not result:
        raise InputError(f"shapes is {result!r}", where=where, allowed="a list of shapes, e.g. [[32, 64], [64, 8]]")
    return tuple(None if shape is None else tuple(shape) for shape in result)  # type: ignore[attr-defined]


def _dtypes(entry: Mapping[Any, Any], num_tensors: int, where: str) -> tuple[str, ...]:
    several = _decoded(entry.get("dtypes"), f"{where}, dtypes")
    dtypes = several if several is not None else [entry.get("dtype")] * num_tensors
    if not isinstance(dtypes, list) or len(dtypes) != num_tensors or not all(isinstance(d, str) for d in dtypes):
        raise InputError(f"dtypes are {dtypes!r}", where=where, allowed="dtype: one name, or dtypes: one per shape")
    return tuple(dtypes)


def _measured(result: object, where: str) -> float | None:
    if result is None:
        return None
    if isinstance(result, bool) or not isinstance(result, (int, float)) or not 0 < result < math.inf:
        raise InputError(f"latency_us is {result!r}", where=where, allowed="a number above 0, or nothing")
    return float(result)
