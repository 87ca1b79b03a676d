"""Streams: hand-computed times, and what must hold whatever the numbers are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from round_device import CONSTANTS, DEVICE

from gnnperf.analytic.memory_bound.streams import (
    chain_us,
    elementwise_us,
    miss_share,
    reduction_us,
    stream_us,
    sustained_bytes_per_s,
)
from gnnperf.hardware.spec import Measured

MANY_BYTES = st.floats(0, 1e12)


def test_a_stream_is_its_floor_plus_bytes_over_sustained_bandwidth() -> None:
    assert stream_us(np.array([0.0, 1e6, 1e9]), DEVICE, CONSTANTS) == pytest.approx([2.0, 4.0, 2002.0])


def test_a_calibrated_device_keeps_its_own_share() -> None:
    measured = replace(DEVICE, measured={"memory_bandwidth_bytes_per_s": Measured(1e12, 1e12, 1e12)})
    assert sustained_bytes_per_s(measured, CONSTANTS) == 1e12  # DEVICE says a share of 1, the constants say a half
    assert sustained_bytes_per_s(DEVICE, CONSTANTS) == 0.5e12


def test_half_of_a_sweep_as_large_as_the_cache_misses() -> None:
    assert miss_share(np.array([0.0, 1e6, np.inf]), 1e6) == pytest.approx([0.0, 0.5, 1.0])
    small = stream_us(np.array([1e3]), DEVICE, CONSTANTS, np.array([1e3]))  # all from the cache: twice as fast
    assert small == pytest.approx([2.0 + 0.001])


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
    for working_set in (np.inf, moved):
        first, second = stream_us(moved, DEVICE, CONSTANTS, working_set)
        assert first <= second * (1 + 1e-12)


@given(MANY_BYTES, st.floats(1.0, 100.0))
def test_more_bandwidth_is_never_slower(moved: float, factor: float) -> None:
    faster = replace(DEVICE, memory_bandwidth_bytes_per_s=DEVICE.memory_bandwidth_bytes_per_s * factor)
    assert stream_us(np.array([moved]), faster, CONSTANTS) <= stream_us(np.array([moved]), DEVICE, CONSTANTS)
