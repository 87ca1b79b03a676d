"""A sleep delays a step by what slack does not absorb."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from gnnperf.whatif import Place
from research.evaluation.pauses import Pause
from research.evaluation.step_times import step_times_us
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
