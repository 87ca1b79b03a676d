"""The Sparsity Roofline by hand: a weight of 64 x 64 times 64 x 32 in float16, on 1e12 bytes/s."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from round_device import DEVICE

from gnnperf.core.errors import InputError
from gnnperf.hardware import load_device
from research.sparsity.patterns import Blocks, Dense, Layer, TwoFour, roof_us, sparsity_points

LAYER = Layer(64, 32, 64, "float16")
KNOWS = replace(DEVICE, sparse_matrix_speedup=2.0)
OTHERS_BYTES = 2 * (64 * 32 + 64 * 32)  # the dense operand and the result


def test_a_dense_layer_runs_on_matrix_units() -> None:
    cost = Dense().cost(LAYER, DEVICE, 0.0)
    assert (cost.flops, cost.moved_bytes, cost.flops_per_s) == (2 * 64 * 32 * 64, 2 * 64 * 64 + OTHERS_BYTES, 8e12)


def test_single_values_run_on_plain_units_with_an_index_each() -> None:
    cost = Blocks().cost(LAYER, DEVICE, 0.75)
    retained = 1024
    assert (cost.flops, cost.flops_per_s) == (2 * retained * 32, 2e12)
    assert cost.moved_bytes == 2 * retained + OTHERS_BYTES + 8 * (retained + 64 + 1)


def test_blocks_run_on_matrix_units_from_sixteen_on() -> None:
    result = {edge: Blocks(edge).cost(LAYER, DEVICE, 0.75) for edge in (8, 16)}
    assert [cost.flops_per_s for cost in result.values()] == [2e12, 8e12]
    assert result[16].moved_bytes == 2 * 1024 + OTHERS_BYTES + 8 * (4 + 4 + 1)


def test_two_of_four_needs_units_that_know_it() -> None:
    assert TwoFour().refusal(LAYER, DEVICE) == "round has no units for it"
    assert TwoFour().refusal(LAYER, KNOWS) is None
    cost = TwoFour().cost(LAYER, KNOWS, 0.5)
    assert cost.flops / cost.flops_per_s == pytest.approx(2 * 64 * 32 * 64 / 16e12)
    assert cost.moved_bytes == 2 * 64 * 36 + OTHERS_BYTES
    eight_bits = replace(LAYER, dtype="int8")
    assert TwoFour().refusal(eight_bits, KNOWS) == "round has no units for it in int8"
    assert TwoFour().cost(eight_bits, load_device("h100_sxm"), 0.5).moved_bytes == 64 * 40 + OTHERS_BYTES / 2


def test_two_of_four_takes_float32_as_tf32_only() -> None:
    h100, layer = load_device("h100_sxm"), replace(LAYER, dtype="float32")
    assert TwoFour().refusal(layer, h100) == "h100_sxm has no units for it in float32; --tf32 allows them"
    assert TwoFour().refusal(replace(layer, tf32=True), h100) is None
    assert TwoFour().refusal(Layer(64, 32, 40, "float16"), h100) == "16 does not divide k, 40"


def test_speed_up_is_of_the_dense_layer_and_states_what_bounds_it() -> None:
    """Dense: 262,144 FLOPs take longer than 16,384 bytes. A quarter in blocks of 16: 10,312 bytes."""
    dense, single, blocks = sparsity_points(LAYER, DEVICE, [(Blocks(), 0.75), (Blocks(16), 0.75)])
    assert (dense.roof_us, dense.roof_speedup, dense.bound) == (pytest.approx(0.032768), 1.0, "compute")
    assert (single.roof_us, single.bound) == (pytest.approx(65_536 / 2e12 * 1e6), "compute")
    assert (blocks.roof_us, blocks.bound) == (pytest.approx(10_312e-6), "memory")
    assert blocks.roof_speedup == pytest.approx(32_768 / 10_312)
    assert dense.model_speedup == 1.0
    assert blocks.model_us is not None
    assert blocks.model_us > blocks.roof_us


def test_on_a_cpu_the_roof_is_all_that_is_reported() -> None:
    dense, single = sparsity_points(Layer(64, 32, 64, "float32"), load_device("cpu_generic"), [(Blocks(), 0.5)])
    assert dense.model_us is not None
    assert (single.model_us, single.model_speedup) == (None, None)
    assert single.roof_speedup == pytest.approx(32_768 / 41_480)  # bytes bound both, and an index is 8 of them


@given(st.floats(0.01, 0.98), st.floats(0.001, 0.01))
def test_storing_less_is_never_slower(sparsity: float, more: float) -> None:
    _, some, fewer = sparsity_points(LAYER, DEVICE, [(Blocks(16), sparsity), (Blocks(16), sparsity + more)])
    assert fewer.roof_us <= some.roof_us


@pytest.mark.parametrize(
    ("layer", "key"),
    [((0, 1, 1, "float16"), "--m"), ((1, 1, 1, "float12"), "--dtype"), ((1, 1, 1, "float16", True), "--tf32")],
)
def test_what_is_no_layer_is_refused(layer: tuple[int, int, int, str], key: str) -> None:
    with pytest.raises(InputError, match=key):
        Layer(*layer)


def test_a_block_divides_the_weight() -> None:
    assert Blocks(48).refusal(LAYER, DEVICE) == "48 does not divide m, 64, and k, 64"


def test_the_time_at_a_roof_is_the_longer_of_the_two() -> None:
    assert roof_us(2e6, 1e6, 1e12, 1e12) == pytest.approx(2.0)
    assert roof_us(2e6, 8e6, 1e12, 1e12) == pytest.approx(8.0)
