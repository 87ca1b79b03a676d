"""Waits between streams, by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

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


RECORD: list[Item] = [KERNEL, Record(Lane.COMPUTE, "e")]
GATHERED: list[Item] = [FREE, Record(Lane.GATHER, "e"), Await(Lane.COMPUTE, "e")]
WAITS: dict[str, tuple[list[Item], set[tuple[int, int, str]]]] = {
    "a copy for the kernel that was recorded, not for the next": (
        [*RECORD, KERNEL, Await(Lane.OUT, "e"), COPY], {(4, 14, "event")}),
    "nothing without events": ([KERNEL, COPY, FREE, ASIDE, KERNEL], set()),
    "a kernel for the exit of a gather": ([*GATHERED, KERNEL], {(5, 10, "event")}),
    # A transfer between the wait and the next kernel, and the host, wait for the gather's exit, node 5.
    "what follows the compute stream, as it does": ([*GATHERED, HELD, HostWait(F), KERNEL], {
        (5, 10, "event"), (5, 12, "sync"), (11, 12, "sync"), (5, 17, "event"), (11, 17, "event")}),
    # The compute stream waits for a gather; what waits for that stream, before it has any work, waits too.
    "an event without work stands for what its lane waits for": (
        [*GATHERED, Record(Lane.COMPUTE, "b"), Await(Lane.OUT, "b"), COPY], {(5, 10, "event")}),
    "an event of the compute stream is after transfers that it waits for": (
        [KERNEL, HELD, Record(Lane.COMPUTE, "e"), Await(Lane.OUT, "e"), COPY],
        {(4, 9, "event"), (4, 15, "event"), (10, 15, "event")}),
    "no wait for an event that was never recorded": ([KERNEL, Await(Lane.OUT, "never"), COPY], set()),
    "a later record takes the name over": ([*RECORD, *RECORD, Await(Lane.OUT, "e"), COPY], {(9, 14, "event")}),
    "the host for an event": ([COPY, Record(Lane.OUT, "e"), HostAwait("e", F)], {(4, 5, "sync")}),
}  # fmt: skip


@pytest.mark.parametrize("name", WAITS)
def test_waits_by_hand(name: str) -> None:
    items, expected = WAITS[name]
    assert waits(items) == expected


def test_kernels_of_another_stream_follow_each_other_there() -> None:
    edges = rank_nodes([Placed(ASIDE), Placed(KERNEL), Placed(ASIDE)], small().parallelism).edges.table()
    follows = edges[edges["relation"] == "follows"]
    assert (4, 14) in set(zip(follows["src"], follows["dst"], strict=True))
    assert not {(4, 9), (9, 14)} & set(zip(follows["src"], follows["dst"], strict=True))
