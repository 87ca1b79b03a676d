from __future__ import annotations

from pathlib import Path

import pandas as pd

from research.tables import read_aiconfigurator
from research.tables.aiconfigurator import PATTERN


def _write(mirror: Path, rows: list[tuple[str, int, int, int, float]]) -> None:
    path = mirror / PATTERN.replace("*", "x")
    path.parent.mkdir(parents=True)
    columns = ["gemm_dtype", "m", "n", "k", "latency"]
    pd.DataFrame(rows, columns=columns).assign(device="NVIDIA H200").to_parquet(path)


def test_milliseconds_become_microseconds_and_empty_products_are_counted(tmp_path: Path) -> None:
    _write(tmp_path, [("bfloat16", 2, 3, 4, 0.005), ("bfloat16", 0, 3, 4, 0.001), ("fp8", 2, 3, 4, 0.004)])
    table = read_aiconfigurator(tmp_path)
    assert len(table.rows) == 1
    row = table.rows.iloc[0]
    assert row["latency_us"] == 5.0 and row["flops"] == 48.0 and row["moved_bytes"] == 2 * (8 + 12 + 6)
    assert row["shapes"] == "[[2, 4], [3, 4]]" and row["dtypes"] == '["bfloat16", "bfloat16"]'
    assert row["op"] == "aten::linear" and row["turns"] == 6
    assert not row["launch_included"] and row["device"] == "NVIDIA H200"
    assert sorted(table.dropped.values()) == [1, 1]


def test_eight_bits_have_our_name_and_size(tmp_path: Path) -> None:
    _write(tmp_path, [("bfloat16", 2, 3, 4, 0.005), ("fp8", 2, 3, 4, 0.004), ("fp8_block", 2, 3, 4, 0.003)])
    rows = read_aiconfigurator(tmp_path, ("bfloat16", "fp8")).rows
    assert rows["dtype"].tolist() == ["bfloat16", "float8"]
    assert rows["moved_bytes"].tolist() == [2 * (8 + 12 + 6), 8 + 12 + 6]


def test_the_mirror_holds_the_same_shapes_on_every_gpu(mirror: Path) -> None:
    rows = read_aiconfigurator(mirror).rows
    shapes = rows.groupby("device")["shapes"].nunique()
    assert len(shapes) >= 4 and (shapes == shapes.iloc[0]).all()
    assert rows["latency_us"].between(1.0, 2e6).all()
