"""Pauses and repeated calls as a user says them."""

from __future__ import annotations

import numpy as np
import pytest

from gnnperf.core.errors import InputError
from gnnperf.whatif import OpSelector, Place
from gnnperf.whatif.declared import DeclarePause
from gnnperf.whatif.edit import on_recording
from gnnperf.whatif.repeat import RepeatCalls
from research.evaluation.pauses import Pause
from research.evaluation.repeats import RepeatOp
from research.evaluation.step_times import step_times_us
from tests.whatif.loops import MM_DIMS, loop


@pytest.mark.parametrize("place", list(Place))
def test_on_a_recording_it_is_the_recorded_pause(place: Place) -> None:
    declared, recorded = DeclarePause(7.0, 1, str(place))(loop()), Pause(1, place, 7.0)(loop())
    assert step_times_us(on_recording(declared)) == pytest.approx(step_times_us(recorded.graph))
    np.testing.assert_array_equal(declared.touched, recorded.touched)


def test_refusals() -> None:
    with pytest.raises(InputError, match="0 or more"):
        DeclarePause(-1.0, 0)
    with pytest.raises(InputError, match="start, backward, optimizer"):
        DeclarePause(1.0, 0, "end")
    with pytest.raises(InputError, match="no call of aten::conv2d"):
        RepeatCalls("aten::conv2d", 2)(loop())
    with pytest.raises(InputError, match="1 or more"):
        RepeatCalls("aten::mm", 0)


def test_repeated_as_by_its_selector() -> None:
    """63 + 2 x (5 + 14) on both ranks; the shapes may be written with spaces."""
    result = RepeatCalls("aten::mm", 3, input_dims="[[4, 4], [4, 4]]")(loop())
    assert step_times_us(result.graph) == pytest.approx([101.0, 101.0])
    same = RepeatOp(OpSelector("aten::mm", MM_DIMS), 3)(loop())
    assert result.touched.tolist() == same.touched.tolist()
    one = RepeatCalls("aten::mm", 3, rank=0, calls=(0,))(loop())
    assert step_times_us(one.graph) == pytest.approx([89.0, 89.0])
