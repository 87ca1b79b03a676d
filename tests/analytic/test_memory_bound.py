"""Streams: hand-computed times, and what must hold whatever the numbers are."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from round_device import CONSTANTS, DEVICE

from gnnperf.analytic.constants_file import read_constants
from gnnperf.analytic.memory_bound.constants import MemoryConstants, MemorySystem, default_memory_constants
from gnnperf.analytic.memory_bound.streams import (
    cache_bytes,
    chain_us,
    elementwise_us,
    miss_share,
    missing_share,
    reduction_us,
    stream_share,
    stream_us,
    sustained_bytes_per_s,
)
from gnnperf.core.errors import InputError
from gnnperf.hardware.spec import Measured
from research.fitting.files import write_constants

MANY_BYTES = st.floats(0, 1e12)


def test_a_stream_is_its_floor_plus_bytes_over_sustained_bandwidth() -> None:
    assert stream_us(np.array([0.0, 1e6, 1e9]), DEVICE, CONSTANTS) == pytest.approx([2.0, 4.0, 2002.0])


def test_a_calibrated_device_keeps_its_own_share() -> None:
    measured = replace(DEVICE, measured={"memory_bandwidth_bytes_per_s": Measured(1e12, 1e12, 1e12)})
    assert sustained_bytes_per_s(measured, CONSTANTS) == 1e12  # DEVICE states a share of 1, the constants say a half
    assert sustained_bytes_per_s(DEVICE, CONSTANTS) == 0.5e12


def test_half_of_a_sweep_as_large_as_the_cache_misses() -> None:
    assert miss_share(np.array([0.0, 1e6, np.inf]), 1e6) == pytest.approx([0.0, 0.5, 1.0])
    small = np.array([1e3])  # all from the cache: 100 bytes per clock of 10 SMs, twice as fast
    missing = missing_share(small, 1.0, DEVICE, CONSTANTS)
    assert stream_us(small, DEVICE, CONSTANTS, missing) == pytest.approx([2.0 + 0.001])


def test_ops_of_programs_and_after_others_find_nothing_in_the_cache() -> None:
    for turns in (np.nan, 1e6, np.inf):
        assert missing_share(np.array([1e3, 1e9]), turns, DEVICE, CONSTANTS) == pytest.approx([1.0, 1.0])


def test_a_cache_in_two_partitions_keeps_less() -> None:
    wide = replace(DEVICE, architecture="hopper", memory_bus_bits=5120)
    assert cache_bytes(wide, CONSTANTS) == 0.5e6 and cache_bytes(replace(wide, memory_bus_bits=384), CONSTANTS) == 1e6
    assert cache_bytes(replace(wide, architecture="volta"), CONSTANTS) == 1e6


def test_a_heavy_op_is_bound_by_its_instructions() -> None:
    elements, moved = np.array([1e6]), np.array([8e6])
    assert elementwise_us("add", elements, moved, DEVICE, CONSTANTS) == pytest.approx([2.0 + 16.0])
    assert elementwise_us("pow", elements, moved, DEVICE, CONSTANTS) == pytest.approx([2.0 + 100.0])  # 1e8 / 1e12 s


def test_a_fused_chain_takes_one_floor_its_buffers_and_the_instructions_of_all() -> None:
    elements, moved = np.array([1e6]), np.array([12e6])  # two buffers in, one out
    assert chain_us(("add", "mul", "relu"), elements, moved, DEVICE, CONSTANTS) == pytest.approx([2.0 + 24.0])
    # a million elements of "pow" at 100 lane cycles and of two plain ops next to it, at 1e12 lane cycles a second
    assert chain_us(("add", "pow", "mul"), elements, moved, DEVICE, CONSTANTS) == pytest.approx([2.0 + 102.0])
    isolated = elementwise_us("add", elements, moved, DEVICE, CONSTANTS)
    assert chain_us(("add",), elements, moved, DEVICE, CONSTANTS) == isolated


def test_a_chain_is_faster_than_its_ops_one_by_one() -> None:
    elements = np.array([1e6])
    fused = chain_us(("add", "mul", "relu"), elements, np.array([12e6]), DEVICE, CONSTANTS)
    each = [elementwise_us(op, elements, np.array([m]), DEVICE, CONSTANTS)
            for op, m in (("add", 12e6), ("mul", 8e6), ("relu", 8e6))]  # fmt: skip
    assert sum(each) == pytest.approx([6.0 + 56.0])
    assert fused < sum(each)


def test_few_results_need_a_second_pass() -> None:
    assert reduction_us(np.array([1e6]), np.array([1.0]), 4, DEVICE, CONSTANTS) == pytest.approx([12.0], rel=1e-5)
    assert reduction_us(np.array([1e6]), np.array([1e3]), 4, DEVICE, CONSTANTS) == pytest.approx([10.008])


@given(MANY_BYTES, MANY_BYTES)
def test_more_bytes_are_never_faster(one: float, other: float) -> None:
    moved = np.sort(np.array([one, other]))
    for turns in (np.nan, 1.0, 7.0, np.inf):
        first, second = stream_us(moved, DEVICE, CONSTANTS, missing_share(moved, turns, DEVICE, CONSTANTS))
        assert first <= second * (1 + 1e-12)


def test_shipped_constants_are_plausible_and_say_where_they_come_from() -> None:
    constants = default_memory_constants()
    assert 0.5 < constants.stream_share < 1.0 and constants.partitioned_share < constants.cache_share
    assert constants.provenance


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("rows_of", {"volta": {"layer_norm": {}}}, "rows_of.volta"),
        ("gaps", {"add": {"call_us": -1.0, "issue_share": 0.5}}, "gaps.add.call_us"),
    ],
)
def test_bad_constants_are_named(key: str, value: object, message: str, tmp_path: Path) -> None:
    write_constants(tmp_path / "c.yaml", CONSTANTS, 6)
    raw = yaml.safe_load((tmp_path / "c.yaml").read_text())
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({**raw, key: value}))
    with pytest.raises(InputError, match=message):
        read_constants(tmp_path / "c.yaml", MemoryConstants)


def test_a_device_has_the_share_of_the_memory_that_is_nearest() -> None:
    systems = {"hbm": MemorySystem(4096, 2e9, 0.9), "gddr": MemorySystem(256, 8e9, 0.7)}
    constants = replace(CONSTANTS, systems=systems)
    wide = replace(DEVICE, memory_bus_bits=5120, memory_pin_bits_per_s=3e9)
    assert stream_share(wide, constants) == 0.9
    assert stream_share(replace(wide, memory_bus_bits=192, memory_pin_bits_per_s=12e9), constants) == 0.7
    assert stream_share(replace(wide, memory_bus_bits=None), constants) == CONSTANTS.stream_share
    assert stream_share(wide, CONSTANTS) == CONSTANTS.stream_share  # nothing was measured


def test_a_generation_that_was_measured_has_row_kernels_of_its_own(tmp_path: Path) -> None:
    own = {name: replace(kernel, rereads=2.0) for name, kernel in CONSTANTS.rows.items()}
    constants = replace(CONSTANTS, rows_of={"volta": own})
    assert constants.row_kernel("layer_norm", "volta") == own["layer_norm"]
    assert constants.row_kernel("layer_norm", "ada") == constants.row_kernel("layer_norm", None)
    assert constants.row_kernel("layer_norm", None) == CONSTANTS.rows["layer_norm"]
    write_constants(tmp_path / "c.yaml", constants, 6)
    assert read_constants(tmp_path / "c.yaml", MemoryConstants) == constants
