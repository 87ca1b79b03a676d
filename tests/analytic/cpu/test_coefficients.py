"""Prices: by hand, moved to another processor, fitted on calls of known prices, to YAML and back."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.analytic.constants import default_constants, load_constants
from gnnperf.analytic.cpu.coefficients import CoreNumbers, FamilyCoefficients, OpCoefficients, core_numbers
from gnnperf.analytic.cpu.counts import KEYS
from gnnperf.analytic.cpu.fit import CALIBRATED, RECORDED, fit_op_prices
from gnnperf.core.errors import InputError
from gnnperf.hardware.catalog import load_device
from gnnperf.hardware.spec import DeviceSpec
from research.fitting.files import save_constants

CPU = load_device("cpu_generic")
CORE = core_numbers(CPU)
ELEMENTWISE = FamilyCoefficients(
    {"call": 2.0, "byte": 1e-3}, {"aten::tanh": {"call": 2.0, "byte": 10.0}}, {"bfloat16": 3.0}
)
PRICES = OpCoefficients({"elementwise": ELEMENTWISE}, CORE)


def calls(*rows: tuple[str, float, str, str]) -> pd.DataFrame:
    """(op, bytes, dtype, family)."""
    return pd.DataFrame(
        [{"op_name": op, "input_dims": None, "dtype": dtype, "family": family, "flops": np.nan, "bytes": moved}
         for op, moved, dtype, family in rows], columns=KEYS,
    )  # fmt: skip


def test_family_op_and_dtype() -> None:
    result = PRICES.latency_us(
        calls(
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
    call = calls(("aten::relu", 1000.0, "float32", "elementwise"))
    assert PRICES.latency_us(call, twice)[0] == pytest.approx(2 / 4 + 1 / 2)


@given(st.floats(1.0, 1e9), st.floats(1.0, 10.0), st.floats(1.0, 10.0))
def test_more_bytes_never_faster_and_more_bandwidth_never_slower(moved: float, more: float, wider: float) -> None:
    coefficients = default_constants("cpu").op_prices
    assert coefficients is not None
    small, large = coefficients.latency_us(
        calls(*(("aten::relu", m, "float32", "elementwise") for m in (moved, moved * more))), CPU
    )
    assert large >= small * (1 - 1e-12)
    fast = replace(CPU, memory_bandwidth_bytes_per_s=wider * CPU.memory_bandwidth_bytes_per_s)
    assert coefficients.latency_us(calls(("aten::relu", moved, "float32", "elementwise")), fast)[0] <= small * (
        1 + 1e-12
    )


def test_nothing_to_move_costs_the_call() -> None:
    call = calls(("aten::relu", 0.0, "float32", "elementwise"))
    assert PRICES.latency_us(call, CPU)[0] == 2.0


def known_calls(source: str, call_us: float, byte_us: float, op: str = "aten::relu") -> pd.DataFrame:
    moved = np.geomspace(100.0, 1e6, 60)
    made = calls(*((op, m, "float32", "elementwise") for m in moved))
    return made.assign(latency_us=call_us + byte_us * moved, times=10, source=source)


def price(result: OpCoefficients, op: str, moved: float) -> float:
    return float(result.latency_us(calls((op, moved, "float32", "elementwise")), CPU)[0])


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
    copies = calls(("aten::copy_", 0.0, "float32", "copy")).assign(flops=1e9)
    assert result.latency_us(copies, CPU)[0] > 1000  # no call with FLOPs was seen
    products = calls(("aten::mm", 1e6, "float32", "gemm"))  # nor any of that family, nor elementwise ones
    assert result.latency_us(products, CPU)[0] > 10


def test_a_fit_without_costs_is_refused() -> None:
    with pytest.raises(InputError, match="no call with known FLOPs or bytes"):
        fit_op_prices(calls(("my::op", np.nan, "float32", "unknown")), CORE)


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
