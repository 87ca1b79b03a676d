"""Prices by hand, moved to another processor, to YAML and back; calls of graphs and calibrations, as fits take them."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from toys import make_graph

from gnnperf.analytic.constants import default_constants, load_constants
from gnnperf.analytic.cpu.coefficients import CoreNumbers, FamilyCoefficients, OpCoefficients, core_numbers
from gnnperf.analytic.cpu.counts import KEYS
from gnnperf.analytic.cpu.fit import CALIBRATED, RECORDED, fit_op_prices
from gnnperf.analytic.cpu.measured import read_calibrated_calls, recorded_calls
from gnnperf.core import InputError, NodeType
from gnnperf.hardware import DeviceSpec, load_device
from research.fitting.files import save_constants

CPU = load_device("cpu_generic")
CORE = core_numbers(CPU)
ELEMENTWISE = FamilyCoefficients(
    {"call": 2.0, "byte": 1e-3}, {"aten::tanh": {"call": 2.0, "byte": 10.0}}, {"bfloat16": 3.0}
)
PRICES = OpCoefficients({"elementwise": ELEMENTWISE}, CORE)


def made_calls(*rows: tuple[str, float, str, str]) -> pd.DataFrame:
    """(op, bytes, dtype, family)."""
    return pd.DataFrame(
        [{"op_name": op, "input_dims": None, "dtype": dtype, "family": family, "flops": np.nan, "bytes": moved}
         for op, moved, dtype, family in rows], columns=KEYS,
    )  # fmt: skip


def test_family_op_and_dtype() -> None:
    result = PRICES.latency_us(
        made_calls(
            ("aten::relu", 1000.0, "float32", "elementwise"),  # 2 + 1
            ("aten::tanh", 1000.0, "float32", "elementwise"),  # 4 + 10
            ("aten::relu", 1000.0, "bfloat16", "elementwise"),  # 2 + 3
            ("my::op", 1000.0, "float32", "pooling"),  # a family without prices: 2 + 1
            ("my::op", np.nan, "float32", "elementwise"),
        ),
        CPU,
    )
    assert result[:4].tolist() == pytest.approx([3.0, 14.0, 5.0, 3.0])
    assert np.isnan(result[4])


def test_another_processor() -> None:
    twice = replace(CPU, memory_bandwidth_bytes_per_s=2 * CPU.memory_bandwidth_bytes_per_s, clock_hz=4 * CPU.clock_hz)
    call = made_calls(("aten::relu", 1000.0, "float32", "elementwise"))
    assert PRICES.latency_us(call, twice)[0] == pytest.approx(2 / 4 + 1 / 2)


@given(st.floats(1.0, 1e9), st.floats(1.0, 10.0), st.floats(1.0, 10.0))
def test_more_bytes_never_faster_and_more_bandwidth_never_slower(moved: float, more: float, wider: float) -> None:
    coefficients = default_constants("cpu").op_prices
    assert coefficients is not None
    small, large = coefficients.latency_us(
        made_calls(*(("aten::relu", m, "float32", "elementwise") for m in (moved, moved * more))), CPU
    )
    assert large >= small * (1 - 1e-12)
    fast = replace(CPU, memory_bandwidth_bytes_per_s=wider * CPU.memory_bandwidth_bytes_per_s)
    assert coefficients.latency_us(made_calls(("aten::relu", moved, "float32", "elementwise")), fast)[0] <= small * (
        1 + 1e-12
    )


def test_nothing_to_move_costs_the_call() -> None:
    call = made_calls(("aten::relu", 0.0, "float32", "elementwise"))
    assert PRICES.latency_us(call, CPU)[0] == 2.0


def known_calls(source: str, call_us: float, byte_us: float, op: str = "aten::relu") -> pd.DataFrame:
    moved = np.geomspace(100.0, 1e6, 60)
    made = made_calls(*((op, m, "float32", "elementwise") for m in moved))
    return made.assign(latency_us=call_us + byte_us * moved, times=10, source=source)


def price(result: OpCoefficients, op: str, moved: float) -> float:
    return float(result.latency_us(made_calls((op, moved, "float32", "elementwise")), CPU)[0])


def test_a_fit_finds_the_coefficients_that_made_the_calls() -> None:
    result = fit_op_prices(known_calls(RECORDED, 5.0, 2e-4), CORE)
    for moved in (0.0, 5000.0, 500_000.0):
        assert price(result, "aten::relu", moved) == pytest.approx(5.0 + 2e-4 * moved, rel=0.05)


def test_an_op_with_calls_of_its_own_pays_its_own_coefficients_and_an_unknown_one_those_between() -> None:
    both = pd.concat([known_calls(RECORDED, 5.0, 2e-4), known_calls(RECORDED, 5.0, 8e-4, "aten::tanh")])
    result = fit_op_prices(both.reset_index(drop=True), CORE)
    relu, tanh, unknown = (price(result, f"aten::{op}", 1e6) for op in ("relu", "tanh", "selu"))
    assert relu == pytest.approx(205, rel=0.1) and tanh == pytest.approx(805, rel=0.1)
    assert relu < unknown < tanh


def test_a_calibration_reports_how_an_op_relates_to_others_not_how_warm_its_caches_were() -> None:
    recorded = known_calls(RECORDED, 4.0, 4e-4)
    calibrated = [known_calls(CALIBRATED, 2.0, 2e-4), known_calls(CALIBRATED, 2.0, 8e-4, "aten::tanh")]
    result = fit_op_prices(pd.concat([recorded, *calibrated], ignore_index=True), CORE)
    ratio = price(result, "aten::tanh", 1e6) / price(result, "aten::relu", 1e6)
    assert ratio == pytest.approx(4.0, rel=0.3)
    assert price(result, "aten::relu", 1e6) == pytest.approx(404, rel=0.15)


def test_what_no_call_has_is_not_free() -> None:
    result = fit_op_prices(known_calls(RECORDED, 5.0, 2e-4).assign(family="copy"), CORE)
    copies = made_calls(("aten::copy_", 0.0, "float32", "copy")).assign(flops=1e9)
    assert result.latency_us(copies, CPU)[0] > 1000  # no call with FLOPs was seen
    products = made_calls(("aten::mm", 1e6, "float32", "gemm"))  # nor any of that family, nor elementwise ones
    assert result.latency_us(products, CPU)[0] > 10


def test_a_fit_without_costs_is_refused() -> None:
    with pytest.raises(InputError, match="no call with known FLOPs or bytes"):
        fit_op_prices(made_calls(("my::op", np.nan, "float32", "unknown")), CORE)


def test_there_and_back(tmp_path: Path) -> None:
    before = replace(default_constants("cpu"), op_prices=PRICES)
    save_constants(before, tmp_path / "c.yaml")
    assert load_constants(tmp_path / "c.yaml") == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"core": {"clock_hz": 1.0}}, "missing or unknown: bandwidth_bytes_per_s, flops_per_s"),
        ({"families": {}}, "no prices of the family 'elementwise'"),
        ({"families": {"elementwise": {"price_us": {"calls": 1.0}, "op_factor": {}, "dtype_factor": {}}}}, "calls"),
        ({"families": {"elementwise": {"price_us": {"call": -1}, "op_factor": {}, "dtype_factor": {}}}}, "value -1"),
    ],
)
def test_bad_coefficients_are_named(change: dict[str, object], message: str, tmp_path: Path) -> None:
    save_constants(replace(default_constants("cpu"), op_prices=PRICES), tmp_path / "c.yaml")
    raw = yaml.safe_load((tmp_path / "c.yaml").read_text())
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({**raw, "op_prices": {**raw["op_prices"], **change}}))
    with pytest.raises(InputError, match=message):
        load_constants(tmp_path / "c.yaml")


def test_numbers_of_a_core() -> None:
    two: DeviceSpec = replace(CPU, num_sms=2, flops_per_s={"float32": 8e9}, memory_bandwidth_bytes_per_s=6e9)
    assert core_numbers(two) == CoreNumbers(4e9, 3e9, CPU.clock_hz)


def node(latency_us: float, **columns: object) -> dict[str, object]:
    return {"node_type": NodeType.COMPUTE, "thread": 0, "op_name": "aten::relu", "input_dims": "[[8]]",
            "dtype": "float32", "family": "elementwise", "flops": 8.0, "bytes": 64.0, "latency_us": latency_us,
            "opened_ops": 0, **columns}  # fmt: skip


def test_a_call_passed_on_in_python_states_nothing_of_an_op_that_opens_none() -> None:
    """ReLU opens nothing of its own; a loss always opens two ops, and sometimes a third."""
    plain, passed_on = node(1.0), node(30.0, opened_ops=6)
    losses = [node(5.0, op_name="aten::loss", opened_ops=opened) for opened in (2, 3)]
    result = recorded_calls([make_graph([plain, passed_on, *losses], [])]).set_index("op_name")
    assert result.loc["aten::relu", ["latency_us", "times"]].tolist() == [1.0, 1]
    assert result.filter(like="loss", axis=0)["times"].sum() == 2  # rows for one after the other, and after the rest


def test_equal_calls_are_one_row_with_their_mean() -> None:
    graph = make_graph([node(1.0), node(2.0), node(9.0), node(5.0, input_dims="[[9]]")], [])
    result = recorded_calls([graph]).set_index("input_dims")
    assert result.loc["[[8]]", ["latency_us", "times", "source"]].tolist() == [4.0, 3, "recorded"]
    assert result.loc["[[9]]", "times"] == 1


def test_kernels_of_a_gpu_unlabeled_calls_and_work_outside_steps_do_not_count() -> None:
    rows = [node(1.0, stream=0), node(float("nan")), node(1.0, step=-1)]
    assert recorded_calls([make_graph(rows, [])]).empty


def row(op: str, shapes: list[Any], **columns: object) -> dict[str, object]:
    return {"op": f"aten::{op}", "kind": "op", "direction": "forward", "shapes": json.dumps(shapes),
            "dtypes": json.dumps(["float32"] * len(shapes)), "arguments": "{}", "tables": 1, "cache": "warm",
            "latency_us": 3.0, **columns}  # fmt: skip


@pytest.fixture
def calls(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Calls read from an op table of one row."""

    def read(**columns: Any) -> list[dict[str, Any]]:
        pd.DataFrame([row(columns.pop("op"), columns.pop("shapes"), **columns)]).to_parquet(tmp_path / "ops.parquet")
        result = read_calibrated_calls([tmp_path / "ops.parquet"])
        assert result is not None
        return [{str(name): value for name, value in record.items()} for record in result.to_dict("records")]

    return read


