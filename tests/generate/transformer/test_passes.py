"""When passes run: bubbles against the formulas of the papers that the orders come from."""

from __future__ import annotations

import pytest

from gnnperf.generate.transformer.passes import Gradient, Order, passes, stage_passes, steps
from gnnperf.generate.transformer.plan import Pipeline
from tests.generate.transformer.plans import small

# forward, gradient of inputs, gradient of weights; Qi et al. 2023 take B at least as long as W
TIMES = [(1.0, 1.0, 1.0), (3.0, 4.0, 2.0), (4.0, 5.0, 4.0), (2.0, 3.0, 1.0)]


def _bubble(order: Order, forward: float, inputs: float, weights: float) -> float:
    """Idle time of the stage that is idle longest, between its first and last pass."""
    length = {Gradient.BOTH: inputs + weights, Gradient.INPUT: inputs, Gradient.WEIGHTS: weights}
    placed = steps(order)
    lengths = [(length[k.each.gradient] if k.each.backward else forward) / order.chunks for k in placed.kinds]
    ends = placed.ends_us(lengths)
    spans = []
    for stage in range(order.stages):
        own = [i for i, kind in enumerate(placed.kind) if placed.kinds[kind].stage == stage]
        spans.append(max(ends[i] for i in own) - min(ends[i] - lengths[placed.kind[i]] for i in own))
    return max(spans) - order.micro_batches * (forward + inputs + weights)


@pytest.mark.parametrize("stages", [2, 4, 8])
@pytest.mark.parametrize("rounds", [2, 5])
@pytest.mark.parametrize("times", TIMES)
def test_bubbles_of_equal_stages_equal_the_formulas_of_the_papers(
    stages: int, rounds: int, times: tuple[float, float, float]
) -> None:
    f, b, w = times
    whole, count = (stages - 1) * (f + b + w), rounds * stages
    expected = {
        (Pipeline.GPIPE, 1): whole,  # Huang et al. 2019
        (Pipeline.ONE_F_ONE_B, 1): whole,  # Narayanan et al. 2021, section 2.2.1
        (Pipeline.INTERLEAVED, 2): whole / 2,  # ibid., section 2.2.2
        (Pipeline.INTERLEAVED, 4): whole / 4,
        (Pipeline.BREADTH_FIRST, 2): whole / 2,  # Lamy-Poirier 2023
        (Pipeline.BREADTH_FIRST, 4): whole / 4,
        (Pipeline.ZB_H1, 1): (stages - 1) * (f + b - w),  # Qi et al. 2023, table 1
        (Pipeline.ZB_H2, 1): (stages - 1) * (f + b - 2 * w),
    }
    outcome = {(kind, chunks): _bubble(Order(kind, stages, count, chunks), f, b, w) for kind, chunks in expected}
    assert outcome == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kind", "stages", "count", "expected"),
    [
        (Pipeline.ONE_F_ONE_B, 2, 3, ["F0 F1 B0 F2 B1 B2", "F0 B0 F1 B1 F2 B2"]),
        (Pipeline.ONE_F_ONE_B, 4, 2, ["F0 F1 B0 B1"]),  # fewer micro-batches than stages
        (Pipeline.GPIPE, 2, 3, ["F0 F1 F2 B2 B1 B0"]),
        (Pipeline.ZB_H1, 2, 3, ["F0 F1 B0 W0 F2 B1 W1 B2 W2", "F0 B0 F1 B1 W0 F2 B2 W1 W2"]),
        (Pipeline.ZB_H2, 2, 3, ["F0 F1 F2 B0 W0 B1 W1 B2 W2", "F0 B0 F1 B1 F2 B2 W0 W1 W2"]),
    ],
)
def test_orders_by_hand(kind: Pipeline, stages: int, count: int, expected: list[str]) -> None:
    def text(stage: int) -> str:
        order = stage_passes(Order(kind, stages, count), stage)
        return " ".join(f"{'FBBW'[p.backward + (2 if p.gradient is Gradient.WEIGHTS else 0)]}{p.micro_batch}"
                        for p in order)  # fmt: skip

    assert [text(stage) for stage in range(len(expected))] == expected


def _in_flight(order: Order, stage: int) -> int:
    """Most micro-batches whose input gradient is still to come."""
    held = most = 0
    for each in stage_passes(order, stage):
        held += 0 if each.gradient is Gradient.WEIGHTS else -1 if each.backward else 1
        most = max(most, held)
    return most


def test_h1_holds_as_many_micro_batches_as_1f1b_and_h2_about_twice_as_many() -> None:
    one, two, plain = (
        [_in_flight(Order(kind, 4, 12), stage) for stage in range(4)]
        for kind in (Pipeline.ZB_H1, Pipeline.ZB_H2, Pipeline.ONE_F_ONE_B)
    )
    assert one == plain == [4, 3, 2, 1]
    assert two == [7, 5, 3, 1]  # 2 (p - stage) - 1


@pytest.mark.parametrize("kind", [Pipeline.INTERLEAVED, Pipeline.BREADTH_FIRST])
@pytest.mark.parametrize("stage", [0, 1])
def test_all_micro_batches_go_through_a_chunk_and_then_through_the_next(kind: Pipeline, stage: int) -> None:
    order = passes(small(pipeline=2, batch=2, order=kind, chunks=2), stage)
    assert [(p.micro_batch, p.chunk) for p in order if not p.backward] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert [(p.micro_batch, p.chunk) for p in order if p.backward] == [(0, 1), (1, 1), (0, 0), (1, 0)]


@pytest.mark.parametrize("kind", list(Pipeline))
@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_every_order_runs_every_pass_once_after_what_it_takes(kind: Pipeline, count: int) -> None:
    order = Order(kind, 4, 4 * count if kind is Pipeline.INTERLEAVED else count, 2 if kind.has_chunks else 1)
    placed = steps(order)
    stages = [placed.kinds[kind].stage for kind in placed.kind]
    kinds = 3 if kind.splits_backward else 2
    number = kinds * order.stages * order.micro_batches * order.chunks
    assert len(set(zip(stages, placed.passes, strict=True))) == len(stages) == number
    assert all(i > max(ends) for i, ends in enumerate(zip(placed.before, placed.source, strict=True)))
    first = [p for p, source in zip(placed.passes, placed.source, strict=True) if source < 0]
    assert first == [p for p in stage_passes(order, 0) if not p.backward and not p.chunk]
