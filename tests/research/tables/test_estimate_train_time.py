from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from research.tables import read_estimate_train_time
from research.tables.estimate_train_time import FOLDER, PREFIX, SUFFIX

GEMM = {"mp": 2.0, "b": 2.0, "l": 4.0, "dim": 8.0}


def _rows(mirror: Path, name: str, row: dict[str, float]) -> pd.DataFrame:
    folder = mirror / FOLDER
    folder.mkdir(parents=True)
    pd.DataFrame([row]).to_csv(folder / f"{PREFIX}{name}{SUFFIX}", index=False)
    return read_estimate_train_time(mirror).rows


@pytest.mark.parametrize(
    ("name", "n", "k"), [("linear1", 12, 8), ("linear2", 8, 4), ("linear3", 16, 8), ("linear4", 8, 16)]
)
def test_tensor_parallel_ways_divide_one_side(tmp_path: Path, name: str, n: int, k: int) -> None:
    rows = _rows(tmp_path, name, {**GEMM, "F_dur(us)": 10.0, "B_dur(us)": 20.0})
    assert rows["direction"].tolist() == ["forward", "backward"] and rows["latency_us"].tolist() == [10.0, 20.0]
    assert rows["m"].tolist() == [8, 8] and rows["n"].tolist() == [n, n] and rows["k"].tolist() == [k, k]
    assert rows["flops"].tolist() == [2 * 8 * n * k, 4 * 8 * n * k]  # gradients of both operands


def test_scores_and_values_are_products_of_one_head_each(tmp_path: Path) -> None:
    sizes = {"mp": 2.0, "b": 3.0, "h": 4.0, "l": 5.0, "dim": 24.0, "F_dur(us)": 1.0, "B_dur(us)": 2.0}
    rows = _rows(tmp_path, "baddbmm", sizes)
    assert rows.loc[0, ["batch", "m", "n", "k"]].tolist() == [6, 5, 5, 6]


def test_an_addition_has_no_backward(tmp_path: Path) -> None:
    rows = _rows(tmp_path, "res_add", {"b": 2.0, "l": 3.0, "dim": 5.0, "F_dur(us)": 7.0, "B_dur(us)": 7.0})
    assert rows["direction"].tolist() == ["forward"] and rows["moved_bytes"].tolist() == [3 * 30 * 2]


def test_a_stage_counts_its_layers_and_its_vocabulary(tmp_path: Path) -> None:
    rows = _rows(tmp_path, "firstStage_optimizer", {"mp": 2.0, "dim": 4.0, "encoders": 3.0, "dur(us)": 9.0})
    assert rows["direction"].tolist() == ["optimizer"]
    assert rows["parameters"].tolist() == [3 * 12 * 16 / 2 + 25_216 * 4]  # 197 blocks of 128 of 50257 / 2 rows


def test_the_mirror_holds_what_an_a100_can_do(mirror: Path) -> None:
    table = read_estimate_train_time(mirror)
    products = table.rows[table.rows["k"].notna()]
    rate = products["flops"] / products["latency_us"] * 1e6
    assert rate.max() < 312e12 and rate.quantile(0.9) > 200e12
    assert table.rows["table"].nunique() == 22
    assert any("peak" in reason for reason in table.dropped)
