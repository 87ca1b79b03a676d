"""Memory over the time of a step, by hand."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.generate import HeldFor, Hold, Pair, RankTensors
from gnnperf.generate.uses import Stretch, Use, use
from gnnperf.memory import Part, planned, planned_timeline
from gnnperf.memory.planned import MEBIBYTE, cpu_block_bytes, cuda_block_bytes, most_reserved_bytes, planned_peak
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
    levels, nothing = np.arange(10_000) % 7, np.zeros(10_000, dtype=np.int64)
    result = planned.timeline(np.arange(10_000.0), {Part.ACTIVATIONS: levels, Part.INPUTS: nothing})
    assert len(result.time_us) == planned.MOST_POINTS
    assert set(result.parts_bytes) == {Part.ACTIVATIONS}
    assert set(result.total_bytes) == {6}
    assert list(result.time_us) == sorted(result.time_us)


def test_recorded_tensors_come_and_go_at_their_times() -> None:
    stays = [Stay(100, 0, 9_000, Part.PARAMETERS, ""), Stay(40, 2_000, 5_000, Part.ACTIVATIONS, "a"),
             Stay(50, 5_000, 8_000, Part.GRADIENTS, "b")]  # fmt: skip
    result = timeline_of(stays, 1_000, 9_000)
    assert result.time_us == (0.0, 1.0, 4.0, 4.001, 7.0, 7.001, 8.0)
    assert result.total_bytes == (100, 140, 190, 150, 150, 100, 100)


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


# The most that the caching allocator reserves, by hand.


def _tensors(*stretches: Stretch | Hold, parameters: tuple[int, ...] = ()) -> RankTensors:
    return RankTensors(0, parameters, (), (), tuple(stretches))


def test_tensors_of_other_sizes_that_follow_each_other_may_keep_segments_each() -> None:
    """30 MiB, then 40 MiB: allocated are 40, reserved at worst both."""
    pair = Pair((use("one", "", a=30 * MEBIBYTE), use("two", "a"), use("three", "", b=40 * MEBIBYTE)), ())
    tensors = _tensors(Stretch(pair, False))
    assert planned_peak(tensors).peak_bytes == 40 * MEBIBYTE
    assert most_reserved_bytes(tensors) == 70 * MEBIBYTE


def test_tensors_of_one_size_share_their_segment() -> None:
    pair = Pair((use("one", "", a=30 * MEBIBYTE), use("two", "a"), use("three", "", b=30 * MEBIBYTE)), ())
    assert most_reserved_bytes(_tensors(Stretch(pair, False), Stretch(pair, False))) == 30 * MEBIBYTE


def test_segments_of_large_middle_and_small_tensors_have_their_units() -> None:
    """11.5 MiB take 12; 3 MiB a segment of 20; 512 bytes one of 2."""
    tensors = _tensors(parameters=(23 * MEBIBYTE // 2, 3 * MEBIBYTE, 100))
    assert most_reserved_bytes(tensors) == (12 + 20 + 2) * MEBIBYTE


def test_what_comes_and_goes_between_stretches_counts() -> None:
    hold = [Hold("all_gather", HeldFor.GATHERED, n * 16 * MEBIBYTE) for n in (1, -1, 1, -1)]
    assert most_reserved_bytes(_tensors(*hold)) == 16 * MEBIBYTE


def test_what_neighbors_pass_on_is_counted_once() -> None:
    first = Pair((use("recv", y=16 * MEBIBYTE),), (use("send", "dy"),), {"dy": 16 * MEBIBYTE})
    last = Pair((use("send", "x"),), (use("recv", dx=16 * MEBIBYTE),), {"x": 16 * MEBIBYTE})
    step = [Stretch(first, False), Stretch(last, False), Stretch(last, True), Stretch(first, True)]
    assert most_reserved_bytes(_tensors(*step)) == 16 * MEBIBYTE


# Allocators: numbers by hand from c10/core/alignment.h and c10/cuda/CUDACachingAllocator.cpp.


@given(st.integers(0, 2**40))
def test_a_block_is_the_smallest_multiple_that_holds_what_was_requested(requested: int) -> None:
    for block, unit in ((cpu_block_bytes(requested), 64), (cuda_block_bytes(requested), 512)):
        assert block % unit == 0 and requested <= block < requested + unit
