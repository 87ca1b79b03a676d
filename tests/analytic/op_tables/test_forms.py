"""Rows of an op table that reach forms of their own: chains, lookups."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gnnperf.analytic import OpRow, estimate_rows, read_op_rows
from gnnperf.analytic.embedding.model import zipf_access
from gnnperf.analytic.kernels.call import KernelCall
from gnnperf.core.errors import InputError
from gnnperf.hardware.catalog import load_device

H100 = load_device("h100_sxm")
LINEAR = {"op": "aten::linear", "shapes": [[64, 4096], [4096, 4096], None], "dtype": "bfloat16"}
BAG = {"op": "aten::embedding_bag", "shapes": [[1_000_000, 64], [65_536], [2048]],
       "dtypes": ["float32", "int64", "int64"]}  # fmt: skip
HISTOGRAM = [30_000, 8_000, 3_000, 1_000, 0, 0]  # once, twice, 3 to 4, 5 to 8 times


def rows_of(tmp_path: Path, *entries: dict[str, Any]) -> tuple[OpRow, ...]:
    path = tmp_path / "ops.jsonl"
    path.write_text("\n".join(json.dumps(e) for e in entries))
    return read_op_rows(path)[1]


def estimates(tmp_path: Path, *entries: dict[str, Any]) -> list[float]:
    result = estimate_rows(rows_of(tmp_path, *entries), H100)
    assert all(a.reason is None and a.bound in ("compute", "memory", "launch") for a in result)
    return [a.latency_us or 0.0 for a in result]


# --- fused chains


def test_a_fused_chain_is_a_row_of_buffers(tmp_path: Path) -> None:
    buffer = [4096, 4096]
    fused, *isolated = estimates(
        tmp_path,
        {"op": "triton_poi_fused_add_mul_relu_0", "shapes": [buffer] * 4, "dtype": "float32"},
        *({"op": op, "shapes": shapes, "dtype": "float32"}
          for op, shapes in (("aten::add", [buffer] * 2), ("aten::mul", [buffer] * 2), ("aten::relu", [buffer]))),
    )  # fmt: skip
    assert fused == pytest.approx(sum(isolated) * 4 / 8, rel=0.05)  # 4 buffers instead of 8 tensors moved


# --- lookups


def test_which_rows_are_requested_for(tmp_path: Path) -> None:
    (zipf,) = rows_of(tmp_path, {**BAG, "zipf": 1.1})
    expected = zipf_access(pd.Series([1e6]).to_numpy(), pd.Series([1.1]).to_numpy())
    assert zipf.access.counted is not None
    assert zipf.access.counted.unique(pd.Series([65_536.0]).to_numpy()) == pytest.approx(
        expected.unique(pd.Series([65_536.0]).to_numpy())
    )


def test_reuse_makes_lookups_faster(tmp_path: Path) -> None:
    lookups = sum((30_000, 2 * 8_000, 4 * 3_000, 7 * 1_000))
    bag = {**BAG, "shapes": [[1_000_000, 64], [lookups], [1000]]}
    uniform, counted, zipf = estimates(tmp_path, bag, {**bag, "reuse_histogram": HISTOGRAM}, {**bag, "zipf": 1.2})
    assert max(counted, zipf) < uniform
    backward = {**bag, "direction": "backward", "arguments": {"mode": 0}}
    slow, fast = estimates(tmp_path, backward, {**backward, "reuse_histogram": HISTOGRAM})
    assert fast < slow  # the gradient of a table is looked up as the table was


def test_columns_that_calibrate_writes_in_every_row_are_for_lookups(tmp_path: Path) -> None:
    (mm,) = rows_of(tmp_path, {**LINEAR, "skew": 1.0, "tables": 1, "cache": "flushed"})
    (bag,) = rows_of(tmp_path, {**BAG, "skew": 4.0, "tables": 4, "cache": "warm"})
    assert mm.access == OpRow("aten::mm").access
    assert (bag.access.skew, bag.access.tables, bag.access.warm) == (4.0, 4.0, True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"zipf": -1}, "row 1: zipf is -1. Allowed: an exponent from 0"),
        ({"zipf": "hot"}, "zipf is 'hot'"),
        ({"zipf": 1.0, "skew": 2.0}, "zipf and skew. Allowed: one column"),
        ({"zipf": 1.0, "reuse_histogram": HISTOGRAM}, "zipf and reuse_histogram"),
        ({"reuse_histogram": []}, r"reuse_histogram is \[\]"),
        ({"reuse_histogram": [0, 0]}, "reuse_histogram is"),
        ({"reuse_histogram": [10.0, -1]}, "reuse_histogram is"),
        ({"reuse_histogram": "[1,"}, "row 1, reuse_histogram: is not JSON"),
        ({"reuse_histogram": [10]}, "holds 10 rows and 10 to 10 lookups. Allowed: of 65536 indices into 1e[+]06 rows"),
        ({"skew": 0}, "skew is 0"),
        ({"tables": "many"}, "tables is 'many'"),
        ({"cache": "cold"}, "cache is 'cold'. Allowed: warm, flushed"),
        ({"op": "aten::mm", "zipf": 1.0}, "zipf of aten::mm. Allowed: aten::embedding"),
        ({"zipf": 1.0, "shapes": [None, [5], [1]]}, "name no table"),
    ],
)
def test_bad_access_is_refused_by_name(change: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        rows_of(tmp_path, {**BAG, **change})


def test_calls_that_say_nothing_are_uniform_and_cold() -> None:
    assert KernelCall("aten::mm", None, None, "gemm", 1.0, 1.0).access == OpRow("aten::mm").access
