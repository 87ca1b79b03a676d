"""Streams and kernels over rows: hand-computed times, and what must hold whatever the numbers are."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from round_device import CONSTANTS, DEVICE, KERNEL

from gnnperf.analytic.attention import Attentions, flops, fused_bytes, fused_us
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
from gnnperf.analytic.normalization import layer_norm_backward_us, layer_norm_us, row_kernel_us, softmax_us
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


def row_us(rows: float, columns: float, **changed: float) -> float:
    kernel = replace(KERNEL, **changed)
    return float(row_kernel_us(np.array([rows]), np.array([columns]), 4, DEVICE, CONSTANTS, kernel)[0])


def test_short_rows_are_bound_by_their_instructions() -> None:
    # 100 rows fill 10 SMs x 10 rows: one wave of 10 x (100 + 10) cycles at 1 GHz = 1.1 us on 64 lanes, 0.704 us on 100;
    # 8,000 bytes take 0.016 us
    assert row_us(100, 10) == pytest.approx(2.0 + 0.704 + 0.016, rel=1e-3)
    # one row more waits for them, then has its SM to itself: 11 rows of one SM
    assert row_us(101, 10) == pytest.approx(2.0 + 11 * 110 * 0.64e-3 + 0.016, rel=1e-3)


def test_rows_that_leave_the_cache_are_read_again() -> None:
    # 10 x 10 rows of 1,250 floats read and written are in flight: 1 MB, what the cache keeps, so half is read again.
    expected_bytes = 1e5 * 1250 * 4 * (2 + 0.5)
    got = row_us(1e5, 1250, cycles_per_row=0.0, cycles_per_element=0.0)
    assert got == pytest.approx(2.0 + expected_bytes / 0.5e12 * 1e6)
    once = row_us(1e5, 1250, cycles_per_row=0.0, cycles_per_element=0.0, rereads=0.0)
    assert once == pytest.approx(2.0 + expected_bytes / 2.5 * 2 / 0.5e12 * 1e6)


def test_softmax_keeps_only_short_rows_in_registers() -> None:
    registers = replace(KERNEL, rereads=0.0)
    constants = replace(CONSTANTS, rows={**CONSTANTS.rows, "softmax_warp": registers})
    rows, columns = np.full(3, 1e5), np.array([1024.0, 1025.0, 1024.0])
    plain = softmax_us(rows, columns, 4, DEVICE, constants)
    block = softmax_us(rows, columns, 4, DEVICE, CONSTANTS)
    assert plain[0] < block[0] and plain[1] == block[1]
    assert softmax_us(rows[:1], columns[:1], 8, DEVICE, constants, staged=False) == pytest.approx(
        row_kernel_us(rows[:1], columns[:1], 8, DEVICE, constants, KERNEL)
    )  # float64 rows of that length are too wide


def test_backward_moves_more_than_forward() -> None:
    rows, columns = np.array([1e5]), np.array([1000.0])
    assert layer_norm_backward_us(rows, columns, 4, DEVICE, CONSTANTS) > layer_norm_us(
        rows, columns, 4, DEVICE, CONSTANTS
    )
    assert softmax_us(rows, columns, 4, DEVICE, CONSTANTS, backward=True) > softmax_us(
        rows, columns, 4, DEVICE, CONSTANTS
    )


@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=2), st.lists(st.integers(1, 8192), min_size=2, max_size=2),
       st.sampled_from([1.0, np.nan, np.inf]))  # fmt: skip
def test_more_and_longer_rows_are_never_faster(rows: list[int], columns: list[int], turns: float) -> None:
    us = layer_norm_us(np.sort(np.array(rows, float)), np.sort(np.array(columns, float)), 4, DEVICE, CONSTANTS, turns)
    assert us[0] <= us[1] * (1 + 1e-12)


@given(st.integers(1, 10**5), st.integers(1, 8192), st.floats(1.0, 100.0))
def test_more_bandwidth_is_never_slower(rows: int, columns: int, factor: float) -> None:
    faster = replace(DEVICE, memory_bandwidth_bytes_per_s=DEVICE.memory_bandwidth_bytes_per_s * factor)
    shape = np.array([float(rows)]), np.array([float(columns)])
    assert softmax_us(*shape, 4, faster, CONSTANTS) <= softmax_us(*shape, 4, DEVICE, CONSTANTS)


def test_twice_the_lanes_issue_in_half_the_time() -> None:
    bound = replace(KERNEL, cycles_per_row=1e6)
    one, two = (
        row_kernel_us(np.array([1e4]), np.array([10.0]), 4, replace(DEVICE, lanes_per_sm=n), CONSTANTS, bound)[0] - 2.0
        for n in (64, 128)
    )
    assert one / two == pytest.approx(2.0, rel=1e-3)


def test_rows_shorter_than_a_warp_share_it() -> None:
    # 8 columns take 8 of 32 threads: four rows cost the instructions of one row of 32
    short = softmax_us(np.array([40_000.0]), np.array([8.0]), 4, DEVICE, CONSTANTS)
    assert short == pytest.approx(softmax_us(np.array([10_000.0]), np.array([32.0]), 4, DEVICE, CONSTANTS))


RATES = 4e12, 0.0  # FLOP/s, columns of a pair


def attention(length: float = 256, head_dim: float = 64, heads: float = 5, causal: bool = False) -> Attentions:
    batch, num_heads, positions, width = (np.array([float(v)]) for v in (2, heads, length, head_dim))
    return Attentions(batch, num_heads, positions, positions, width, causal=np.array([causal]))


def fused(calls: Attentions, backward: bool = False, rates: tuple[float, float] = RATES) -> float:
    return float(fused_us(calls, 2, DEVICE, CONSTANTS, rates, backward)[0])


def test_flops_and_bytes_by_hand() -> None:
    pairs = 2 * 5 * 256 * 256
    assert flops(attention()) == pytest.approx([4 * pairs * 64])
    assert flops(attention(), backward=True) == pytest.approx([10 * pairs * 64])
    assert attention(causal=True).pairs == pytest.approx([2 * 5 * 256 * 257 / 2])
    assert fused_bytes(attention(), 2) == pytest.approx([4 * 2 * 5 * 256 * 64 * 2])


def test_a_fused_kernel_takes_whole_waves_of_blocks() -> None:
    # 10 heads of 2 blocks fill 10 SMs twice: 1.68e8 FLOPs at 4e12 FLOP/s, floor 2
    assert fused(attention()) == pytest.approx(2.0 + 4 * 10 * 256 * 256 * 64 / 4e6)
    # 12 heads make 24 blocks: three waves, as long as 30 blocks
    assert fused(attention(heads=6)) == pytest.approx(2.0 + 4 * 15 * 256 * 256 * 64 / 4e6)


def test_narrow_heads_are_padded_and_softmax_counts_as_columns() -> None:
    even = fused(attention(head_dim=96)) - 2.0
    assert fused(attention(head_dim=80)) - 2.0 == pytest.approx(even)  # the work of 96
    assert fused(attention(head_dim=192)) - 2.0 == pytest.approx(2 * even)
    softmax = (RATES[0], 96.0)
    assert fused(attention(head_dim=96), rates=softmax) - 2.0 == pytest.approx(2 * even)


def test_heads_in_float32_are_padded_to_steps_for_scores_and_to_tiles_for_results() -> None:
    widths = [replace(attention(head_dim=n), float32=True).columns[0] for n in (16, 32, 64, 80, 160)]
    assert widths == [(32 + 64) / 2, (32 + 64) / 2, 64, (96 + 128) / 2, (160 + 256) / 2]


@given(st.integers(1, 4096), st.integers(1, 4096), st.booleans(), st.booleans())
def test_longer_sequences_are_never_faster(one: int, other: int, causal: bool, backward: bool) -> None:
    short, long = (fused(attention(length=n, causal=causal), backward) for n in sorted((one, other)))
    assert short <= long * (1 + 1e-12)
