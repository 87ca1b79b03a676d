"""What the ranks of one stage do in a step, item by item."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from gnnperf.core import Phase
from gnnperf.generate.transformer.activation_offload import ActivationOffload
from gnnperf.generate.transformer.activations import ends_checkpoint, recomputed
from gnnperf.generate.transformer.around import FIRST, LAST, Around, Unit, UnitKind, Visit
from gnnperf.generate.transformer.ends import embedding_backward, embedding_forward, head_backward, head_forward
from gnnperf.generate.transformer.gathering import Gathering
from gnnperf.generate.transformer.gradients import Buckets, Scattering
from gnnperf.generate.transformer.host_update import GradientOffload
from gnnperf.generate.transformer.items import Group, HostWait, Item, Placed, Transfer
from gnnperf.generate.transformer.layer import layer_backward, layer_forward
from gnnperf.generate.transformer.offload import Store
from gnnperf.generate.transformer.pipeline import Pass, passes
from gnnperf.generate.transformer.plan import Reduction, TransformerPlan
from gnnperf.generate.transformer.products import B
from gnnperf.generate.transformer.sharding import Sharded
from gnnperf.generate.transformer.update import reduce_gradients, update, zero_gradients
from gnnperf.graph import DTYPE_BYTES


class _Shelf:
    """Items that are equal, once: nodes are made for each distinct item, told apart by identity.

    Whole tuples are kept by what they are, so that a hundred layers are not made a hundred times.
    """

    def __init__(self) -> None:
        self._items: dict[Item, Placed] = {}
        self._tuples: dict[object, tuple[Placed, ...]] = {}

    def placed(self, items: Iterable[Item]) -> tuple[Placed, ...]:
        """Items of a program, untagged."""
        return tuple(self._items.setdefault(item, Placed(item)) for item in items)

    def once(self, what: object, make: Callable[[], Iterable[Item]]) -> tuple[Placed, ...]:
        """The items of `what`, made when it is first asked for."""
        if what not in self._tuples:
            self._tuples[what] = self.placed(make())
        return self._tuples[what]


@dataclass(frozen=True)
class _Stage:
    """One stage: its plan, what the plan does around units, and its items."""

    plan: TransformerPlan
    stage: int
    around: tuple[Around, ...]
    shelf: _Shelf


def stage_program(plan: TransformerPlan, stage: int) -> tuple[Placed, ...]:
    """All items of a step."""
    here = _Stage(plan, stage, settings(plan), _Shelf())
    order = passes(plan, stage)
    ends = {(each.backward, each.chunk): each for each in order}  # the last pass of each chunk
    starts = {(each.backward, each.chunk): each for each in reversed(order)}
    found = list(here.shelf.placed(zero_gradients(plan, stage)))
    for each in order:
        key = (each.backward, each.chunk)
        direction = _backward if each.backward else _forward
        found += direction(here, each, starts[key] == each, ends[key] == each)
    for setting in here.around:
        found += here.shelf.placed(setting.after_passes())
    return (*found, *here.shelf.placed((*reduce_gradients(plan, stage), *update(plan, stage))))


def settings(plan: TransformerPlan) -> tuple[Around, ...]:
    """What the plan does around units, in the order in which it is done."""
    state, every_pass = plan.sharding.state, plan.sharding.reduces_every_pass
    buckets = plan.schedule.reduction is Reduction.BUCKETS and plan.parallelism.data > 1 and not every_pass
    offers = (
        (plan.offload.activations is not Store.DEVICE, ActivationOffload(plan)),
        (state is Sharded.PARAMETERS, Gathering(plan)),
        (buckets, Buckets(plan)),
        (every_pass, Scattering(plan)),
        (every_pass and plan.offload.optimizer is not Store.DEVICE, GradientOffload(plan)),
    )
    return tuple(setting for chosen, setting in offers if chosen)


def _forward(here: _Stage, each: Pass, first: bool, final: bool) -> Iterator[Placed]:
    part, last = _virtual(here, each)
    if part:
        yield from _received(here, Group.PREVIOUS, Phase.FORWARD, f"forward {each.micro_batch} {part}")
    units = _units(here, part)
    for place, unit in enumerate(units):
        at = Visit(units, place, each.micro_batch, first, final, part)
        for setting in here.around:
            yield from here.shelf.placed(setting.before_forward(at))
        yield from _unit_forward(here, unit)
        for setting in here.around:
            yield from here.shelf.placed(setting.after_forward(at))
    if part < last:
        send = _message(here, "send", Group.NEXT, Phase.FORWARD)
        yield Placed(send, f"forward {each.micro_batch} {part + 1}")


def _backward(here: _Stage, each: Pass, first: bool, final: bool) -> Iterator[Placed]:
    part, last = _virtual(here, each)
    if part < last:
        yield from _received(here, Group.NEXT, Phase.BACKWARD, f"backward {each.micro_batch} {part}")
    units = _units(here, part)
    for place in reversed(range(len(units))):
        at = Visit(units, place, each.micro_batch, first, final, part)
        for setting in here.around:
            yield from here.shelf.placed(setting.before_backward(at))
        yield from _unit_backward(here, units[place])
        for setting in here.around:
            yield from here.shelf.placed(setting.after_backward(at))
    if part:
        send = _message(here, "send", Group.PREVIOUS, Phase.BACKWARD)
        yield Placed(send, f"backward {each.micro_batch} {part - 1}")


def _unit_forward(here: _Stage, unit: Unit) -> tuple[Placed, ...]:
    plan, shelf = here.plan, here.shelf
    if unit == FIRST:
        return shelf.once("first forward", lambda: embedding_forward(plan))
    if unit == LAST:
        return shelf.once("last forward", lambda: head_forward(plan))
    return _layer_forward(here, unit.layer, Phase.FORWARD)


def _layer_forward(here: _Stage, layer: int, phase: Phase) -> tuple[Placed, ...]:
    key = ("layer", phase, here.plan.has_experts(layer))
    return here.shelf.once(key, lambda: layer_forward(here.plan, layer, phase))


def _unit_backward(here: _Stage, unit: Unit) -> Iterator[Placed]:
    """Of layers that are computed again together, all are when the last of them is asked for its gradients."""
    plan, shelf = here.plan, here.shelf
    if unit == FIRST:
        yield from shelf.once("first backward", lambda: embedding_backward(plan))
        return
    if unit == LAST:
        yield from shelf.once("last backward", lambda: head_backward(plan))
        return
    if recomputed(plan, unit.layer) and ends_checkpoint(plan, unit.layer):
        for layer in range(unit.layer + 1 - plan.schedule.checkpoint_every, unit.layer + 1):
            yield from _layer_forward(here, layer, B)
    key = ("layer backward", plan.has_experts(unit.layer))
    yield from shelf.once(key, lambda: layer_backward(plan, unit.layer))


def _units(here: _Stage, part: int) -> tuple[Unit, ...]:
    """What a pass through a part of the model visits."""
    per, last = here.plan.layers_per_chunk, here.plan.parallelism.pipeline * here.plan.schedule.chunks - 1
    layers = (Unit(UnitKind.LAYER, part * per + i) for i in range(per))
    return (*((FIRST,) if part == 0 else ()), *layers, *((LAST,) if part == last else ()))


def _message(here: _Stage, kind: str, group: Group, phase: Phase) -> Transfer:
    """Activations of a micro-batch, or their gradients. A rank does not wait for what it sends."""
    plan = here.plan
    size = plan.resident_tokens * plan.model.hidden * DTYPE_BYTES[plan.model.dtype]
    transfer = Transfer(kind, group, float(size), plan.model.dtype, phase, awaited=kind == "recv")
    (found,) = here.shelf.once((kind, group, phase), lambda: (transfer,))
    assert isinstance(found.item, Transfer), "what was put there"
    return found.item


def _received(here: _Stage, group: Group, phase: Phase, tag: str) -> Iterator[Placed]:
    """A message; the host waits for it (torch.cuda.synchronize in Megatron-LM's p2p_communication.py)."""
    yield Placed(_message(here, "recv", group, phase), tag)
    yield from here.shelf.once(("wait", phase), lambda: (HostWait(phase),))


def _virtual(here: _Stage, each: Pass) -> tuple[int, int]:
    """Which part of the model the pass goes through, and which is the last."""
    stages = here.plan.parallelism.pipeline
    return each.chunk * stages + here.stage, here.plan.schedule.chunks * stages - 1
