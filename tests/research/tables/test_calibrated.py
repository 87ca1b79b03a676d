"""The user's own op table as one of the others: units, sizes, what is left to other readers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gnnperf.core.errors import InputError
from gnnperf.record.calibrate.op_table import COLUMNS as WRITTEN
from gnnperf.record.calibrate.op_table import parquet_bytes
from research.tables import COLUMNS, read_calibrated_ops
from research.tables.calibrated import size_of

SHIPPED = Path(__file__).parents[3] / "datasets" / "cpu-ops" / "ops.parquet"


def _row(op: str, shapes: list[object], **columns: object) -> dict[str, object]:
    return {**dict.fromkeys(WRITTEN), "op": op, "kind": "op", "direction": "forward", "shapes": json.dumps(shapes),
            "dtypes": json.dumps(["int64", "float32"]), "arguments": "{}", "transposed": "[]", "tf32": False,
            "tables": 3, "skew": 1.0, "flops": 8.0, "moved_bytes": 16.0, "cache": "warm", "launch_included": True,
            "device": "Tesla T4", "latency_us": 5.0, **columns}  # fmt: skip


def _file(folder: Path, *rows: dict[str, object]) -> Path:
    path = folder / "ops.parquet"
    path.write_bytes(parquet_bytes(rows))
    return path


def test_a_product_has_sizes_and_another_op_none(tmp_path: Path) -> None:
    path = _file(tmp_path, _row("aten::addmm", [[8], [4, 16], [16, 8]]), _row("aten::relu", [[4, 16]]),
                 _row("all_reduce", [[4]], kind="collective"))  # fmt: skip
    rows = read_calibrated_ops(path).rows
    assert list(rows.columns) == list(COLUMNS)
    assert rows["op"].tolist() == ["aten::addmm", "aten::relu"]
    assert rows.loc[0, ["batch", "m", "n", "k"]].tolist() == [1.0, 4.0, 8.0, 16.0]
    assert rows.loc[1, ["m", "n", "k"]].isna().all()
    assert rows["dtype"].tolist() == ["float32", "float32"]
    assert rows.loc[0, ["latency_us", "turns", "flops"]].tolist() == [5.0, 3.0, 8.0]


@pytest.mark.parametrize(
    ("op", "shapes", "size"),
    [
        ("aten::bmm", [[2, 3, 4], [2, 4, 5]], [2, 3, 5, 4]),
        ("aten::linear", [[2, 3, 4], [7, 4], None], [1, 6, 7, 4]),
        ("aten::mm", [[3, 4], [5, 6]], [np.nan] * 4),
        ("aten::mm", [[3, 4]], [np.nan] * 4),
    ],
)
def test_sizes_by_hand(op: str, shapes: list[object], size: list[float]) -> None:
    assert list(size_of(op, json.dumps(shapes))) == pytest.approx(size, nan_ok=True)


def test_a_point_without_a_time_is_left_out_and_counted(tmp_path: Path) -> None:
    row = _row("aten::mm", [[4, 4], [4, 4]])
    table = read_calibrated_ops(_file(tmp_path, row, {**row, "cache": "flushed"}, {**row, "latency_us": None}))
    assert table.rows["cache"].tolist() == ["warm", "flushed"]
    assert list(table.dropped.values()) == [1]


def test_the_shipped_table_reads() -> None:
    rows = read_calibrated_ops(SHIPPED).rows
    assert len(rows) > 100
    assert (rows["latency_us"] > 0).all()
    assert rows.loc[rows["op"] == "aten::mm", "k"].notna().all()


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ops.parquet").write_text("no table")
    with pytest.raises(InputError, match="cannot be read"):
        read_calibrated_ops(tmp_path / "ops.parquet")
    pd.DataFrame({"op": ["aten::mm"]}).to_parquet(tmp_path / "ops.parquet")
    with pytest.raises(InputError, match="column 'direction' is missing"):
        read_calibrated_ops(tmp_path / "ops.parquet")
