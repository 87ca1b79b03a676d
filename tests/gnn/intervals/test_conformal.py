"""Conformal bounds: places in an order, and what that promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.gnn.intervals.nodes import attainable, one_sided, two_sided


def test_nineteen_scores_give_ninety_percent_by_their_ends() -> None:
    scores = np.arange(19.0)
    assert two_sided(scores, 0.9) == (0.0, 18.0)
    assert two_sided(scores[:18], 0.9) == (-math.inf, math.inf)
    assert two_sided(np.arange(39.0), 0.9) == (1.0, 37.0)


def test_a_run_counts_once_however_often_it_was_recorded() -> None:
    sizes, runs = np.array([1.0, 2.0, 3.0, 9.0]), np.array(["a", "b", "c", "d"])
    assert one_sided(sizes, runs, 0.8) == 9.0  # 4 of 5 places
    assert one_sided(sizes, runs, 0.6) == 3.0
    repeated = np.repeat(sizes, 2), np.repeat(runs, 2)
    assert one_sided(*repeated, 0.6) == 3.0
    assert one_sided(np.array([1.0, 2.0, 9.0, 9.0]), np.array(["a", "b", "c", "c"]), 0.5) == 2.0
    assert one_sided(sizes, runs, 0.9) == math.inf


def test_as_many_runs_as_there_are_tell_no_more_than_their_largest() -> None:
    assert attainable(8, 0.9) == pytest.approx(8 / 9)
    assert attainable(9, 0.9) == 0.9
    assert attainable(0, 0.9) == 0.0


@given(st.integers(19, 200), st.integers(0, 2**31))
def test_the_promise_is_retained_on_average(count: int, seed: int) -> None:
    """Of count + 1 scores, each in turn left out of the bounds: at most a tenth lies outside."""
    scores = np.random.default_rng(seed).standard_normal(count + 1)
    outside = 0
    for place in range(len(scores)):
        low, high = two_sided(np.delete(scores, place), 0.9)
        outside += not low <= scores[place] <= high
    assert outside <= 0.1 * (count + 1) + 1e-9
