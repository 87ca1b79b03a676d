"""When passes run: bubbles against the formulas of the papers that the orders come from."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gnnperf.core import InputError, NodeType
from gnnperf.generate import Recompute, rank_tensors
from gnnperf.generate.transformer import passes as module
from gnnperf.generate.transformer.block import Block
from gnnperf.generate.transformer.build import build_plan
from gnnperf.generate.transformer.passes import Gradient, Order, Pass, Pipeline, stage_passes, steps
from gnnperf.memory import planned_peak
from gnnperf.schedule import schedule
from tests.generate.transformer.plans import MODEL, small

# forward, gradient of inputs, gradient of weights; Qi et al. 2023 take B at least as long as W
V_SHAPED = (Pipeline.ZB_V, Pipeline.DUAL_PIPE_V)
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


@pytest.mark.parametrize("stages", [2, 3, 4, 8])
@pytest.mark.parametrize("more", [0, 1, 7])
def test_there_and_back_the_bubble_of_equal_stages_equals_the_formula(stages: int, more: int) -> None:
    """Qi et al. 2023, section 6: none where F = B = W.

    DualPipe's (PP / 2 - 1) (F&B + B - 3 W), B of both gradients, is that of passes that begin and end together. One
    after the other they wait less: a backward pass need not have come when the forward pass before it begins.
    """
    v, dual = (Order(kind, stages, 2 * stages + more, 2) for kind in V_SHAPED)
    assert _bubble(v, 1.0, 1.0, 1.0) == pytest.approx(0.0)
    for f, w in ((1.0, 1.0), (2.0, 1.0), (3.0, 2.0)):
        assert _bubble(dual, f, f, w) == pytest.approx((stages - 1) * (2 * f - w) / 2)
        both = f + (f + w)
        assert _paired_us(dual, f, w) - dual.micro_batches * 2 * both == pytest.approx((stages - 1) * (3 * f - w))


def _paired_us(order: Order, f: float, w: float) -> float:
    """Makespan where a forward pass and the whole backward pass after it are one, but for the last stage's first."""
    length = {Gradient.BOTH: f + w, Gradient.INPUT: f, Gradient.WEIGHTS: w}
    runs = [_pairs(stage_passes(order, stage), stage == order.stages - 1) for stage in range(order.stages)]
    free, done = [0.0] * order.stages, dict[object, float]()
    while any(runs):
        for stage, own in enumerate(runs):
            sources = [module._source(order, stage, each) for each in own[0]] if own else [("none", -1, -1)]
            if all(source is None or source in done for source in sources):
                run = own.pop(0)
                begin = max(free[stage], *(done[source] for source in sources if source is not None), 0.0)
                free[stage] = begin + sum(length[each.gradient] if each.backward else f for each in run)
                done |= {module._result(order, stage, each): free[stage] for each in run}
    return max(free)


def _pairs(order: tuple[Pass, ...], last: bool) -> list[list[Pass]]:
    result: list[list[Pass]] = []
    for each in order:
        begins = not each.backward or each.gradient is not Gradient.BOTH or result[-1][-1].backward
        apart = last and each.gradient is Gradient.BOTH and each.backward and each.micro_batch == 0 and each.chunk == 1
        if begins or apart:
            result.append([each])
        else:
            result[-1].append(each)
    return result


@pytest.mark.parametrize(("kind", "name"), [(Pipeline.ZB_V, "ZBVZeroBubble"), (Pipeline.DUAL_PIPE_V, "DualPipeV")])
@pytest.mark.parametrize(("stages", "count"), [(2, 4), (3, 9), (4, 8)])
def test_there_and_back_passes_are_those_of_torch(kind: Pipeline, name: str, stages: int, count: int) -> None:
    from torch.distributed.pipelining import schedules

    made = getattr(schedules, f"Schedule{name}")._calculate_single_rank_operations
    settings = SimpleNamespace(pp_group_size=stages, num_stages=2 * stages, _n_microbatches=count)
    order = Order(kind, stages, count, 2)
    names = {None: "FORWARD", Gradient.BOTH: "FULL_BACKWARD", Gradient.INPUT: "BACKWARD_INPUT",
             Gradient.WEIGHTS: "BACKWARD_WEIGHT"}  # fmt: skip
    for stage in range(stages):
        expected = [one for each in made(settings, stage) if each for one in (each.sub_actions or (each,))]
        own = [(order.part(stage, p.chunk), p.micro_batch, names[p.gradient if p.backward else None])
               for p in stage_passes(order, stage)]  # fmt: skip
        assert own == [(e.stage_index, e.microbatch_index, e.computation_type.name) for e in expected]


def test_there_and_back_every_stage_holds_as_much() -> None:
    """In chunks of half a stage: ZB-V as 1F1B's first stage; DualPipeV at most one more (PP + 1)."""
    most = {kind: [max(_held(Order(kind, 4, 12, 2), stage)) for stage in range(4)] for kind in V_SHAPED}
    assert most == {Pipeline.ZB_V: [8, 8, 8, 8], Pipeline.DUAL_PIPE_V: [9, 9, 9, 9]}