Calls = Callable[..., list[dict[str, Any]]]


def test_a_product_is_recorded_as_it_is(calls: Calls) -> None:
    (result,) = calls(op="mm", shapes=[[2, 3], [3, 4]])
    assert (result["op_name"], result["input_dims"], result["flops"]) == ("aten::mm", "[[2,3],[3,4]]", 48.0)
    assert (result["latency_us"], result["source"], result["family"]) == (3.0, "calibrated", "gemm")


def test_a_gradient_has_the_name_and_shapes_of_its_op(calls: Calls) -> None:
    (result,) = calls(op="tanh", shapes=[[16]], direction="backward")
    assert (result["op_name"], result["input_dims"]) == ("aten::tanh_backward", "[[16],[16]]")


def test_both_products_of_a_convolutions_gradient_count(calls: Calls) -> None:
    geometry = {"stride": [2, 2], "padding": [1, 1], "groups": 1}
    shapes = [[2, 16, 8, 8], [32, 16, 3, 3]]
    (forward,) = calls(op="conv2d", shapes=shapes, arguments=json.dumps(geometry))
    (backward,) = calls(op="conv2d", shapes=shapes, arguments=json.dumps(geometry), direction="backward")
    assert forward["flops"] == 2 * 2 * 16 * 32 * 16 * 9  # images, 4 x 4 places, channels out and in, window
    assert backward["op_name"] == "aten::convolution_backward"
    assert backward["input_dims"].startswith("[[2,32,16,1],[2,16,8,8],[32,16,3,3]")
    assert backward["flops"] == 2 * forward["flops"]


