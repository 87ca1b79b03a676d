"""Predicted against measured changes, by hand."""

import json
import math
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from pandas.testing import assert_frame_equal

from gnnperf.gnn.data.recordings import Recording, Repeats
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.whatif import Block, apply
from research.evaluation.interventions import Trial, evaluate_pairs, relative_noise, step_times_us, summarize_trials
from research.evaluation.op_copies import OpSelector
from research.evaluation.pairs import Change, Pair, Way, edits, read_pairs
from research.evaluation.repeats import RepeatOp
from tests.gnn.data.data_sets import recording
from tests.whatif.loops import loop

SLEEP = Pair(Change.SLEEP, "a", "b", {"rank": 1, "place": "start", "sleep_us": 10.0})
LINK = Pair(Change.LINK, "a", "b", {})


def recordings(a: list[float], b: list[float]) -> dict[str, Repeats]:
    return {
        run: {k: recording(run, k, us) for k, us in enumerate(times, start=1)} for run, times in (("a", a), ("b", b))
    }


def loops(result: Recording) -> ExecutionGraph:
    """Run a: 63 us a step. Run b: transfers of 50 us in repeat 1, 60 in repeat 2."""
    return loop() if result.run == "a" else loop(transfer_us=40.0 + 10.0 * result.repeat, mm_us=(99.0, 99.0))


def test_a_sleep_predicts_from_one_repeat_and_measures_in_the_other() -> None:
    trials, left_out = evaluate_pairs([SLEEP], recordings([60.0, 62.0], [69.0, 74.0]), load=lambda _: loop())
    assert not left_out
    assert [(t.source, t.repeat, t.predicted_us, t.measured_us) for t in trials] == [
        ("a", 1, pytest.approx(10.0), 12.0), ("a", 2, pytest.approx(10.0), 9.0),
        ("b", 1, pytest.approx(-4.0), -12.0), ("b", 2, pytest.approx(-4.0), -9.0),
    ]  # fmt: skip
    assert trials[0].error == pytest.approx(2 / 12)
    assert (trials[0].remeasured_us, trials[0].remeasured_error) == (9.0, pytest.approx(3 / 12))
    assert trials[0].sign_right


def test_touched_nodes_come_from_the_same_repeat_of_b_and_nothing_else_does() -> None:
    trials, _ = evaluate_pairs([LINK], recordings([60.0, 60.0], [90.0, 90.0]), load=loops)
    assert [t.predicted_us for t in trials if t.source == "a"] == pytest.approx([20.0, 30.0])
    assert [t.predicted_us for t in trials if t.source == "b"] == pytest.approx([-20.0, -30.0])
    assert [t.summed_us for t in trials] == pytest.approx([20.0, 30.0, -20.0, -30.0])


def test_three_repeats_measure_by_the_median_of_the_other_two() -> None:
    trials, _ = evaluate_pairs([SLEEP], recordings([60.0, 60.0, 60.0], [70.0, 72.0, 78.0]), load=lambda _: loop())
    assert [t.measured_us for t in trials[:3]] == [15.0, 14.0, 11.0]


def test_noise_is_the_larger_of_the_pairs_own_and_what_all_runs_show() -> None:
    """Own: |20 - 8|. Pooled: the median of log(61/60) and log(81/68) times hypot(60.5, 74.5)."""
    quiet, _ = evaluate_pairs([SLEEP], recordings([60.0, 60.0], [70.0, 70.0]), load=lambda _: loop())
    assert quiet[0].noise_us == 0.0
    assert quiet[0].above_noise
    loud, _ = evaluate_pairs([SLEEP], recordings([60.0, 61.0], [68.0, 81.0]), load=lambda _: loop())
    assert loud[0].noise_us == pytest.approx(12.0)
    assert relative_noise(recordings([60.0, 61.0], [68.0, 81.0])) == pytest.approx(
        0.5 * (math.log(61 / 60) + math.log(81 / 68))
    )


def test_pairs_without_two_repeats_and_impossible_edits_are_left_out_and_named() -> None:
    impossible = Pair(Change.SLEEP, "a", "b", {"rank": 5, "place": "start", "sleep_us": 10.0})
    lonely = recordings([60.0], [70.0, 71.0])
    trials, left_out = evaluate_pairs([SLEEP], lonely, load=lambda _: loop())
    assert not trials
    assert left_out[0].reason.startswith("1 repeats of both runs")
    trials, left_out = evaluate_pairs([impossible], recordings([60.0, 60.0], [70.0, 70.0]), load=lambda _: loop())
    assert not trials
    assert ["rank 5 is not in the graph" in out.reason for out in left_out] == [True, True]


