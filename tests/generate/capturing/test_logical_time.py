"""Two ranks by hand: a tick per begin and end, a wait lasts until the other rank has come."""

from __future__ import annotations

from typing import Any

import pytest

from gnnperf.core.errors import InputError
from gnnperf.generate.capturing.api import TRANSFER_TICKS, in_logical_time
from gnnperf.generate.capturing.communication import ISSUE, WAIT, Issued
from gnnperf.generate.capturing.rank_run import RankRun

BOTH = (0, 1)


def rank_run(rank: int, *names: str, peer: int | None = None, op: str = "c10d::allreduce_") -> RankRun:
    """One event after the other; collective 0 among them."""
    events = tuple[dict[str, Any], ...](
        {"ph": "X", "name": name, "ts": 10 * i, "dur": 1, "tid": 1} for i, name in enumerate(names)
    )
    return RankRun(rank, (BOTH,), events, (), [Issued(0, op, BOTH, peer, 0, ((4,),), ("float",))])


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
