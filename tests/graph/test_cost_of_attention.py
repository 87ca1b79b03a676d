"""FLOPs of fused attention against torch's formulas."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch.nn import functional
from torch.utils import flop_counter

from gnnperf.core.schema import OpFamily
from tests.graph.op_calls import cost, recorded_calls


def _cpu_attention() -> None:
    q, k, v = (torch.ones(2, 3, 7, 8, requires_grad=True) for _ in range(3))
    functional.scaled_dot_product_attention(q, k, v).sum().backward()


def test_attention_op_of_the_profiler_is_costed(tmp_path: Path) -> None:
    calls = dict(recorded_calls(_cpu_attention, tmp_path))
    assert calls["aten::_scaled_dot_product_flash_attention_for_cpu"].flops == 2 * 2 * 3 * 7 * 7 * (8 + 8)
    assert calls["aten::_scaled_dot_product_flash_attention_for_cpu_backward"].flops == 2 * 2 * 3 * 7 * 7 * (5 * 8)


@pytest.mark.parametrize(
    ("name", "formula", "dims", "q", "k"),
    [
        ("aten::_flash_attention_forward", flop_counter.sdpa_flop, "blhd", (2, 7, 3, 8), (2, 9, 3, 8)),
        ("aten::_efficient_attention_forward", flop_counter.sdpa_flop, "blhd", (2, 7, 3, 8), (2, 9, 3, 8)),
        ("aten::_scaled_dot_product_flash_attention", flop_counter.sdpa_flop, "bhld", (2, 3, 7, 8), (2, 3, 9, 8)),
        ("aten::_scaled_dot_product_efficient_attention", flop_counter.sdpa_flop, "bhld", (2, 3, 7, 8), (2, 3, 9, 8)),
        (
            "aten::_scaled_dot_product_flash_attention_for_cpu",
            flop_counter.sdpa_flop,
            "bhld",
            (2, 3, 7, 8),
            (2, 3, 9, 8),
        ),
        ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", None, "bhld", (2, 3, 7, 8), (2, 3, 9, 8)),
        ("aten::_flash_attention_backward", None, "blhd", (2, 7, 3, 8), (2, 9, 3, 8)),
        ("aten::_efficient_attention_backward", None, "blhd", (2, 7, 3, 8), (2, 9, 3, 8)),
        ("aten::_scaled_dot_product_flash_attention_backward", None, "bhld", (2, 3, 7, 8), (2, 3, 9, 8)),
        ("aten::_scaled_dot_product_efficient_attention_backward", None, "bhld", (2, 3, 7, 8), (2, 3, 9, 8)),
    ],
)
def test_attention_equals_torchs_formula(
    name: str, formula: object, dims: str, q: tuple[int, ...], k: tuple[int, ...]
) -> None:
    backward = formula is None
    first = [list(q)] if backward else []
    result = cost(name, [*first, list(q), list(k), list(k)], ["float"] * (4 if backward else 3))
    heads_first = {"bhld": lambda s: s, "blhd": lambda s: (s[0], s[2], s[1], s[3])}[dims]
    q_, k_ = heads_first(q), heads_first(k)
    expected = (
        flop_counter.sdpa_backward_flop_count(q_, q_, k_, k_) if backward else flop_counter.sdpa_flop_count(q_, k_, k_)
    )
    assert result.flops == expected
    assert result.family is OpFamily.ATTENTION


def test_causal_attention_counts_the_visible_pairs_only() -> None:
    dims, types = [[1, 1, 4, 8]] * 3, ["float"] * 3 + ["Scalar", "Scalar"]
    full = cost(
        "aten::_scaled_dot_product_flash_attention_for_cpu", [*dims, [], []], types, ["", "", "", "0.", "False"]
    )
    causal = cost(
        "aten::_scaled_dot_product_flash_attention_for_cpu", [*dims, [], []], types, ["", "", "", "0.", "True"]
    )
    assert full.flops == 2 * 16 * (8 + 8)
    assert causal.flops == 2 * 10 * (8 + 8)  # 1 + 2 + 3 + 4 of 16 pairs


def test_packed_attention_is_unknown_because_lengths_are_data() -> None:
    result = cost("aten::_flash_attention_forward", [[99, 4, 8]] * 3 + [[5], [5]], ["c10::Half"] * 3 + ["int", "int"])
    assert math.isnan(result.flops) and math.isnan(result.bytes)
    assert result.family is OpFamily.ATTENTION