@cache
def way(*, forward: bool) -> Way:
    once, repeated = loop(), RepeatOp(OpSelector("aten::mm"), 3)(loop()).graph
    return Way(once, repeated, forward) if forward else Way(repeated, once, forward)


@pytest.mark.parametrize("kind", [Change.REPEAT, Change.SLOW_RANK])
def test_a_repeated_op_both_ways(kind: Change) -> None:
    pair = Pair(kind, "a", "b", {"op": "aten::mm", "times": 3, "rank": None})
    for forward, expected in ((True, 101.0), (False, 63.0)):
        edited = apply(way(forward=forward).graph, edits(pair, way(forward=forward)))
        assert step_times_us(edited.graph) == pytest.approx([expected, expected])


def test_a_slower_rank_may_also_have_other_shapes() -> None:
    there = loop(mm_us=(50.0, 14.0), dims="[[8,8],[4,4]]")
    (edit,) = edits(Pair(Change.SLOW_RANK, "a", "b", {"parameter": "batch"}), Way(loop(), there, True))
    assert step_times_us(edit(loop()).graph) == pytest.approx([99.0, 99.0])


def test_blocking_both_ways() -> None:
    plain, blocked = loop(), Block()(loop(transfer_us=40.0)).graph
    pair = Pair(Change.BLOCKING, "a", "b", {"blocking": True})
    for source, target, expected in ((plain, blocked, 95.0), (blocked, plain, 63.0)):
        edited = apply(source, edits(pair, Way(source, target, source is plain)))
        assert step_times_us(edited.graph) == pytest.approx([expected, expected])


def test_pairs_are_read(tmp_path: Path) -> None:
    listed = [{"kind": "link", "a": "x", "b": "y", "edit": {"rate": 1}}, {"kind": "size", "a": "x", "b": "z"}]
    (tmp_path / "interventions.json").write_text(json.dumps({"pairs": listed}))
    assert read_pairs(tmp_path) == (Pair(Change.LINK, "x", "y", {"rate": 1}), Pair(Change.SIZE, "x", "z", {}))


def trial(pair: int, kind: str, predicted_us: float, measured_us: float, noise_us: float = 1.0) -> Trial:
    return Trial(pair, kind, "a", "b", 1, predicted_us, measured_us, noise_us, 0.5 * measured_us, 1.2 * measured_us, ())


def test_summary_by_hand() -> None:
    trials = [
        trial(0, "sleep", 11.0, 10.0), trial(0, "sleep", -12.0, -10.0), trial(1, "sleep", 10.0, 10.0),
        trial(2, "link", -6.0, 5.0), trial(3, "link", 5.0, 5.0), trial(4, "link", 9.0, 3.0, noise_us=4.0),
    ]  # fmt: skip
    sleep, link, both, rest = (
        SimpleNamespace(**{str(k): v for k, v in row.items()}) for row in summarize_trials(trials).to_dict("records")
    )
    assert (sleep.kind, sleep.pairs, sleep.trials) == ("sleep", 2, 3)
    assert sleep.error_median == pytest.approx(0.1)
    assert sleep.sign_right == 1.0
    assert (link.above_noise, link.sign_right) == (2, 0.5)
    assert link.error_median == pytest.approx(2.0)
    assert link.error_median_above_noise == pytest.approx(0.5 * 2.2)
    assert (both.kind, both.trials, rest.kind, rest.trials) == ("all", 6, "all without sleep", 3)
    assert (both.perfect_error_above_noise, both.summed_error_median) == (pytest.approx(0.2 / 2**0.5), 0.5)
    assert both.remeasured_error_median == pytest.approx(0.2)
    assert sleep.error_low <= sleep.error_median <= sleep.error_high


def test_no_edit_touches_the_recordings() -> None:
    graphs = {"a": loop(), "b": loop(transfer_us=50.0)}
    before = {run: graph.nodes.copy() for run, graph in graphs.items()}
    evaluate_pairs([SLEEP, LINK], recordings([60.0, 60.0], [70.0, 70.0]), load=lambda r: graphs[r.run])
    for run, graph in graphs.items():
        assert_frame_equal(graph.nodes, before[run])