def _held(order: Order, stage: int, nothing_goes: Gradient = Gradient.INPUT) -> list[int]:
    """After each pass, micro-batches of which a gradient is still to come: of weights, or of inputs."""
    passes_ = stage_passes(order, stage)
    return np.cumsum([0 if p.gradient is nothing_goes else -1 if p.backward else 1 for p in passes_]).tolist()


def test_h1_holds_as_many_micro_batches_as_1f1b_and_h2_about_twice_as_many() -> None:
    one, two, plain = (
        [max(_held(Order(kind, 4, 12), stage, Gradient.WEIGHTS)) for stage in range(4)]
        for kind in (Pipeline.ZB_H1, Pipeline.ZB_H2, Pipeline.ONE_F_ONE_B)
    )
    assert one == plain == [4, 3, 2, 1]
    assert two == [7, 5, 3, 1]  # 2 (p - stage) - 1


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("times", TIMES[:2])
def test_without_a_flush_steps_of_equal_stages_have_no_bubble(stages: int, times: tuple[float, float, float]) -> None:
    """Narayanan et al. 2021 (PipeDream-2BW), figure 2: the next step begins m (F + B) later; 1F1B fills and drains."""
    f, both, count, untied = times[0], times[1] + times[2], 8, Block(tied_embedding=False)
    step_us = []
    for kind, copies in ((Pipeline.NO_FLUSH, 4), (Pipeline.ONE_F_ONE_B, 1)):
        plan = small(pipeline=stages, batch=count, order=kind, recompute=Recompute.NONE)
        nodes = (graph := build_plan(replace(plan, block=untied))).nodes
        kernel, name = nodes["node_type"] == NodeType.COMPUTE, nodes["op_name"].astype(str)
        softmax, backward = kernel & (name == "aten::_softmax"), kernel & (name == "aten::_softmax_backward_data")
        us = np.select([softmax, backward], [f, both], 0.0)  # one of each per layer, all else takes no time
        step_us.append(schedule(graph, us, np.zeros(len(graph.edges)), num_unrolled=copies).step_time_us)
    stage_us = (f + both) * MODEL.layers / stages
    assert step_us == pytest.approx([count * stage_us, (count + stages - 1) * stage_us])


def test_without_a_flush_a_stage_holds_two_weights_and_micro_batches_as_1f1b() -> None:
    held = [rank_tensors(small(pipeline=4, batch=8, order=kind)) for kind in (Pipeline.ONE_F_ONE_B, Pipeline.NO_FLUSH)]
    for one, two in zip(*held, strict=True):
        assert two.parameters_bytes == (2 * one.parameters_bytes[0],)
        assert planned_peak(two).peak_bytes - planned_peak(one).peak_bytes == one.parameters_bytes[0]
    with pytest.raises(InputError, match="as many micro-batches as stages"):
        small(pipeline=4, batch=3, order=Pipeline.NO_FLUSH)


@pytest.mark.parametrize("kind", [Pipeline.INTERLEAVED, Pipeline.BREADTH_FIRST])
@pytest.mark.parametrize("stage", [0, 1])
def test_all_micro_batches_go_through_a_chunk_and_then_through_the_next(kind: Pipeline, stage: int) -> None:
    order = stage_passes(small(pipeline=2, batch=2, order=kind, chunks=2).order, stage)
    assert [(p.micro_batch, p.chunk) for p in order if not p.backward] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert [(p.micro_batch, p.chunk) for p in order if p.backward] == [(0, 1), (1, 1), (0, 0), (1, 0)]


@pytest.mark.parametrize("kind", list(Pipeline))
@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_every_order_runs_every_pass_once_after_what_it_takes(kind: Pipeline, count: int) -> None:
    order = Order(kind, 4, 4 * count if kind is Pipeline.INTERLEAVED else count, 2 if kind.allows(2) else 1)
    placed = steps(order)
    stages = [placed.kinds[kind].stage for kind in placed.kind]
    number = order.parts * order.micro_batches
    assert len(set(zip(stages, placed.passes, strict=True))) == len(stages)
    of = {"F": 0, Gradient.BOTH: 0, Gradient.INPUT: 0, Gradient.WEIGHTS: 0}
    for each in placed.passes:
        of[each.gradient if each.backward else "F"] += 1
    assert of["F"] == of[Gradient.BOTH] + of[Gradient.INPUT] == of[Gradient.BOTH] + of[Gradient.WEIGHTS] == number
    assert all(i > max(ends) for i, ends in enumerate(zip(placed.before, placed.source, strict=True)))
    first = [p for p, source in zip(placed.passes, placed.source, strict=True) if source < 0]
    of_step_before = 0 if kind.flushes else order.stages - 1
    assert len(first) == order.micro_batches + of_step_before
    assert set(first) == {p for p in stage_passes(order, 0) if not p.backward and not p.chunk}
