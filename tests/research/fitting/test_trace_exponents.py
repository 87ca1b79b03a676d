"""Exponents of ratios: synthetic pairs of GPUs of four generations."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pandas as pd

from research.benchmarks._generations import KIND
from research.fitting.trace_exponents import fitted, judged, left_out
from research.pretraining.rows import GENERATION


def _pairs(**exponents: float) -> pd.DataFrame:
    """Generation of the target -> exponent by which its measurements move."""
    model = np.linspace(-1.0, 1.0, 21)
    parts = [
        pd.DataFrame({
            "change": "hardware", GENERATION: target, "source": f"{source} GPU", "source_generation": source,
            "device": f"{target} GPU", KIND: "mm", "measured": exponents[target] * model, "model": model,
        })
        for source, target in permutations(exponents, 2)
    ]  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def test_the_exponent_of_all_generations_is_found_and_proven() -> None:
    given = _pairs(a=0.5, b=0.5, c=0.5)
    assert fitted(given) == 0.5
    assert "0.5 of all, proven" in judged("hardware, gemm", given)[-1]


def test_the_generation_left_out_has_no_part_in_its_exponent() -> None:
    folds = {left: (exponent, error < plain) for left, exponent, error, plain in left_out(_pairs(a=0.5, b=0.5, c=1.5))}
    assert folds["c"] == (0.5, False)


def test_an_exponent_that_one_generation_contradicts_is_not_proven() -> None:
    assert "not proven: 1" in judged("hardware, gemm", _pairs(a=0.5, b=0.5, c=0.5, d=1.0))[-1]


def test_an_exponent_without_a_gain_is_one() -> None:
    given = _pairs(a=1.0, b=1.0, c=1.0)
    assert fitted(given) == 1.0
    assert "not proven: 1" in judged("hardware, gemm", given)[-1]
    assert "fewer than three" in judged("hardware, gemm", _pairs(a=1.0, b=1.0))[0]
