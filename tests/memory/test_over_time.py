"""Memory over the time of a step, by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.generate import HeldFor, Hold, Pair, RankTensors
from gnnperf.generate.uses import Stretch, Use, use
from gnnperf.memory import Part, planned_timeline
from gnnperf.memory.planned import MOST_POINTS, cpu_block_bytes, planned_peak, timeline
from gnnperf.memory.recorded import Stay, peak_of, timeline_of

# Forward: a 3 stays, b 5 goes; y 10 leaves. Backward: dy 10 comes, makes a gradient of 7.
PAIR = Pair(
    (use("aten::one", "x", a=3, b=5), use("aten::two", "a b", y=10)),
    (Use("aten::three", ("dy", "x", "a"), (("dx", 10),), (7,)),),
    {"x": 10, "dy": 10},
)
ENDS = Pair((use("recv", y=10),), (use("send", "dy"),), {"dy": 10})
LAST = Pair((use("send", "x"),), (use("recv", dx=10),), {"x": 10})
STEP = (
    Stretch(ENDS, False), Hold("all_gather", HeldFor.GATHERED, 4), Stretch(PAIR, False), Stretch(LAST, False),
    Stretch(LAST, True), Stretch(PAIR, True), Hold("reshard", HeldFor.GATHERED, -4), Stretch(ENDS, True),
)  # fmt: skip
TENSORS = RankTensors(0, (100,), (), (200,), STEP)


def test_levels_stand_at_the_time_of_their_kernels() -> None:
    result = planned_timeline(TENSORS, ["aten::other", "aten::one", "aten::two", "aten::three"], [0.0, 5.0, 7.0, 20.0])
    at = dict(zip(result.time_us, zip(*result.parts_bytes.values(), strict=True), strict=False))
    assert list(result.parts_bytes) == [
        Part.PARAMETERS, Part.OPTIMIZER_STATE, Part.GRADIENTS, Part.ACTIVATIONS, Part.GATHERED,
    ]  # fmt: skip
    assert result.time_us == (0.0, 0.0, 5.0, 7.0, 7.0, 7.0, 20.0, 20.0, 20.0)
    assert result.parts_bytes[Part.ACTIVATIONS] == (10, 10, 18, 28, 23, 23, 33, 10, 10)
    assert result.parts_bytes[Part.GATHERED] == (0, 4, 4, 4, 4, 4, 4, 0, 0)
    assert at[0.0][:2] == (100, 200)


def test_the_highest_point_is_the_peak_without_rounding() -> None:
    result = planned_timeline(TENSORS, [], [])
    peak = planned_peak(TENSORS)
    assert max(result.total_bytes) == peak.peak_bytes - peak.parts_bytes[Part.ROUNDING]
    assert set(result.time_us) == {0.0}  # no kernel has a time


def test_of_many_points_the_highest_of_each_stretch_stay() -> None:
    levels = np.arange(10_000) % 7
    result = timeline(np.arange(10_000.0), {Part.ACTIVATIONS: levels, Part.INPUTS: np.zeros(10_000, dtype=np.int64)})
    assert len(result.time_us) == MOST_POINTS
    assert set(result.parts_bytes) == {Part.ACTIVATIONS}
    assert set(result.total_bytes) == {6}
    assert list(result.time_us) == sorted(result.time_us)


def test_recorded_tensors_come_and_go_at_their_times() -> None:
    stays = [Stay(100, 0, 9_000, Part.PARAMETERS, ""), Stay(40, 2_000, 5_000, Part.ACTIVATIONS, "a"),
             Stay(50, 5_000, 8_000, Part.GRADIENTS, "b")]  # fmt: skip
    result = timeline_of(stays, 1_000, 9_000)
    assert result.time_us == (0.0, 1.0, 4.0, 7.0, 8.0)
    assert result.total_bytes == (100, 140, 190, 150, 100)


def test_the_peak_is_where_most_is_there_at_one_time() -> None:
    # 100 all the time; 40 in [1, 5]; 50 in [4, 8]; 70 in [6, 7]: 100, 140, 190, 220 at 6
    stays = [
        Stay(100, 0, 9, Part.PARAMETERS, ""),
        Stay(40, 1, 5, Part.ACTIVATIONS, "a"),
        Stay(50, 4, 8, Part.GRADIENTS, "b"),
        Stay(70, 6, 7, Part.TEMPORARY, "c"),
    ]
    parts, at = peak_of(stays, cpu_block_bytes)
    assert at == "c"
    rounding = (128 - 100) + (64 - 50) + (128 - 70)
    assert parts == {Part.PARAMETERS: 100, Part.GRADIENTS: 50, Part.TEMPORARY: 70, Part.ROUNDING: rounding}


def test_what_an_op_takes_and_what_it_returns_are_there_together() -> None:
    parts, _ = peak_of([Stay(64, 0, 3, Part.ACTIVATIONS, "a"), Stay(64, 3, 5, Part.ACTIVATIONS, "b")], cpu_block_bytes)
    assert parts[Part.ACTIVATIONS] == 128


stay = st.builds(
    lambda size, begin, length: Stay(size, begin, begin + length, Part.ACTIVATIONS, ""),
    st.integers(1, 1_000), st.integers(0, 50), st.integers(0, 50),
)  # fmt: skip


@given(st.lists(stay, min_size=1), stay)
def test_one_tensor_more_is_never_a_lower_peak_and_never_more_than_its_size_higher(
    stays: list[Stay], one: Stay
) -> None:
    before = peak_of(stays, lambda n: n)[0][Part.ACTIVATIONS]
    assert max(timeline_of(stays, 0, 100).total_bytes) == before
    after = peak_of([*stays, one], lambda n: n)[0][Part.ACTIVATIONS]
    assert before <= after <= before + one.num_bytes
