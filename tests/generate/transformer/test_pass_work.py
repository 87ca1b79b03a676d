"""Runs of items on the streams of a rank, by hand; counts of what passes are made of."""

from collections import Counter
from collections.abc import Sequence

import pytest

from gnnperf.core import Phase
from gnnperf.generate import Item, Lane, Run, Transfer, WorkBook, item_table, run_us, side_lane
from gnnperf.generate.transformer.items import Await, Copy, Group, HostAwait, HostWait, Placed, Record, op
from gnnperf.generate.transformer.passes import flagged_passes, steps
from gnnperf.generate.transformer.plan import Parallelism, Pipeline, Reduction, Sharded, Sharding, TransformerPlan
from gnnperf.generate.transformer.program import stage_program
from gnnperf.generate.transformer.rank_nodes import rank_nodes
from tests.generate.transformer.plans import small

KERNEL = op("aten::add", Phase.FORWARD, None)

FREE = Transfer("all_gather", Group.DATA, 8.0, "float16", Phase.FORWARD, awaited=False, follows_compute=False)
SIDE, HELD = (Transfer("all_reduce", Group.TENSOR, 8.0, "float16", Phase.FORWARD, awaited) for awaited in (False, True))


@pytest.mark.parametrize(
    ("items", "us", "expected"),
    [
        # The compute stream waits for awaited transfers only.
        ((KERNEL, HELD, KERNEL), [2.0, 5.0, 3.0], 10.0), ((KERNEL, SIDE, KERNEL), [2.0, 5.0, 3.0], 5.0),
        ((KERNEL, HELD), [2.0, 5.0], 7.0),
        # An event holds it until the transfer has ended: 2 + 5, the second kernel hidden, then 1.
        ((KERNEL, SIDE, Record(Lane.TENSOR, "e"), KERNEL, Await(Lane.COMPUTE, "e"), KERNEL),
         [2.0, 5.0, 0.0, 3.0, 0.0, 1.0], 8.0),
        # What may have begun before counts as done.
        ((FREE, Record(Lane.GATHER, "e"), Await(Lane.COMPUTE, "e"), KERNEL), [9.0, 0.0, 0.0, 1.0], 1.0),
    ],
)  # fmt: skip
def test_the_compute_stream_by_hand(items: tuple[Item, ...], us: list[float], expected: float) -> None:
    assert run_us(Run(items), us) == expected


def test_transfers_that_are_not_awaited_have_a_stream_of_their_own() -> None:
    assert side_lane(FREE) is Lane.GATHER
    assert side_lane(KERNEL) is side_lane(HELD) is None


@pytest.mark.parametrize(
    "plan",
    [
        small(2, 2, 2, batch=4),
        small(1, 2, 2, batch=4, order=Pipeline.ZB_H1),
        small(1, 2, 2, batch=4, order=Pipeline.INTERLEAVED, chunks=2, reduction=Reduction.BUCKETS, bucket_bytes=1.0),
    ],
)
def test_runs_hold_the_items_of_the_program(plan: TransformerPlan) -> None:
    placed = steps(plan.order)
    work = WorkBook().of_plan(plan, plan.order)
    for stage in range(2):
        counted = Counter[Item](work.after[stage].items)
        for place in placed.kind:
            if placed.kinds[place].stage == stage:
                for run, number in work.passes[work.of_kind[place]]:
                    counted.update({item: number * n for item, n in Counter(run.items).items()})
        whole = Counter(each.item for each in stage_program(plan, stage))
        zeroed = whole - counted  # what is before the first pass
        assert not counted - whole
        assert [getattr(item, "name", "") for item in zeroed] == ["aten::zero_"]
        assert len(flagged_passes(plan.order, stage)) == sum(placed.kinds[p].stage == stage for p in placed.kind)


def test_plans_share_equal_runs() -> None:
    book, plans = WorkBook(), [small(1, 2, 2), small(1, 2, 2, order=Pipeline.GPIPE)]
    first, second = ({run for runs in book.of_plan(p, p.order).passes for run, _ in runs} for p in plans)
    assert first == second


def test_transfers_have_a_row_for_every_stage() -> None:
    ways = Parallelism(2, 2, 2)
    rows = item_table([KERNEL, HELD], ways)
    moves = rows.table[rows.stage >= 0]
    assert moves["group_first"].tolist() == [0, 4]
    assert (moves["group_size"] == 2).all() and (moves["group_stride"] == 1).all()
    assert rows.item[rows.stage >= 0].tolist() == [1, 1]


def test_messages_go_to_the_stage_after_and_the_last_one_goes_around() -> None:
    sent = Transfer("send", Group.NEXT, 8.0, "float16", Phase.FORWARD, awaited=False)
    rows = item_table([sent], Parallelism(2, 3, 1))
    moves = rows.table[rows.stage >= 0]
    assert list(zip(moves["group_first"], moves["group_stride"], strict=True)) == [(0, 2), (2, 2), (0, 4)]


def test_sharded_parameters_are_gathered_around_every_unit() -> None:
    plan = TransformerPlan("fsdp", small().model, Parallelism(data=2), small(data=2).schedule,
                           sharding=Sharding(Sharded.PARAMETERS))  # fmt: skip
    work, kinds = WorkBook().of_plan(plan, plan.order), steps(plan.order).kinds
    forward = next(work.passes[own] for own, kind in zip(work.of_kind, kinds, strict=True) if not kind.each.backward)
    gathers = sum(n * sum(isinstance(i, Transfer) and i.kind == "all_gather" for i in run.items) for run, n in forward)
    assert gathers == 4 + 1  # layers; with a tied embedding the ends are one unit


F = Phase.FORWARD
ASIDE = op("aten::add", F, None, lane=Lane.GATHER_INPUT)
COPY = Copy("Memcpy DtoH (Device -> Pinned)", 8.0, "float16", F, Lane.OUT)  # five nodes


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
