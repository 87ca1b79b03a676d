"""Rise and fall of stretches, and the peak of plans made of them, by hand."""

from hypothesis import given
from hypothesis import strategies as st

from gnnperf.generate.uses import Pair, RankTensors, Stretch, Use, use
from gnnperf.memory.measured_memory import Part
from gnnperf.memory.planned import ASKED, KEPT, courses, in_blocks, planned_peak


def exactly(num_bytes: int) -> int:
    return num_bytes


# Forward: x 10 enters; a 3 lives to the backward, b 5 does not; y 10 leaves. Backward: dy 10 enters, dx 10 leaves.
PAIR = Pair(
    (use("one", "x", a=3, b=5), use("two", "a b", y=10)),
    (use("three", "dy x", c=2), use("four", "c a", dx=10)),
    {"x": 10, "dy": 10},
)


def test_a_pair_by_hand() -> None:
    forward, backward, _ = courses(PAIR, in_blocks(exactly))
    assert (forward.during[forward.highest, ASKED], forward.ops[forward.highest]) == (3 + 5 + 10, "two")
    assert forward.net[ASKED] == 3 + 10  # b is gone, x stays for the backward
    # Then dy and x go, and dx comes: 2 - 20 + 10.
    assert (backward.during[backward.highest, ASKED], backward.ops[backward.highest]) == (2, "three")
    assert backward.net[ASKED] == 10 - 10 - 10 - 3  # dx; dy, x and a


def test_what_is_made_again_is_another_tensor() -> None:
    """Recomputed, a goes at once in the forward and is there again in the backward."""
    again = Pair((use("one", "x", a=3), use("two", "a", y=1)), (use("one", "x", a=3), use("back", "a dy", dx=1)),
                 {"x": 1, "dy": 1})  # fmt: skip
    forward, backward, _ = courses(again, in_blocks(exactly))
    assert (forward.during[forward.highest, ASKED], forward.net[ASKED]) == (4, 1)
    assert (backward.during[backward.highest, ASKED], backward.net[ASKED]) == (3 - 1 + 1, -1)


def test_gradients_stay_and_blocks_are_rounded() -> None:
    pair = Pair((use("one", "", a=1),), (Use("two", ("a",), (), (7,)),))
    forward, backward, _ = courses(pair, in_blocks(lambda n: -(-n // 8) * 8))
    assert forward.net.tolist() == [1, 0, 8, 0, 0]
    assert backward.net.tolist() == [-1, 7, 0, 0, 0]
    assert backward.during[backward.highest, KEPT] == 7


def _tensors(micro_batches: int, in_flight: int) -> RankTensors:
    """All forwards of `in_flight` micro-batches, then one backward after each further forward."""
    ends = Pair((use("recv", y=10),), (use("send", "dy"),), {"dy": 10})
    last = Pair((use("send", "x"),), (use("recv", dx=10),), {"x": 10})
    through = (ends, PAIR, last)
    forward = [Stretch(pair, False) for pair in through]
    backward = [Stretch(pair, True) for pair in reversed(through)]
    both = [each for _ in range(micro_batches - in_flight) for each in (*forward, *backward)]
    return RankTensors(3, (100,), (50,), (200,), (*forward * in_flight, *both, *backward * in_flight))


def test_micro_batches_in_flight_appear_by_themselves() -> None:
    """Each holds x and a, 13 bytes; the peak is in another one's op `two`: x, a, b, y."""
    result = planned_peak(_tensors(4, in_flight=2))
    assert result.parts_bytes[Part.ACTIVATIONS] == 2 * 13 + 10 + 3 + 5 + 10
    assert result.at == "two"
    assert result.rank == 3


@given(st.integers(1, 6), st.integers(0, 5))
def test_more_in_flight_is_never_less(micro_batches: int, less: int) -> None:
    most, few = planned_peak(_tensors(6, micro_batches)), planned_peak(_tensors(6, max(micro_batches - less, 1)))
    assert most.peak_bytes >= few.peak_bytes


def test_parts_and_rounding_add_up_to_blocks() -> None:
    """100, 50 and 200 bytes take a block of 512 each, as do the four tensors at the peak: x, a, b and y."""
    result = planned_peak(_tensors(1, 1))
    assert result.peak_bytes == (3 + 4) * 512
    assert result.parts_bytes[Part.ROUNDING] == result.peak_bytes - 350 - 28
    assert result.held_between_steps_bytes == 350
