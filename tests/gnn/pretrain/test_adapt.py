"""A few rows of a new GPU: what they change, and when they change nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnnperf.core.errors import InputError
from gnnperf.gnn.data.numbers import DEVICE_NAMES, WORK_NAMES
from gnnperf.gnn.pretrain.adapt import COLUMNS, choose_rows, numbers
from gnnperf.gnn.pretrain.encode import EncodedRows
from gnnperf.gnn.pretrain.observation import Observed
from gnnperf.gnn.pretrain.reach import OFFSET_ROWS, Learned, Reach, learn, solved


def _rows(values: np.ndarray, log_label: np.ndarray) -> EncodedRows:
    """[n] rows that differ in the first two features that adapting looks at; base 1 us."""
    count = len(values)
    x = torch.zeros(count, len(WORK_NAMES))
    x[:, COLUMNS[:2]] = torch.from_numpy(values).float()
    nothing = torch.zeros(count, dtype=torch.float64)
    return EncodedRows(
        x, torch.zeros(count, 7, dtype=torch.int64), torch.zeros(count, dtype=torch.int64),
        torch.zeros(1, len(DEVICE_NAMES)), torch.ones(count, dtype=torch.float64), torch.from_numpy(log_label),
        Observed(nothing, nothing, nothing + 1),
    )  # fmt: skip


def _learned(rows: EncodedRows) -> Learned:
    """From all of these rows; zero-shot is 1 us."""
    return learn(numbers(rows), rows.log_label.numpy(), numbers(rows), seed=0)


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
    rows = _rows(values, 0.3 + 0.02 * np.random.default_rng(1).normal(size=64))
    found = _learned(rows)
    assert found.reach is not None
    assert found.correction(numbers(_rows(_pool(5), np.zeros(200)))).mean() == pytest.approx(0.3, abs=0.05)


def test_what_depends_on_size_is_carried_to_similar_rows() -> None:
    values, unseen = _pool(count=128), _pool(7)
    rows = _rows(values, 0.4 * np.tanh(values[:, 0]))
    found = _learned(rows)
    left = 0.4 * np.tanh(unseen[:, 0]) - found.correction(numbers(_rows(unseen, np.zeros(200))))
    assert np.abs(left).mean() < 0.5 * np.abs(0.4 * np.tanh(unseen[:, 0])).mean()


def test_noise_changes_nothing() -> None:
    values = _pool(count=32)
    rows = _rows(values, 0.2 * np.random.default_rng(3).normal(size=32))
    found = _learned(rows)
    assert found.reach is None
    assert not found.correction(numbers(rows)).any()


def test_too_few_rows_change_nothing() -> None:
    rows = _rows(_pool(count=6), np.full(6, 1.0))
    assert _learned(rows).reach is None


def test_chosen_rows_lie_where_rows_are() -> None:
    centers = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    values = np.repeat(centers, 20, axis=0) + 0.01 * _pool(2, 60)
    chosen = [choose_rows(_rows(values, np.zeros(60)), 12, seed) for seed in range(3)]
    assert all(set(places // 20) == {0, 1, 2} for places in chosen)
    assert np.array_equal(chosen[0], choose_rows(_rows(values, np.ones(60)), 12, 0))  # labels play no part


def test_more_rows_than_there_are_is_refused() -> None:
    with pytest.raises(InputError, match="at most 5"):
        choose_rows(_rows(_pool(count=5), np.zeros(5)), 6, 0)
