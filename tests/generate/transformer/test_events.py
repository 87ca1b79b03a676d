"""Waits between streams, by hand."""

from __future__ import annotations

from collections.abc import Sequence

from gnnperf.core.schema import Phase
from gnnperf.generate.transformer.items import (
    Await,
    Copy,
    Group,
    HostAwait,
    HostWait,
    Item,
    Lane,
    Placed,
    Record,
    Transfer,
    op,
)
from gnnperf.generate.transformer.rank_nodes import rank_nodes
from tests.generate.transformer.plans import small

F = Phase.FORWARD
KERNEL = op("aten::add", F, None)  # five nodes, the last is the kernel
ASIDE = op("aten::add", F, None, lane=Lane.GATHER_INPUT)
COPY = Copy("Memcpy DtoH (Device -> Pinned)", 8.0, "float16", F, Lane.OUT)  # five nodes
FREE = Transfer("all_gather", Group.DATA, 8.0, "float16", F, awaited=False, follows_compute=False)  # six
HELD = Transfer("all_reduce", Group.TENSOR, 8.0, "float16", F, awaited=True)


def waits(items: Sequence[Item]) -> set[tuple[int, int, str]]:
    edges = rank_nodes([Placed(item) for item in items], small(2, 1, 2).parallelism).edges.table()
    result = edges[edges["relation"] == "waits"]
    return set(zip(result["src"], result["dst"], result["lag_class"].astype(str), strict=True))


def test_a_copy_waits_for_the_kernel_that_was_recorded_and_not_for_the_next() -> None:
    assert waits([KERNEL, Record(Lane.COMPUTE, "e"), KERNEL, Await(Lane.OUT, "e"), COPY]) == {(4, 14, "event")}


def test_without_events_nothing_waits_for_other_streams() -> None:
    assert waits([KERNEL, COPY, FREE, ASIDE, KERNEL]) == set()


def test_a_kernel_waits_for_the_exit_of_a_gather() -> None:
    assert waits([FREE, Record(Lane.GATHER, "e"), Await(Lane.COMPUTE, "e"), KERNEL]) == {(5, 10, "event")}


def test_what_follows_the_compute_stream_waits_as_it_does() -> None:
    """A transfer between the wait and the next kernel, and the host, wait for the gather's exit, node 5."""
    items: list[Item] = [FREE, Record(Lane.GATHER, "e"), Await(Lane.COMPUTE, "e"), HELD, HostWait(F), KERNEL]
    assert waits(items) == {(5, 10, "event"), (5, 12, "sync"), (11, 12, "sync"), (5, 17, "event"), (11, 17, "event")}


def test_an_event_without_work_stands_for_what_its_lane_waits_for() -> None:
    """The compute stream waits for a gather; what waits for that stream, before it has any work, waits too."""
    items: list[Item] = [FREE, Record(Lane.GATHER, "a"), Await(Lane.COMPUTE, "a"), Record(Lane.COMPUTE, "b"),
                         Await(Lane.OUT, "b"),
             COPY]  # fmt: skip
    assert waits(items) == {(5, 10, "event")}


def test_an_event_of_the_compute_stream_is_after_transfers_that_it_waits_for() -> None:
    items: list[Item] = [KERNEL, HELD, Record(Lane.COMPUTE, "e"), Await(Lane.OUT, "e"), COPY]
    assert {(4, 9, "event"), (4, 15, "event"), (10, 15, "event")} == waits(items)


def test_an_event_that_was_never_recorded_is_no_wait() -> None:
    assert waits([KERNEL, Await(Lane.OUT, "never"), COPY]) == set()


def test_a_later_record_takes_the_name_over() -> None:
    record: list[Item] = [KERNEL, Record(Lane.COMPUTE, "e")]
    items = [*record, *record, Await(Lane.OUT, "e"), COPY]
    assert waits(items) == {(9, 14, "event")}


def test_the_host_waits_for_an_event() -> None:
    assert waits([COPY, Record(Lane.OUT, "e"), HostAwait("e", F)]) == {(4, 5, "sync")}


def test_kernels_of_another_stream_follow_each_other_there() -> None:
    edges = rank_nodes([Placed(ASIDE), Placed(KERNEL), Placed(ASIDE)], small().parallelism).edges.table()
    follows = edges[edges["relation"] == "follows"]
    assert (4, 14) in set(zip(follows["src"], follows["dst"], strict=True))
    assert not {(4, 9), (9, 14)} & set(zip(follows["src"], follows["dst"], strict=True))
