"""Pieces of the benchmark of generations, on a few numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from research.benchmarks._generation_answers import DENSITY, GROUP
from research.benchmarks._generation_intervals import WAYS, bounds
from research.benchmarks.generations import Held, choose
from research.pretraining.rows import GENERATION


def _rows(generation: str, scores: np.ndarray, size: float = 0.0) -> pd.DataFrame:
    sizes = np.linspace(size, size + 1, len(scores))
    return pd.DataFrame({GENERATION: generation, GROUP: "gemm", "score": scores, **dict.fromkeys(DENSITY, sizes)})


def test_the_narrowest_that_holds_is_chosen_else_the_nearest() -> None:
    split, devices, widest = Held(0.8, 0.6, 1.5, 0.0), Held(0.91, 0.85, 2.0, 0.0), Held(0.97, 0.9, 3.0, 0.0)
    assert choose({"split": split, "devices": devices, "widest": widest}) == "devices"
    assert choose({"split": split, "widest": Held(0.97, 0.9, 3.0, 0.3)}) == "split"  # flags too much
    assert choose({"split": split, "devices": Held(0.95, 0.75, 2.0, 0.0)}) == "devices"  # its worst is the best


def test_each_way_takes_the_scores_it_is_made_of() -> None:
    spread = np.linspace(-1.0, 1.0, 199)
    seen, requested = _rows("a", 0.1 * spread), _rows("d", spread[:5])
    left_out = pd.concat([_rows("b", spread - 1.0), _rows("c", spread + 1.0)], ignore_index=True)
    result = {way: np.stack(bounds(way, seen, left_out, requested)) for way in WAYS}
    assert all(pair.shape == (2, 5) for pair in result.values())
    assert result["split"][:, 0] == pytest.approx([-0.09, 0.09], abs=0.002)
    assert result["devices"][:, 0] == pytest.approx([-1.8, 1.8], abs=0.02)  # a tenth of each beyond on its side
    assert result["expected"][0, 0] < -2 < 2 < result["expected"][1, 0]
    assert result["widest"][:, 0] == pytest.approx([-1.9, 1.9], abs=0.02)


def test_rows_of_another_group_say_nothing() -> None:
    seen = _rows("a", np.linspace(-1, 1, 99)).assign(**{GROUP: "conv"})
    low, high = bounds("split", seen, seen, _rows("d", np.zeros(2)))
    assert np.isinf(low).all()
    assert np.isinf(high).all()
