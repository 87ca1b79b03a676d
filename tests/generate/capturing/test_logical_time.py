"""Two ranks by hand: a tick per begin and end, a wait lasts until the other rank has come."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core.errors import InputError
from gnnperf.generate.capturing.api import TRANSFER_TICKS, in_logical_time
from gnnperf.generate.capturing.communication import ISSUE, SHARED, WAIT, Issued
from gnnperf.generate.capturing.rank_run import RankRun, boundaries, program_events

BOTH = (0, 1)


def rank_run(rank: int, *names: str, peer: int | None = None, op: str = "c10d::allreduce_") -> RankRun:
    """One event after the other; collective 0 among them."""
    events = [event(name, 10 * i, 10 * i + 1) for i, name in enumerate(names)]
    return RankRun(rank, (BOTH,), tuple(events), (), [Issued(op, BOTH, peer, 0, ((4,),), ("float",))])


def test_a_wait_lasts_until_the_last_has_come() -> None:
    first, last = in_logical_time([
        rank_run(0, ISSUE + "0", WAIT + "0", "after"),
        rank_run(1, "a", "b", "c", ISSUE + "0", WAIT + "0", "after"),
    ])  # fmt: skip
    # rank 1 begins its 4th event at tick 7; both waits end 4 ticks later, then the wait's end and the begin of "after"
    assert first.done_us == last.done_us == {0: 7 + TRANSFER_TICKS}
    assert [t.begin_us[id(t.events[-1])] for t in (first, last)] == [7 + TRANSFER_TICKS + 2] * 2
    assert [e["name"] for e in last.events] == ["a", "b", "c", "after"]


def test_a_rank_that_comes_late_does_not_wait() -> None:
    _, late = in_logical_time([
        rank_run(0, ISSUE + "0", WAIT + "0"),
        rank_run(1, ISSUE + "0", "a", "b", "c", "d", WAIT + "0"),
    ])  # fmt: skip
    assert late.done_us == {0: 11.0}  # the begin of its 6th event


def test_peers_that_are_not_captured_are_not_waited_for() -> None:
    (isolated,) = in_logical_time([rank_run(0, ISSUE + "0", WAIT + "0")])
    assert isolated.done_us == {0: 1 + TRANSFER_TICKS}


def test_two_that_receive_wait_forever() -> None:
    runs = [rank_run(r, ISSUE + "0", WAIT + "0", peer=1 - r, op="c10d::recv_") for r in BOTH]
    with pytest.raises(InputError, match=r"ranks \[0, 1\] wait for each other"):
        in_logical_time(runs)


def test_a_send_meets_its_receive() -> None:
    sender = rank_run(0, ISSUE + "0", WAIT + "0", peer=1, op="c10d::send")
    receiver = rank_run(1, "a", ISSUE + "0", WAIT + "0", peer=0, op="c10d::recv_")
    assert [t.done_us for t in in_logical_time([sender, receiver])] == [{0: 3 + TRANSFER_TICKS}] * 2


# Which events are the program's own, and what they are called where tensors hold data.


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
