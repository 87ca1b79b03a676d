"""What the ranks of one stage do in a step, item by item."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gnnperf.graph.cost.op_call import DTYPE_BYTES
from gnnperf.plan.transformer.ends import embedding_backward, embedding_forward, head_backward, head_forward
from gnnperf.plan.transformer.items import Group, HostWait, Item, Placed, Transfer
from gnnperf.plan.transformer.layer import layer_backward, layer_forward
from gnnperf.plan.transformer.pipeline import Pass, passes
from gnnperf.plan.transformer.plan import Reduction, TransformerPlan
from gnnperf.plan.transformer.update import (
    bucket,
    embedding_parameters,
    head_parameters,
    layer_parameters,
    layers_per_bucket,
    reduce_gradients,
    update,
    zero_gradients,
)
from gnnperf.schema import Phase


@dataclass(frozen=True)
class _Parts:
    """The pieces of every pass, made once."""

    plan: TransformerPlan
    stage: int
    layer_forward: tuple[Placed, ...]
    layer_backward: tuple[Placed, ...]
    first: tuple[tuple[Placed, ...], tuple[Placed, ...]]  # forward, backward
    last: tuple[tuple[Placed, ...], tuple[Placed, ...]]
    ends: dict[tuple[str, Group, Phase], Transfer]
    wait: dict[Phase, Placed]


def stage_program(plan: TransformerPlan, stage: int) -> tuple[Placed, ...]:
    """All items of a step."""
    parts = _Parts(
        plan,
        stage,
        _placed(layer_forward(plan)),
        _placed(layer_backward(plan)),
        (_placed(embedding_forward(plan)), _placed(embedding_backward(plan))),
        (_placed(head_forward(plan)), _placed(head_backward(plan))),
        {(kind, group, phase): _message(plan, kind, group, phase) for kind in ("send", "recv")
         for group in (Group.NEXT, Group.PREVIOUS) for phase in (Phase.FORWARD, Phase.BACKWARD)},
        {phase: Placed(HostWait(phase)) for phase in (Phase.FORWARD, Phase.BACKWARD)},
    )  # fmt: skip
    order = passes(plan, stage)
    final = {each.chunk: each for each in order if each.backward}  # the last pass of each chunk
    found = list(_placed(zero_gradients(plan, stage)))
    for each in order:
        found += _backward(parts, each, final[each.chunk] == each) if each.backward else _forward(parts, each)
    return (*found, *_placed(reduce_gradients(plan, stage)), *_placed(update(plan, stage)))


def _placed(items: Iterable[Item]) -> tuple[Placed, ...]:
    return tuple(Placed(item) for item in items)


def _message(plan: TransformerPlan, kind: str, group: Group, phase: Phase) -> Transfer:
    """Activations of a micro-batch, or their gradients. A rank does not wait for what it sends."""
    size = plan.tokens * plan.model.hidden * DTYPE_BYTES[plan.model.dtype]
    return Transfer(kind, group, float(size), plan.model.dtype, phase, awaited=kind == "recv")


def _forward(parts: _Parts, each: Pass) -> Iterator[Placed]:
    part, last = _virtual(parts, each)
    if part:
        yield from _received(parts, Group.PREVIOUS, Phase.FORWARD, f"forward {each.micro_batch} {part}")
    else:
        yield from parts.first[0]
    yield from parts.layer_forward * parts.plan.layers_per_chunk
    if part < last:
        send = parts.ends["send", Group.NEXT, Phase.FORWARD]
        yield Placed(send, f"forward {each.micro_batch} {part + 1}")
    else:
        yield from parts.last[0]


def _backward(parts: _Parts, each: Pass, final: bool) -> Iterator[Placed]:
    part, last = _virtual(parts, each)
    if part < last:
        yield from _received(parts, Group.NEXT, Phase.BACKWARD, f"backward {each.micro_batch} {part}")
    else:
        yield from parts.last[1]
    yield from _layers_backward(parts, part, final)
    if part:
        send = parts.ends["send", Group.PREVIOUS, Phase.BACKWARD]
        yield Placed(send, f"backward {each.micro_batch} {part - 1}")


def _layers_backward(parts: _Parts, part: int, final: bool) -> Iterator[Placed]:
    """The layers of a chunk and, of the first chunk, the embedding; with its last gradients, buckets set off."""
    plan, layers = parts.plan, parts.plan.layers_per_chunk
    sends = final and plan.schedule.reduction is Reduction.BUCKETS and plan.parallelism.data > 1
    step = layers_per_bucket(plan) if sends else layers
    if sends and part == plan.parallelism.pipeline * plan.schedule.chunks - 1:
        yield from _placed(bucket(plan, head_parameters(plan), last=False))
    for begin in range(0, layers, step):
        count = min(step, layers - begin)
        yield from parts.layer_backward * count
        if sends:
            ends_here = begin + count == layers and part > 0 and not _holds_earlier_chunks(parts, part)
            yield from _placed(bucket(plan, count * layer_parameters(plan), last=ends_here))
    if part == 0:
        yield from parts.first[1]
        if sends:
            rows = embedding_parameters(plan) + plan.model.sequence * plan.model.hidden
            yield from _placed(bucket(plan, rows, last=True))


def _holds_earlier_chunks(parts: _Parts, part: int) -> bool:
    """Whether the stage holds a chunk whose gradients come later."""
    return part >= parts.plan.parallelism.pipeline


def _received(parts: _Parts, group: Group, phase: Phase, tag: str) -> Iterator[Placed]:
    """A message; the host waits for it (torch.cuda.synchronize in Megatron-LM's p2p_communication.py)."""
    yield Placed(parts.ends["recv", group, phase], tag)
    yield parts.wait[phase]


def _virtual(parts: _Parts, each: Pass) -> tuple[int, int]:
    """Which part of the model the pass goes through, and which is the last."""
    stages = parts.plan.parallelism.pipeline
    return each.chunk * stages + parts.stage, parts.plan.schedule.chunks * stages - 1
