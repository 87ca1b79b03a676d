"""Published rates as tokens per second, by the formula of their source."""

from __future__ import annotations

import pytest

from research.benchmarks.published_steps import MEGATRON, ROWS, equation_3_flops, planned, published_tokens_per_s


def test_rates_of_megatron_follow_equation_3() -> None:
    """Narayanan et al. 2021: 96 B s l h^2 (1 + s/6h + V/16lh); 18.4 billion parameters, 135 TFLOP/s."""
    row = next(row for row in ROWS if row.source == MEGATRON and row.tflops == 135)
    plan = planned(row)
    per_token = 96 * 40 * 6144**2 * (1 + 2048 / (6 * 6144) + 51200 / (16 * 40 * 6144))
    assert equation_3_flops(plan) == pytest.approx(per_token)
    assert published_tokens_per_s(row, plan) == pytest.approx(135e12 / per_token)


def test_published_tokens_stay_as_they_are() -> None:
    assert published_tokens_per_s(ROWS[0], planned(ROWS[0])) == 2162


def test_rows_have_the_parallelism_of_their_source() -> None:
    sizes = [planned(row).parallelism.world_size for row in ROWS]
    assert sizes == [64, 64, 64, 128, 128, 32, 64, 128, 256, 512, 1024, 1536, 16384, 64]