def test_a_pool_and_its_gradient(calls: Calls) -> None:
    kernel = json.dumps({"kernel_size": [2, 2], "stride": [2, 2]})
    assert calls(op="avg_pool2d", shapes=[[1, 2, 8, 6]], arguments=kernel)[0]["family"] == "pooling"
    (result,) = calls(op="max_pool2d", shapes=[[1, 2, 8, 6]], arguments=kernel, direction="backward")
    assert result["input_dims"] == "[[1,2,4,3],[1,2,8,6]]"


def test_a_sparse_sum_has_the_tables_shape_twice(calls: Calls) -> None:
    (result,) = calls(op="add_", shapes=[[100, 4], [6, 4]], dtypes='["float32", "sparse_float32"]')
    assert (result["family"], result["input_dims"], result["flops"]) == ("embedding", "[[100,4],[100,4],[]]", 48.0)


@pytest.mark.parametrize(
    "columns",
    [{"cache": "flushed"}, {"tables": 4}, {"kind": "collective"}, {"op": "my_own"},
     {"op": "erf", "direction": "backward"}, {"op": "mm", "shapes": [[2, 3], [3, 4]], "direction": "backward"},
     {"op": "embedding", "shapes": [[9, 4], [2]], "dtypes": '["float32", "int64"]', "direction": "backward"}],
)  # fmt: skip
def test_what_is_left_out(columns: dict[str, Any], calls: Calls) -> None:
    assert calls(**{"op": "relu", "shapes": [[8]], **columns}) == []


def test_no_files_no_calls() -> None:
    assert read_calibrated_calls([]) is None


def test_files_that_are_no_op_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_calibrated_calls([tmp_path / "missing.parquet"])
    (tmp_path / "text.parquet").write_text("no table")
    with pytest.raises(InputError, match="cannot be read"):
        read_calibrated_calls([tmp_path / "text.parquet"])
    pd.DataFrame({"op": ["aten::mm"]}).to_parquet(tmp_path / "other.parquet")
    with pytest.raises(InputError, match="column 'shapes' is missing"):
        read_calibrated_calls([tmp_path / "other.parquet"])
    pd.DataFrame({"op": ["aten::neg"], "shapes": ["[[4]]"], "dtype": ["float32"]}).to_parquet(tmp_path / "bare.parquet")
    with pytest.raises(InputError, match="column 'tables' is missing"):
        read_calibrated_calls([tmp_path / "bare.parquet"])


def test_flushed_rows_count_for_tables_only_and_come_after_all_else(calls: Calls) -> None:
    (lookup,) = calls(op="embedding", shapes=[[9, 4], [2]], dtypes='["float32", "int64"]', cache="flushed")
    (warm,) = calls(op="relu", shapes=[[8]])
    assert lookup["between_bytes"] == 2.0**30 and warm["between_bytes"] == 0
