"""A sleep delays a step by what slack does not absorb."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from gnnperf.whatif import Place
from research.evaluation.interventions import step_times_us
from research.evaluation.pairs import Pause
from tests.whatif.loops import loop


@pytest.mark.parametrize(
    ("rank", "place", "sleep_us", "expected"),
    [
        (0, Place.START, 4.0, 63.0),  # rank 0 then arrives when rank 1 does
        (0, Place.START, 9.0, 68.0),
        (1, Place.START, 4.0, 67.0),
        (0, Place.BACKWARD, 5.0, 63.0),  # backward ends 7 before the transfer
        (0, Place.BACKWARD, 10.0, 66.0),
        (1, Place.OPTIMIZER, 4.0, 67.0),
    ],
)
def test_by_hand(rank: int, place: Place, sleep_us: float, expected: float) -> None:
    result = Pause(rank, place, sleep_us)(loop())
    assert step_times_us(result.graph) == pytest.approx([expected, expected])
    assert result.touched.sum() == 2
    assert not result.unknown


@given(
    rank=st.sampled_from([0, 1]),
    place=st.sampled_from(list(Place)),
    sleep_us=st.floats(0, 200),
    steps=st.integers(1, 3),
)
def test_a_sleep_delays_by_between_nothing_and_its_length(rank: int, place: Place, sleep_us: float, steps: int) -> None:
    graph = loop(steps)
    delay = step_times_us(Pause(rank, place, sleep_us)(graph).graph).sum() - step_times_us(graph).sum()
    assert -1e-6 <= delay <= steps * sleep_us + 1e-6


def test_the_inverse_takes_the_sleep_out() -> None:
    graph = loop()
    back = Pause(1, Place.OPTIMIZER, -40.0)(Pause(1, Place.OPTIMIZER, 40.0)(graph).graph)
    assert_frame_equal(back.graph.nodes, graph.nodes)
    assert not back.unknown


def test_a_gap_shorter_than_the_sleep_taken_out_is_stated() -> None:
    result = Pause(0, Place.BACKWARD, -5.0)(loop())
    assert result.graph.nodes["latency_us"].min() == 0.0
    assert "2 of 2 gaps are shorter than the sleep of 5 us" in result.unknown[0]


# Step times of a window: the recording as it is.


def test_a_step_takes_63_us_as_drawn() -> None:
    """Rank 1 arrives at 24, the transfer ends at 54, then 3 + 5 + 1."""
    assert step_times_us(loop()) == pytest.approx([63.0, 63.0])


def test_a_rank_begins_when_it_did() -> None:
    graph = loop()
    late = replace(graph.steps[0], rank_start_us=(100.0, 120.0))
    assert step_times_us(replace(graph, steps=(late, *graph.steps[1:]))) == pytest.approx([83.0, 63.0])


def test_work_outside_of_steps_does_not_count() -> None:
    graph = loop(3)
    step = graph.nodes["step"].where(graph.nodes["step"] != 2, -1).astype("int32")
    result = step_times_us(replace(graph, nodes=graph.nodes.assign(step=step), steps=graph.steps[:2]))
    assert result == pytest.approx([63.0, 63.0])


def test_unknown_latencies_take_the_median_of_their_kind() -> None:
    """Gaps 2.5, compute 12.5: arrival at 20, transfer until 50, then 9."""
    graph = loop(1)
    latency = np.where(graph.nodes["op_name"] == "aten::mm", np.nan, graph.nodes["latency_us"])
    assert step_times_us(replace(graph, nodes=graph.nodes.assign(latency_us=latency))) == pytest.approx([59.0])
