"""Which step is predicted when nothing says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gnnperf.core.errors import InputError
from gnnperf.graph.execution_graph import ExecutionGraph, StepLabel
from gnnperf.predict.assembly import choose_step, other_step
from tests.toys import two_rank_graph


def _graph(*period_us: float | None) -> ExecutionGraph:
    steps = [StepLabel(i, f"ProfilerStep#{i + 5}", p, 100.0 - i, (0.0,), (1.0,)) for i, p in enumerate(period_us)]
    return replace(two_rank_graph(), steps=tuple(steps))


def test_median_period_is_chosen_and_the_first_step_is_not() -> None:
    assert choose_step(_graph(None, 900.0, 100.0, 300.0), None).step == 3


def test_even_number_of_steps_takes_the_lower_median() -> None:
    assert choose_step(_graph(None, 100.0, 300.0), None).step == 1


def test_makespan_decides_without_periods() -> None:
    assert choose_step(_graph(None, None, None), None).step == 1


def test_requested_step_wins() -> None:
    assert choose_step(_graph(None, 1.0), 0).step == 0


def test_unknown_step_names_those_there_are() -> None:
    with pytest.raises(InputError, match=r"step=7 .*Allowed: 0 \(ProfilerStep#5\), 1 \(ProfilerStep#6\)"):
        choose_step(_graph(None, 1.0), 7)


def test_trace_without_a_whole_step_is_refused() -> None:
    with pytest.raises(InputError, match="no whole step"):
        choose_step(_graph(), None)


def test_replay_uses_the_nearest_other_step() -> None:
    graph = _graph(None, 1.0, 2.0)
    assert other_step(graph, graph.steps[0]).step == 1
    assert other_step(graph, graph.steps[1]).step == 2
    assert other_step(graph, graph.steps[2]).step == 1
    assert other_step(_graph(None), graph.steps[0]).step == 0
