"""Predictions of hidden nodes from revealed ones, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from research.benchmarks.evidence_rows import (
    Episode,
    Trace,
    episode,
    errors,
    own_op_us,
    ratio_us,
    shrunk_us,
    stalls,
)

FOUR = Trace(
    "four", "p", np.array([0, 0, 0, 1]),
    np.array([[0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [1, 1, 0, 0, 0], [2, 2, 1, 1, 0]]),  # two alike, one of their family
    np.array([10.0, 10.0, 10.0, 5.0]), np.array([20.0, 40.0, 10.0, 5.0]),
    np.array([True, True, True, False]), np.array([False, False, False, True]),
)  # fmt: skip


def test_own_op_means_take_the_finest_group_with_a_revealed_node() -> None:
    assert own_op_us(FOUR, np.array([0])).tolist() == [20.0] * 4
    assert own_op_us(FOUR, np.array([0, 2])).tolist() == [20.0, 20.0, 10.0, 15.0]
    assert own_op_us(FOUR, np.array([], dtype=int)).tolist() == FOUR.base.tolist()


def test_ratios_of_kinds_and_ratios_shrunk_to_their_parent() -> None:
    assert ratio_us(FOUR, np.array([0, 2])).tolist() == [15.0, 15.0, 15.0, 5.0]
    (shrunk,) = {float(us) for us in shrunk_us(FOUR, np.array([0]))[:2]}
    assert shrunk == 19.6875  # 10, 15, 17.5, 18.75, 19.375: each level halves what is left to 20
    assert shrunk_us(FOUR, np.array([], dtype=int)).tolist() == FOUR.base.tolist()


def test_a_step_is_judged_by_other_steps_or_by_its_rest() -> None:
    draw = np.random.default_rng(0)
    at = episode(FOUR, 1, 1.0, draw)
    assert (at.revealed.tolist(), at.hidden.tolist()) == ([0, 1, 2], [3])
    alone = replace(FOUR, step=np.zeros(4, dtype=int))
    at = episode(alone, 0, 0.5, draw)
    assert sorted([*at.revealed, *at.hidden]) == [0, 1, 2, 3]


def test_errors_by_hand() -> None:
    result = errors(FOUR, Episode(np.array([0]), np.array([1, 2, 3])), np.array([30.0, 10.0, 10.0]))
    assert result == {"hosts": pytest.approx(0.2), "steady hosts": pytest.approx(0.2), "unmodeled": pytest.approx(1.0)}


def test_a_stall_is_no_evidence_and_no_steady_host() -> None:
    """Four nodes of one op, one of 2 ms; where only that one is revealed, nothing shows that it is a stall."""
    like = replace(FOUR, groups=np.zeros((4, 5), dtype=np.int64), measured=np.array([20.0, 2000.0, 20.0, 5.0]))
    assert stalls(like, np.arange(4)).tolist() == [False, True, False, False]
    assert not stalls(like, np.array([1])).any()
    alone = replace(like, groups=np.array([[0, 0, 0, 0, 0], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]))
    assert stalls(alone, np.arange(4)).tolist() == [False, True, False, False]  # the median of its kind
    assert episode(like, 1, 1.0, np.random.default_rng(0)).revealed.tolist() == [0, 2]
    given = errors(like, Episode(np.array([3]), np.array([0, 1, 2])), np.array([20.0, 20.0, 30.0]))
    assert given["hosts"] == pytest.approx(1970 / 2040) and given["steady hosts"] == pytest.approx(0.25)
    assert np.isnan(errors(FOUR, Episode(np.array([0]), np.array([1])), np.array([40.0]))["unmodeled"])
