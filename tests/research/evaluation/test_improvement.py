"""P(A > B) of three runs and two seeds, by hand and by enumeration."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from research.evaluation.improvement import Improvement, Verdict, improvement, share_better
from research.evaluation.run_sums import RunSums
from tests.command import Command
from tests.research.evaluation.made_records import folder_of, made

RUNS = ("a", "b", "c")
# every one of the 27 ways to draw three runs of three, as counts
EVERY = np.array([[draw.count(run) for run in range(3)] for draw in product(range(3), repeat=3)])


def sums(*errors: list[float], runs: tuple[str, ...] = RUNS) -> RunSums:
    """One node per run: errors by seed and run."""
    return RunSums(runs, np.log(np.array(errors)), np.ones((len(errors), len(runs))))


def test_two_seeds_by_hand() -> None:
    """The first seed of A is better by a factor of 2 on a and b, worse by 8 on c: it wins the 8 of 27 draws without c.

    With c once and the others twice the product is 8 / 4 > 1: lost. The second seed is worse everywhere.
    """
    one, other = sums([0.1, 0.1, 0.8], [0.3, 0.3, 0.8]), sums([0.2, 0.2, 0.1])
    assert share_better(one, other, EVERY) == pytest.approx(8 / 54)
    two = sums([0.2, 0.2, 0.1], [0.9, 0.9, 0.9])  # the second seed of B loses every time
    assert share_better(one, two, EVERY) == pytest.approx((8 + 0 + 27 + 27) / 108)


def test_equal_errors_count_half() -> None:
    same = sums([0.1, 0.2, 0.3])
    assert share_better(same, same, EVERY) == 0.5
    result = improvement(same, same)
    assert (result.probability, result.low, result.high, result.verdict) == (0.5, 0.5, 0.5, Verdict.OPEN)


def test_weights_of_runs() -> None:
    """Run a has 9 nodes of error 0.1, run b one of 0.9: weighted, not one run one vote. A is 0.13 everywhere."""
    runs = ("a", "b")
    other = RunSums(runs, np.log([[0.1, 0.9]]) * [9, 1], np.array([[9.0, 1.0]]))
    flat = RunSums(runs, np.log([[0.13, 0.13]]) * [9, 1], np.array([[9.0, 1.0]]))
    assert other.value == pytest.approx(0.1**0.9 * 0.9**0.1)  # 0.1246
    assert share_better(flat, other, np.array([[1, 1]])) == 0.0
    assert share_better(flat, other, np.array([[0, 2]])) == 1.0


def test_the_drawn_share_nears_the_enumerated_one() -> None:
    one, other = sums([0.1, 0.1, 0.8], [0.3, 0.3, 0.8]), sums([0.2, 0.2, 0.1])
    result = improvement(one, other, num_draws=4000, num_inner=10)
    assert result.probability == pytest.approx(8 / 54, abs=0.02)
    assert result.low <= result.probability <= result.high
    assert result.num_runs == 3


@pytest.mark.parametrize(
    ("probability", "low", "high", "verdict"),
    [
        (0.9, 0.6, 1.0, Verdict.MEANINGFUL),
        (0.75, 0.51, 0.9, Verdict.MEANINGFUL),
        (0.7, 0.55, 0.8, Verdict.SIGNIFICANT),
        (0.9, 0.5, 1.0, Verdict.OPEN),
        (0.1, 0.0, 0.49, Verdict.LOST),
        (1.0, float("nan"), float("nan"), Verdict.OPEN),
    ],
)
def test_verdicts(probability: float, low: float, high: float, verdict: Verdict) -> None:
    assert Improvement(probability, low, high, 5).verdict is verdict


def test_few_seeds_widen_the_interval() -> None:
    """On every run, half of A's seeds win and half lose: with two seeds nothing knows, with forty it is even."""
    few, many = ([[0.1] * 3, [0.3] * 3] * n for n in (1, 20))
    other = sums([0.2] * 3)
    wide, narrow = (improvement(sums(*seeds), other, num_draws=400, num_inner=5) for seeds in (few, many))
    assert wide.probability == narrow.probability == 0.5
    assert (wide.low, wide.high) == (0.0, 1.0)
    assert narrow.high - narrow.low < 0.4


@given(st.integers(0, 1000))
def test_the_two_directions_add_up_to_one(seed: int) -> None:
    draw = np.random.default_rng(seed)
    one, other = (sums(*draw.uniform(0.01, 1, (2, 3)).tolist()) for _ in range(2))
    assert share_better(one, other, EVERY) + share_better(other, one, EVERY) == pytest.approx(1.0)


def test_the_interval_of_a_geometric_mean_draws_runs_and_seeds() -> None:
    result = sums([0.1, 0.1, 0.1], [0.4, 0.4, 0.4])
    assert result.value == pytest.approx(0.2)
    assert result.interval() == pytest.approx((0.1, 0.4))  # both draws of one seed are the same one in half the cases
    assert np.isnan(sums([0.1], runs=("a",)).interval()[0])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """gnn beats analytic on size and loses on link; pooled has no node predictions; a floor."""
    worse, better = (0.3, 0.5, 0.9), (0.05, 0.1, 0.2)
    return folder_of(
        tmp_path / "cells",
        *(made(seed=s, split=split) for s in (0, 1) for split in ("size", "link")),
        made("analytic", worse, seed=None), made("analytic", better, seed=None, split="link"),
        made("pooled", worse, nodes=False),
        made("another-recording", better, seed=None, data="f"),
    )  # fmt: skip


def test_all_rows_with_verdicts(folder: Path, tmp_path: Path, command: Command) -> None:
    sentences = command.shown("improvement", folder, "--of", "gnn", "--json", tmp_path / "out" / "found.json")
    assert "over analytic, node GMAE: P >= 0.75 on 1 of 2 splits; lost: link" in sentences
    assert "over pooled, step geomean: P >= 0.75 on 1 of 1 splits; lost: none" in sentences
    result = json.loads((tmp_path / "out" / "found.json").read_text())
    by_key = {(r["over"], r["split"], r["metric"]): r for r in result["comparisons"]}
    assert {over for over, _, _ in by_key} == {"analytic", "pooled"}  # no floor
    assert ("pooled", "size", "node GMAE") not in by_key
    won = by_key["analytic", "size", "step geomean"]
    assert (won["probability"], won["low"], won["verdict"]) == (1.0, 1.0, "significant and meaningful")
    assert (won["seeds"], won["seeds_over"], won["runs"]) == (2, 1, 3)
    assert won["error"] == pytest.approx((0.1 * 0.2 * 0.4) ** (1 / 3))
    assert by_key["analytic", "link", "node GMAE"]["verdict"] == "lost beyond noise"
    command.shown("improvement", folder, "--of", "gnn", "--programs", "--json", tmp_path / "p.json")
    drawn = json.loads((tmp_path / "p.json").read_text())["comparisons"]
    assert {r["runs"] for r in drawn} == {2}  # two of the three runs are of one program
    assert [r["error"] for r in drawn] == pytest.approx([r["error"] for r in result["comparisons"]])
