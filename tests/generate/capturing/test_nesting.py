"""Which events are the program's own, and what they are called where tensors hold data."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gnnperf.generate.capturing.communication import SHARED
from gnnperf.generate.capturing.rank_run import boundaries, program_events


def event(name: str, begin: float, end: float) -> dict[str, Any]:
    return {"ph": "X", "name": name, "ts": begin, "dur": end - begin, "tid": 1}


def names(*events: dict[str, Any]) -> list[str]:
    return [e["name"] for e in program_events(events)]


def test_an_op_dispatched_again_is_left_out_with_all_in_it() -> None:
    result = names(event("aten::linear", 0, 9), event("aten::addmm", 1, 8), event("aten::addmm", 2, 7),
                  event("aten::empty", 3, 4), event("aten::view", 10, 11))  # fmt: skip
    assert result == ["aten::linear", "aten::addmm", "aten::view"]


def test_saved_tensors_are_not_unpacked() -> None:
    result = names(event("TanhBackward0", 0, 9), event("aten::detach", 1, 2), event("aten::tanh_backward", 3, 4))
    assert result == ["TanhBackward0", "aten::tanh_backward"]
    assert names(event("_OwnBackward", 0, 9), event("aten::detach", 1, 2)) == ["_OwnBackward", "aten::detach"]


def test_gradients_are_summed_in_place_unless_held_by_others() -> None:
    engine = event("autograd::engine::evaluate_function: AddBackward0", 0, 9)
    assert names(engine, event("aten::add", 1, 3))[-1] == "aten::add_"
    assert names(engine, event("aten::add", 1, 3), event(SHARED, 2, 2.5))[1:] == ["aten::add"]
    assert names(event("aten::add", 1, 3)) == ["aten::add"]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=20))
def test_begins_and_ends_are_well_nested(spans: list[tuple[int, int]]) -> None:
    events = [event(f"e{i}", begin, begin + length) for i, (begin, length) in enumerate(spans)]
    events.sort(key=lambda e: (e["ts"], -e["dur"]))
    open_events: list[int] = []
    for of, begins in boundaries(events):
        if begins:
            open_events.append(id(of))
        else:
            assert open_events.pop() == id(of)
    assert not open_events
