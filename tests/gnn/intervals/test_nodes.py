"""Intervals of nodes, steps and unseen devices."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.analytic import read_constants
from gnnperf.core.errors import InputError
from gnnperf.gnn.intervals import nodes
from gnnperf.gnn.intervals.devices import DeviceIntervals, group_names, shipped_intervals
from gnnperf.gnn.intervals.steps import PRIOR_RUNS, StepIntervals, StepMiss, fit_step_intervals, miss_of, shares_of

LOW, HIGH = np.log(0.5), np.log(4.0)


def _estimates(kind: str, predicted_us: float, scores: np.ndarray, num_runs: int = nodes.MIN_RUNS) -> pd.DataFrame:
    count = len(scores)
    table = nodes.estimate_table("cpu", np.full(count, "gnn"), np.full(count, kind), np.full(count, None),
                         np.full(count, predicted_us))  # fmt: skip
    return table.assign(run=[f"run{i % num_runs}" for i in range(count)], measured_us=predicted_us * np.exp(scores))


def _ask(intervals: nodes.NodeIntervals, kind: str, predicted_us: float, device: str = "cpu") -> tuple[float, float]:
    requested = nodes.estimate_table(
        device, np.array(["gnn"]), np.array([kind]), np.array([None]), np.array([predicted_us])
    )
    low, high = intervals.bounds_us(requested)
    return float(low[0]), float(high[0])


def test_a_group_states_what_its_nodes_missed() -> None:
    scores = np.concatenate([[LOW] * 10, np.zeros(nodes.MIN_NODES), [HIGH] * 10])
    result = nodes.fit_node_intervals(_estimates("host T1", 10.0, scores), 0.9)
    assert _ask(result, "host T1", 10.0) == pytest.approx((5.0, 40.0))
    assert result.devices == ("cpu",)
    assert np.isnan(_ask(result, "host T1", 10.0, device="h100_sxm")).all()  # of another device nothing is known


def test_short_nodes_have_intervals_of_their_own_and_others_take_the_next_group() -> None:
    short, long = (
        _estimates("host T1", 1.0, np.full(nodes.MIN_NODES, LOW)),
        _estimates("host T1", 900.0, np.zeros(nodes.MIN_NODES)),
    )
    few = _estimates("compute", 5.0, np.full(nodes.MIN_NODES - 1, HIGH))
    result = nodes.fit_node_intervals(pd.concat([short, long, few]), 0.9)
    assert _ask(result, "host T1", 1.0) == pytest.approx((0.5, 0.5))
    assert _ask(result, "host T1", 900.0) == pytest.approx((900.0, 900.0))
    assert _ask(result, "host T1", 40.0) == pytest.approx((20.0, 40.0))  # no size of its own: all of its kind
    assert _ask(result, "compute", 5.0) == pytest.approx((2.5, 20.0))  # too few: all that the network answered


def test_many_nodes_of_too_few_runs_are_no_group() -> None:
    result = nodes.fit_node_intervals(_estimates("host T1", 10.0, np.zeros(1000), num_runs=nodes.MIN_RUNS - 1), 0.9)
    assert result.log_bounds == {}
    assert np.isnan(_ask(result, "host T1", 10.0)).all()


def test_nodes_without_prediction_or_measurement_tell_nothing() -> None:
    known = _estimates("host T1", 10.0, np.zeros(nodes.MIN_NODES))
    unknown = [known.assign(measured_us=np.nan), known.assign(predicted_us=np.nan), known.assign(predicted_us=0.0)]
    result = nodes.fit_node_intervals(pd.concat([known, *unknown]), 0.9)
    assert result == nodes.fit_node_intervals(known, 0.9)
    assert np.isnan(_ask(result, "host T1", np.nan)).all()


def test_nineteen_scores_give_ninety_percent_by_their_ends() -> None:
    scores = np.arange(19.0)
    assert nodes.two_sided(scores, 0.9) == (0.0, 18.0)
    assert nodes.two_sided(scores[:18], 0.9) == (-math.inf, math.inf)
    assert nodes.two_sided(np.arange(39.0), 0.9) == (1.0, 37.0)


def test_a_run_counts_once_however_often_it_was_recorded() -> None:
    sizes, runs = np.array([1.0, 2.0, 3.0, 9.0]), np.array(["a", "b", "c", "d"])
    assert nodes.one_sided(sizes, runs, 0.8) == 9.0  # 4 of 5 places
    assert nodes.one_sided(sizes, runs, 0.6) == 3.0
    repeated = np.repeat(sizes, 2), np.repeat(runs, 2)
    assert nodes.one_sided(*repeated, 0.6) == 3.0
    assert nodes.one_sided(np.array([1.0, 2.0, 9.0, 9.0]), np.array(["a", "b", "c", "c"]), 0.5) == 2.0
    assert nodes.one_sided(sizes, runs, 0.9) == math.inf


def test_as_many_runs_as_there_are_tell_no_more_than_their_largest() -> None:
    assert nodes.attainable(8, 0.9) == pytest.approx(8 / 9)
    assert nodes.attainable(9, 0.9) == 0.9
    assert nodes.attainable(0, 0.9) == 0.0


@given(st.integers(19, 200), st.integers(0, 2**31))
def test_the_promise_is_retained_on_average(count: int, seed: int) -> None:
    """Of count + 1 scores, each in turn left out of the bounds: at most a tenth lies outside."""
    scores = np.random.default_rng(seed).standard_normal(count + 1)
    outside = 0
    for place in range(len(scores)):
        low, high = nodes.two_sided(np.delete(scores, place), 0.9)
        outside += not low <= scores[place] <= high
    assert outside <= 0.1 * (count + 1) + 1e-9


NODES = pd.DataFrame({
    "group": ["host", "host", "compute", "compute"],
    "critical_us": [10.0, 10.0, 60.0, 0.0],
    "predicted_us": [10.0, 10.0, 60.0, 99.0],
    "measured_us": [10.0, 30.0, 30.0, 1.0],
})  # fmt: skip


def test_what_a_step_missed_by_hand() -> None:
    """80 us predicted; the node off the path shows nothing."""
    miss = miss_of("a", (80.0, 70.0), NODES)
    assert miss.log_error == pytest.approx(math.log(70 / 80))
    assert miss.share == pytest.approx({"host": 0.25, "compute": 0.75})
    assert miss.group_error == pytest.approx({"host": math.log(2.0), "compute": -math.log(2.0)})
    assert shares_of(NODES, 80.0) == pytest.approx(miss.share)


def test_an_unmeasured_group_has_a_share_and_no_error() -> None:
    miss = miss_of("a", (80.0, 70.0), NODES.assign(measured_us=[1.0, 1.0, math.nan, math.nan]))
    assert set(miss.share) == {"host", "compute"}
    assert set(miss.group_error) == {"host"}


def test_groups_err_independently_by_hand() -> None:
    intervals = StepIntervals(0.9, {"host": 0.3, "compute": 0.4}, 0.2, 2.0, ("cpu",))
    low, high = intervals.bounds_us(100.0, {"host": 0.5, "compute": 0.5})
    assert (low, high) == pytest.approx((100.0 / math.exp(0.5), 100.0 * math.exp(0.5)))  # 2 x hypot(0.15, 0.2)
    assert intervals.bounds_us(100.0, {"never seen": 1.0})[1] == pytest.approx(100.0 * math.exp(0.4))


def test_a_group_that_errs_more_makes_wider_intervals() -> None:
    misses = [StepMiss(f"run{i}", 0.1 * i, {"host": 1.0}, {"host": 0.01, "collective": 1.0}) for i in range(1, 10)]
    result = fit_step_intervals(misses, 0.9, ["cpu"] * 9)
    assert result.level == pytest.approx(0.9)
    assert result.group_error["collective"] > 2 * result.group_error["host"]
    quiet, loud = (result.bounds_us(1.0, {group: 1.0})[1] for group in ("host", "collective"))
    assert quiet == pytest.approx(math.exp(0.9))  # nine runs: 90 % is their largest
    assert loud > quiet
    assert result.devices == ("cpu",)


def test_few_runs_promise_less() -> None:
    misses = [StepMiss(run, 0.1, {"host": 1.0}, {"host": 0.1}) for run in ("a", "a", "b", "c", "d")]
    result = fit_step_intervals(misses, 0.9, ["cpu"])
    assert result.level == pytest.approx(4 / 5)
    assert result.bounds_us(1.0, {"host": 1.0})[1] == pytest.approx(math.exp(0.1))


def test_a_group_with_few_runs_is_held_to_all() -> None:
    misses = [StepMiss("a", 0.1, {"host": 1.0}, {"host": 0.0, "compute": 2.0})]
    result = fit_step_intervals(misses, 0.9, ["cpu"])
    assert result.other_error == pytest.approx(math.sqrt(2.0))
    assert result.group_error["host"] == pytest.approx(math.sqrt(PRIOR_RUNS * 2.0 / (1 + PRIOR_RUNS)))


def test_names_of_groups() -> None:
    result = group_names(
        np.array(["gemm", "gemm", None], dtype=object), np.array(["float32", None, None], dtype=object)
    )
    assert result.tolist() == ["gemm | float32", "gemm", ""]


@pytest.mark.parametrize(
    ("changed", "sentences"),
    [
        ({"level": 2.0}, "level: bad value"),
        ({"log_bounds": {"gemm": [0.1, 0.0]}}, "log_bounds"),
        ({"more": 1}, "more"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, changed: dict[str, object], sentences: str) -> None:
    whole = {"provenance": "by hand", "level": 0.9, "generations": ["ada"], "log_bounds": {"gemm": [-0.25, 0.5]}}
    path = tmp_path / "unseen.yaml"
    path.write_text(yaml.safe_dump({**whole, **changed}))
    with pytest.raises(InputError, match=sentences):
        read_constants(path, DeviceIntervals)


def test_what_ships_holds_the_prediction_itself() -> None:
    shipped = shipped_intervals()
    assert shipped.level == 0.9
    assert len(shipped.generations) >= 4
    for low, high in shipped.log_bounds.values():
        assert low < 0 < high
