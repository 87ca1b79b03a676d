"""Intervals of the benchmark of generations, on a few numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gnnperf.gnn.intervals.devices import expected_bounds
from research.benchmarks._generation_answers import GROUP
from research.benchmarks.generations import _bounds
from research.fitting.rows import GENERATION


def _rows(generation: str, scores: np.ndarray, group: str = "gemm") -> pd.DataFrame:
    return pd.DataFrame({GENERATION: generation, GROUP: group, "score": scores})


def test_bounds_follow_the_scores_of_the_same_group() -> None:
    spread = np.linspace(-1.0, 1.0, 199)
    known = pd.concat([_rows("b", spread - 1.0), _rows("c", spread + 1.0), _rows("b", 9 * spread, "conv")])
    low, high = _bounds(known, _rows("d", spread[:5]), expected_bounds)
    of_gemm = known[known[GROUP] == "gemm"]
    lower, upper = expected_bounds(of_gemm["score"].to_numpy(), of_gemm[GENERATION].to_numpy(str), 0.9)
    assert low == pytest.approx(np.full(5, lower))
    assert high == pytest.approx(np.full(5, upper))
    assert lower < -2 < 2 < upper < 9  # 19 with the rows of the other group
