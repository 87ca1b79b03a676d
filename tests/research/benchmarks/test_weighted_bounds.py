from __future__ import annotations

import math

import numpy as np

from gnnperf.gnn.intervals.nodes import two_sided
from research.benchmarks._weighted_bounds import pooled_bounds, weighted_two_sided

SCORES = np.arange(-9.0, 10.0)  # 19: with one more each place in order is a twentieth


def test_equal_weights_are_no_weights() -> None:
    assert weighted_two_sided(SCORES, np.ones(19), 1.0, 0.9) == two_sided(SCORES, 0.9) == (-9.0, 9.0)


def test_a_case_unlike_all_others_is_unbounded_and_rows_like_it_count_more() -> None:
    assert weighted_two_sided(SCORES, np.ones(19), 100.0, 0.9) == (-math.inf, math.inf)
    weights = np.where(SCORES >= 0, 1.0, 0.1)  # sum 10.9, with its own 0.1: a twentieth is 0.55
    assert weighted_two_sided(SCORES, weights, 0.1, 0.9) == (-5.0, math.inf)  # its own and four tenths lie below -5


def test_generations_count_the_same_however_many_rows_they_have() -> None:
    scores, names = np.r_[np.zeros(1000), SCORES], np.r_[np.full(1000, "many"), np.full(19, "few")]
    low, high = pooled_bounds(scores, names, 0.8)  # a fifth of the weight lies beyond: 3.8 rows of "few"
    assert (low, high) == (-7.0, 7.0)
