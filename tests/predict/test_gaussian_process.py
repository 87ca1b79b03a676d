"""A few measured rows: what they change, and when they change nothing."""

from __future__ import annotations

import numpy as np
import pytest

from gnnperf.core.errors import InputError
from gnnperf.predict.similar import OFFSET_ROWS, Reach, choose, learn, solved


def _pool(seed: int = 0, count: int = 200) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 2))


def test_the_offset_is_shrunk_by_hand() -> None:
    offset, weights = solved(np.zeros((4, 1)), np.full(4, 0.3), Reach(1.0, float("inf")))
    assert offset == pytest.approx(4 * 0.3 / (4 + OFFSET_ROWS))
    assert not weights.any()


def test_a_row_that_is_believed_is_met() -> None:
    off = np.array([0.2, -0.1, 0.4])
    places = np.array([[0.0], [1.0], [3.0]])
    offset, weights = solved(places, off, Reach(1.0, 1e-9))
    similar = np.exp(-np.abs(places - places.T))
    assert offset + similar @ weights == pytest.approx(off, abs=1e-6)


def test_what_all_rows_share_is_taken_over() -> None:
    values = _pool(count=64)
    result = learn(values, 0.3 + 0.02 * np.random.default_rng(1).normal(size=64), values, seed=0)
    assert result.reach is not None
    assert result.correction(_pool(5)).mean() == pytest.approx(0.3, abs=0.05)


def test_what_depends_on_size_is_transferred_to_similar_rows() -> None:
    values, unseen = _pool(count=128), _pool(7)
    result = learn(values, 0.4 * np.tanh(values[:, 0]), values, seed=0)
    left = 0.4 * np.tanh(unseen[:, 0]) - result.correction(unseen)
    assert np.abs(left).mean() < 0.5 * np.abs(0.4 * np.tanh(unseen[:, 0])).mean()


def test_noise_changes_nothing() -> None:
    values = _pool(count=32)
    result = learn(values, 0.2 * np.random.default_rng(3).normal(size=32), values, seed=0)
    assert result.reach is None
    assert not result.correction(values).any()


def test_too_few_rows_change_nothing() -> None:
    values = _pool(count=6)
    assert learn(values, np.full(6, 1.0), values, seed=0).reach is None


def test_chosen_rows_lie_where_rows_are() -> None:
    centers = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    values = np.repeat(centers, 20, axis=0) + 0.01 * _pool(2, 60)
    chosen = [choose(values, 12, seed) for seed in range(3)]
    assert all(set(places // 20) == {0, 1, 2} for places in chosen)
    assert np.array_equal(chosen[0], choose(values, 12, 0))


def test_more_rows_than_there_are_is_refused() -> None:
    with pytest.raises(InputError, match="at most 5"):
        choose(_pool(count=5), 6, 0)
