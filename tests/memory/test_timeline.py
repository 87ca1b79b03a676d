from hypothesis import given
from hypothesis import strategies as st

from gnnperf.memory.measured import Part
from gnnperf.memory.planned import cpu_block_bytes
from gnnperf.memory.recorded import Stay, peak_of, timeline_of


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
