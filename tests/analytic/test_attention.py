"""Fused attention: FLOPs, bytes and waves by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from round_device import CONSTANTS, DEVICE

from gnnperf.analytic.attention import Attentions, flops, fused_bytes, fused_us

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
