"""What revealed nodes say of hidden ones, by hand; trees learn what evidence tells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gnnperf.gnn.data.numbers import WORK_NAMES
from research.benchmarks import evidence_rows
from research.benchmarks.evidence_rows import (
    LEVELS,
    Episode,
    Trace,
    episode,
    errors,
    evidence,
    fit_trees,
    own_op_us,
    predictions,
    ratio_us,
    shrunk_us,
    stalls,
)

FOUR = Trace(
    "four", "p", True, np.array([0, 0, 0, 1]), np.zeros((4, len(WORK_NAMES)), np.float32),
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


def test_evidence_is_of_revealed_nodes_only() -> None:
    columns = evidence(FOUR, np.array([0, 2])).reshape(4, len(LEVELS), 3)
    mean, sums, count = columns[1].T  # of the node that is like node 0
    assert mean[0] == sums[0] == pytest.approx(np.log(2.0))
    assert mean[2] == pytest.approx(np.log(2.0) / 2) and sums[2] == pytest.approx(np.log(1.5))  # family: nodes 0 and 2
    assert np.expm1(count).round(5).tolist() == [1, 1, 2, 2, 2]
    assert np.isnan(columns[3, :4, :2]).all() and not columns[3, :4, 2].any()  # nothing of its kind
    moved = replace(FOUR, measured=np.array([20.0, 9.0, 10.0, 9.0]))
    np.testing.assert_array_equal(evidence(moved, np.array([0, 2])).reshape(columns.shape), columns)


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


def test_trees_in_context_learn_a_machine_that_blind_ones_cannot_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every trace is of a machine with a speed of its own."""
    pytest.importorskip("lightgbm")
    monkeypatch.setitem(evidence_rows.TREES, "min_child_samples", 5)  # type: ignore[arg-type]
    draw = np.random.default_rng(0)

    def made(name: str) -> Trace:
        base = draw.uniform(1.0, 100.0, 300)
        measured = base * np.exp(draw.normal() + 0.05 * draw.normal(size=300))
        groups = np.stack([draw.integers(0, 9, 300)] * 4 + [np.zeros(300, dtype=np.int64)], axis=1)
        return Trace(name, name, True, np.repeat([0, 1], 150), np.log(base)[:, None].astype(np.float32), groups,
                     base, measured, np.ones(300, dtype=bool), np.zeros(300, dtype=bool))  # fmt: skip

    train, test = [made(f"run{i}") for i in range(12)], made("test")
    models = {name: fit_trees(train, name == "trees") for name in ("trees, blind", "trees")}
    at = episode(test, 1, 0.2, draw)
    result = {row: errors(test, at, us)["hosts"] for row, us in predictions(test, at, models).items()}
    assert result["trees"] < 0.1 < result["trees, blind"]
