"""Op tables: reading, what each row becomes, and what has no prediction."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gnnperf.analytic import OpRow, estimate_rows, read_op_rows
from gnnperf.analytic.embedding.model import zipf_access
from gnnperf.analytic.gemm.constants import default_gemm_constants
from gnnperf.analytic.gemm.model import gemm_us, products
from gnnperf.analytic.kernels.call import KernelCall
from gnnperf.analytic.kernels.dispatch import kernel_times
from gnnperf.analytic.kernels.nodes import compute_nodes_us
from gnnperf.analytic.memory_bound.constants import default_memory_constants
from gnnperf.analytic.op_tables.gradients import gradient_calls
from gnnperf.analytic.op_tables.predict import Reason
from gnnperf.analytic.op_tables.signatures import recorded_call
from gnnperf.core.errors import InputError
from gnnperf.hardware.catalog import load_device
from research.fitting.gemm import measured, predicted_us
from research.fitting.memory import device_us
from research.tables.columns import completed, product_columns
from tests.analytic.kernels.calls import node_row

H100 = load_device("h100_sxm")
MM = {"op": "aten::mm", "shapes": [[512, 256], [256, 1024]], "dtype": "bfloat16"}


def row(op: str, shapes: list[Any], dtype: str = "float32", **more: Any) -> OpRow:
    """A row whose tensors have one dtype."""
    return OpRow(op, tuple(None if s is None else tuple(s) for s in shapes), (dtype,) * len(shapes), **more)


def lines(path: Path, *entries: object) -> Path:
    path.write_text("\n".join(e if isinstance(e, str) else json.dumps(e) for e in entries))
    return path


def test_every_format_gives_the_same_rows(tmp_path: Path) -> None:
    _, expected = read_op_rows(lines(tmp_path / "ops.jsonl", MM, {**MM, "direction": "backward", "latency_us": 5.0}))
    frame = pd.DataFrame({"op": "aten::mm", "shapes": json.dumps(MM["shapes"]), "dtypes": '["bfloat16", "bfloat16"]',
                          "direction": ["forward", "backward"], "latency_us": [None, 5.0]})  # fmt: skip
    frame.to_parquet(tmp_path / "ops.parquet")
    frame.to_csv(tmp_path / "ops.csv", index=False)
    assert read_op_rows(tmp_path / "ops.parquet")[1] == expected
    assert read_op_rows(tmp_path / "ops.csv")[1] == expected
    assert [r.measured_us for r in expected] == [None, 5.0]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{broken", "line 1: is not JSON"),
        ("[1]", "line 1: is no object"),
        ({"op": "aten::mm"}, "column 'shapes' is missing"),
        ({**MM, "shapes": "[[1, 2"}, "row 1, shapes: is not JSON"),
        ({**MM, "shapes": [[-1, 2]]}, r"row 1: shapes is \[\[-1, 2\]\]"),
        ({**MM, "shapes": []}, "row 1: shapes is"),
        ({**MM, "op": 3}, "row 1: op is 3"),
        ({**MM, "direction": "up"}, "direction is 'up'. Allowed: forward, backward"),
        ({**MM, "dtype": None}, "row 1: dtypes are"),
        ({**MM, "dtypes": ["float32"]}, r"row 1: dtypes are \['float32'\]"),
        ({**MM, "arguments": 3}, "arguments is 3"),
        ({**MM, "latency_us": -1.0}, "latency_us is -1.0"),
    ],
)
def test_bad_rows_are_refused_by_name(entry: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read_op_rows(lines(tmp_path / "ops.jsonl", entry))


@pytest.mark.parametrize(("name", "content"), [("ops.parquet", "no parquet"), ("ops.jsonl", ""), ("ops.txt", "")])
def test_bad_files_are_refused(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=name):
        read_op_rows(tmp_path / name)


def test_scalars_of_the_schema_take_their_places() -> None:
    norm = recorded_call(row("aten::native_layer_norm", [[8, 32], [32], [32]]))
    assert norm.input_dims == "[[8, 32], [], [32], [32], []]"
    assert norm.moved_bytes == 4 * (2 * 8 * 32 + 2 * 32)
    strided = recorded_call(row("aten::conv2d", [[2, 4, 10, 10], [8, 4, 3, 3], None], arguments={"stride": [2, 2]}))
    assert strided.flops == 2 * 2 * 8 * 4 * 4 * 4 * 9  # results of 4 x 4
    listed = recorded_call(row("aten::cat", [[4, 4], [8, 4]], "float16"))
    assert (listed.input_dims, listed.dtype) == ("[[[4, 4], [8, 4]], []]", "float16")


def test_products_have_two_gradients() -> None:
    calls = gradient_calls(row("aten::addmm", [[64], [32, 128], [128, 64]]))
    assert [c.input_dims for c in calls] == ["[[1, 32, 64], [1, 64, 128]]", "[[1, 128, 32], [1, 32, 64]]"]
    assert sum(c.flops for c in calls) == 2 * 2 * 32 * 64 * 128


@pytest.mark.parametrize(
    ("requested", "op", "flops"),
    [
        (row("aten::conv2d", [[2, 4, 10, 10], [8, 4, 3, 3], None]), "aten::convolution_backward",
         2 * 2 * 2 * 8 * 64 * 4 * 9),
        (row("aten::softmax", [[8, 32]]), "aten::_softmax_backward_data", 4 * 8 * 32),
        (row("aten::layer_norm", [[8, 32], [32], [32]]), "aten::native_layer_norm_backward", 14 * 8 * 32),
        (row("aten::relu", [[8, 32]]), "aten::threshold_backward", 8 * 32),
        (row("aten::scaled_dot_product_attention", [[2, 4, 16, 8]] * 3),
         "aten::_scaled_dot_product_flash_attention_backward", 2 * 5 * 2 * 4 * 16 * 16 * 8),
        (row("aten::embedding", [[1000, 16], [32]]), "aten::embedding_dense_backward", 32 * 16),
        (row("aten::embedding_bag", [[1000, 16], [32], [4]]), "aten::_embedding_bag_dense_backward", 32 * 16),
    ],
)  # fmt: skip
def test_gradients_by_hand(requested: OpRow, op: str, flops: float) -> None:
    (result,) = gradient_calls(requested)
    assert (result.op_name, result.flops) == (op, flops)
    assert result.moved_bytes > 0


def test_rows_are_predicted_in_their_order() -> None:
    small, both = row("aten::mm", [[4, 4], [4, 4]], "bfloat16"), row("aten::mm", [[4096, 4096]] * 2, "bfloat16")
    estimates = estimate_rows([small, row("my::op", [[3]]), both], H100)
    us = gemm_us(H100, "bfloat16", products([4, 4096], [4, 4096], [4, 4096], 1, 2, 6))
    assert [a.latency_us for a in estimates] == [pytest.approx(us[0]), None, pytest.approx(us[1])]
    assert [a.bound for a in estimates] == ["launch", None, "compute"]


@pytest.mark.parametrize(("dtype", "name"), [("bfloat16", "bfloat16"), ("float8", "float8_e4m3fn")])
def test_a_call_has_one_latency_in_tables_graphs_and_benchmarks(dtype: str, name: str, tmp_path: Path) -> None:
    m, n, k = np.array([16.0, 2048.0]), np.array([4096.0, 1024.0]), np.array([4096.0, 8192.0])
    table = completed({**product_columns("aten::linear", m, n, k, dtype), "turns": 6, "launch_included": False,
                       "device": "NVIDIA H100 80GB HBM3", "latency_us": 1.0}, 2)  # fmt: skip
    family = default_gemm_constants()["matrix" if dtype == "bfloat16" else "float8"]
    expected = predicted_us(measured(table), family)
    entries = [{"op": "aten::linear", "shapes": json.loads(shapes), "dtype": name} for shapes in table["shapes"]]
    for columns in ({}, {"tables": 6, "cache": "warm"}):
        _, rows = read_op_rows(lines(tmp_path / "ops.jsonl", *({**entry, **columns} for entry in entries)))
        assert [a.latency_us for a in estimate_rows(rows, H100)] == pytest.approx(expected)
    calls = [recorded_call(row) for row in rows]
    nodes = pd.DataFrame([{**node_row(call), "dtype": name} for call in calls])
    assert compute_nodes_us(nodes, H100, 4.0) == pytest.approx(expected)
    _, (warm, cold) = read_op_rows(
        lines(tmp_path / "ops.jsonl", *({**entries[0], "cache": c} for c in ("warm", "flushed")))
    )
    once, fetched = (estimate.latency_us for estimate in estimate_rows([warm, cold], H100))
    assert once is not None and fetched is not None and once < expected[0] < fetched * (1 + 1e-9)


@pytest.mark.parametrize(
    ("op", "shapes", "table"),
    [
        ("aten::add", [[256, 1024], [256, 1024]], "add"),
        ("aten::layer_norm", [[256, 1024], [1024], [1024]], "ln"),
        ("aten::softmax", [[256, 1024]], "softmax"),
        ("aten::bmm", [[8, 256, 64], [8, 64, 256]], None),
        ("aten::conv2d", [[8, 64, 14, 14], [64, 64, 3, 3]], None),
        ("aten::sum", [[256, 1024]], None),
    ],
)
def test_one_call_has_one_latency_in_op_tables_traces_and_benchmarks(
    op: str, shapes: list[list[int]], table: str | None, tmp_path: Path
) -> None:
    """`ops predict` of a row without a cache column is what predict.py gives a node, with one what benchmarks give."""
    entry = {"op": op, "shapes": shapes, "dtype": "float32"}
    _, rows = read_op_rows(
        lines(tmp_path / "ops.jsonl", entry, {**entry, "cache": "warm"}, {**entry, "cache": "flushed"})
    )
    program, warm, flushed = (estimate.latency_us for estimate in estimate_rows(rows, H100))
    nodes = pd.DataFrame([node_row(recorded_call(rows[0]))])
    assert compute_nodes_us(nodes, H100, 4.0) == pytest.approx([program])
    assert warm is not None and flushed is not None and warm <= flushed
    if table is not None:
        sizes = pd.DataFrame(
            {"rows": [256.0], "columns": [1024.0], "moved_bytes": [recorded_call(rows[0]).moved_bytes]}
        )
        assert device_us(sizes, table, H100, default_memory_constants()) == pytest.approx([warm])
        assert warm < flushed and program is not None and program <= flushed  # Hopper: programs reuse the cache


def test_a_backward_is_the_sum_of_its_calls() -> None:
    requested = row("aten::linear", [[32, 128], [64, 128], [64]], direction="backward")
    (estimate,) = estimate_rows([requested], H100)
    assert estimate.latency_us == pytest.approx(kernel_times(gradient_calls(requested), H100, 4.0).latency_us.sum())


@pytest.mark.parametrize(
    ("requested", "reason"),
    [
        (OpRow("all_reduce", kind="collective"), Reason.NOT_AN_OP),
        (row("my::op", [[3]]), Reason.NO_FORMULA),
        (row("aten::view", [[3]]), Reason.VIEW),
        (row("aten::mm", [[3, 4], [5, 6]]), Reason.SHAPES),
        (row("aten::add", [[3]], "sparse_float32"), Reason.DTYPE),
        (row("aten::sort", [[3]], direction="backward"), Reason.GRADIENT),
        (row("aten::mm", [[3]], direction="backward"), Reason.GRADIENT),
        (row("aten::_scaled_mm", [[4, 4], [4, 4], [], []], "float8_e4m3fn", direction="backward"), Reason.GRADIENT),
    ],
)
@pytest.mark.parametrize("hardware", ["h100_sxm", "cpu_generic"])
def test_no_ground_is_a_reason(requested: OpRow, reason: Reason, hardware: str) -> None:
    (estimate,) = estimate_rows([requested], load_device(hardware))
    assert (estimate.latency_us, estimate.bound, estimate.reason) == (None, None, reason)


def test_8_bit_products_need_units_for_them() -> None:
    linear = row("aten::linear", [[64, 512], [512, 512]], "float8_e4m3fn")
    assert estimate_rows([linear], load_device("a100_sxm_80gb"))[0].reason == Reason.UNITS
    scaled = row("aten::_scaled_mm", [[64, 512], [512, 512], [64, 1], [1, 512]], "float8_e4m3fn")
    whole, product = (estimate.latency_us for estimate in estimate_rows([linear, scaled], H100))
    assert whole is not None and product is not None
    assert whole > product + 1.0  # a linear layer quantizes its input, the operands of _scaled_mm are in 8 bits


def test_tf32_is_requested_for() -> None:
    shapes = [[4096, 4096], [4096, 4096]]
    plain, tf32 = estimate_rows([row("aten::mm", shapes), row("aten::mm", shapes, tf32=True)], H100)
    assert plain.latency_us is not None and tf32.latency_us is not None and plain.latency_us > 2 * tf32.latency_us


LINEAR = {"op": "aten::linear", "shapes": [[64, 4096], [4096, 4096], None], "dtype": "bfloat16"}
BAG = {"op": "aten::embedding_bag", "shapes": [[1_000_000, 64], [65_536], [2048]],
       "dtypes": ["float32", "int64", "int64"]}  # fmt: skip
HISTOGRAM = [30_000, 8_000, 3_000, 1_000, 0, 0]  # once, twice, 3 to 4, 5 to 8 times


def rows_of(tmp_path: Path, *entries: dict[str, Any]) -> tuple[OpRow, ...]:
    return read_op_rows(lines(tmp_path / "ops.jsonl", *entries))[1]


def estimates(tmp_path: Path, *entries: dict[str, Any]) -> list[float]:
    result = estimate_rows(rows_of(tmp_path, *entries), H100)
    assert all(a.reason is None and a.bound in ("compute", "memory", "launch") for a in result)
    return [a.latency_us or 0.0 for a in result]


def test_a_fused_chain_is_a_row_of_buffers(tmp_path: Path) -> None:
    buffer = [4096, 4096]
    fused, *isolated = estimates(
        tmp_path,
        {"op": "triton_poi_fused_add_mul_relu_0", "shapes": [buffer] * 4, "dtype": "float32"},
        *({"op": op, "shapes": shapes, "dtype": "float32"}
          for op, shapes in (("aten::add", [buffer] * 2), ("aten::mul", [buffer] * 2), ("aten::relu", [buffer]))),
    )  # fmt: skip
    assert fused == pytest.approx(sum(isolated) * 4 / 8, rel=0.05)  # 4 buffers instead of 8 tensors moved


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
