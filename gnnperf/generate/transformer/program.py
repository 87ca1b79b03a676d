"""What the ranks of one stage do in a step, item by item."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from gnnperf.core import Phase
from gnnperf.generate.transformer import gradients, items
from gnnperf.generate.transformer.activations import ActivationOffload, recomputed
from gnnperf.generate.transformer.ends import embedding_backward, embedding_forward, head_backward, head_forward
from gnnperf.generate.transformer.gradients import FIRST, LAST, Around, Items, Unit, UnitKind, Visit
from gnnperf.generate.transformer.items import Await, Group, Item, Lane, Line, Placed, Record, Store, Transfer, op
from gnnperf.generate.transformer.layer import layer_backward, layer_forward
from gnnperf.generate.transformer.lengths import with_sequence
from gnnperf.generate.transformer.mlp import B
from gnnperf.generate.transformer.passes import Gradient, Pass, comes_from_step_before, flagged_passes
from gnnperf.generate.transformer.plan import Reduction, Sharded, TransformerPlan
from gnnperf.generate.transformer.sizes import Count
from gnnperf.graph import DTYPE_BYTES, Tensor

# Parameters in parts over the replicas: gathered before a unit's forward pass, and again before its backward pass.
#
#     input copies  |in 0|  |in 1|             fully_shard of torch.distributed.fsdp (FSDP2), _fsdp_param_group.py
#     gather        |= all-gather 0 =|= all-gather 1 =|
#     compute                        |out 0|- layer 0 -|out 1|- layer 1 -|
#
# Forward, the host issues a unit's gather when it comes to the unit; since it runs ahead, the gather runs next to the
# unit before (implicit prefetch), but not before the copies out of the buffer before the last are done. Backward, the
# gather of the unit before is issued as soon as this one's copies are out (explicit prefetch; Zhao et al. 2023, 3.3).
#
# Units are those of torchtitan: embedding, each layer, and norm with logits, which are kept from forward to backward. A
# tied embedding is the root's: gathered once, kept until its gradient. Volume of a micro-batch, of P parameters of
# layers: 2 P gathered and P reduce-scattered (Rajbhandari et al. 2020, section 7.2.2), P (n - 1) / n on the wire each.

COPIED_IN, GATHERED, COPIED_OUT = "parameters copied in", "parameters gathered", "parameters copied out"
# Gathers to come wait for the latest copies out of a buffer.
REUSE = (Await(Lane.GATHER_INPUT, COPIED_OUT), Await(Lane.GATHER, COPIED_OUT))


class Gathering(Around):
    """Whole parameters where and when they are needed."""

    def before_forward(self, at: Visit) -> Items:
        """The unit's gather, and the wait for it. Its buffer waits for the copies out of the one before."""
        if not self._count(at.unit).total:
            return ()
        return (*self._issue(at.unit, Phase.FORWARD), *REUSE, *self._whole(at.unit, Phase.FORWARD))

    def before_backward(self, at: Visit) -> Items:
        """The wait for the unit's gather, which the unit after it has issued, and the gather of the one before."""
        result: list[Item] = []
        if self._dropped(at.unit):
            result += [*self._whole(at.unit, Phase.BACKWARD), *REUSE]
        if at.before is not None and self._dropped(at.before):
            result += self._issue(at.before, Phase.BACKWARD)
        return result

    def _dropped(self, unit: Unit) -> bool:
        return gradients.resharded(self.plan, unit) and self._count(unit).total > 0

    def _count(self, unit: Unit) -> Count:
        return gradients.unit_parameters(self.plan, unit)

    def _issue(self, unit: Unit, phase: Phase) -> Iterator[Item]:
        """Own parts copied into the buffer, in the dtype of the products; then the all-gather."""
        part, dtype = self._count(unit).over(self.plan), self.plan.model.dtype
        held = "float32" if self.plan.offload.optimizer is Store.DEVICE else dtype  # else the host holds those
        for group, count in ((Group.DATA, part.shared), (Group.EXPERT_DATA, part.expert)):
            if count:
                copied = Tensor((count,), dtype), Tensor((count,), held)
                yield op("aten::copy_", phase, *copied, lane=Lane.GATHER_INPUT)
                yield Record(Lane.GATHER_INPUT, COPIED_IN)
                yield Await(Lane.GATHER, COPIED_IN)
                yield Transfer("all_gather", group, float(count * DTYPE_BYTES[dtype]), dtype, phase, awaited=False,
                               follows_compute=False)  # fmt: skip
        yield Record(Lane.GATHER, GATHERED)

    def _whole(self, unit: Unit, phase: Phase) -> Iterator[Item]:
        """The gathered parts, copied out of the buffer as parameters."""
        count = self._count(unit)
        yield Await(Lane.COMPUTE, GATHERED)
        for number in (count.shared, count.expert):
            if number:
                whole = Tensor((number,), self.plan.model.dtype)
                yield op("aten::copy_", phase, whole, whole)
        yield Record(Lane.COMPUTE, COPIED_OUT)


def stage_program(plan: TransformerPlan, stage: int, lengths: Sequence[int] = ()) -> tuple[Placed, ...]:
    """All items of a step; `lengths` are those of its micro-batches' samples, (): all have model.sequence."""
    whole = StageProgram(plan, stage)
    own = {length: StageProgram(with_sequence(plan, length), stage) for length in set(lengths)}
    result = [Placed(item) for item in gradients.zero_gradients(plan, stage)]
    for each, first, final in flagged_passes(plan.order, stage):
        program = own[lengths[each.micro_batch]] if lengths else whole
        result += program.of_pass(each, first=first, final=final)
    return (*result, *whole.after_passes())


class StageProgram:
    """The parts of a stage's program. Equal items are one object: a hundred layers are not made a hundred times."""

    def __init__(self, plan: TransformerPlan, stage: int) -> None:
        self._plan, self._stage, self._around = plan, stage, settings(plan)
        self._items: dict[Item, Placed] = {}
        self._tuples: dict[object, tuple[Placed, ...]] = {}

    def _placed(self, lines: Iterable[Line]) -> tuple[Placed, ...]:
        return tuple(self._items.setdefault(item, Placed(item)) for item in items.items_of(lines))

    def _once(self, what: object, make: Callable[[], Iterable[Line]]) -> tuple[Placed, ...]:
        """The items of `what`, made when it is first requested."""
        if what not in self._tuples:
            self._tuples[what] = self._placed(make())
        return self._tuples[what]

    def of_pass(self, each: Pass, *, first: bool, final: bool) -> Iterator[Placed]:
        """One pass; `first`, `final`: whether it is the first or last of its kind and chunk."""
        yield from self._received_before(each)
        visits = self.visits(each, first=first, final=final)
        for at in reversed(visits) if each.backward else visits:
            yield from self._around_unit(each, at, after=False)
            yield from self.of_unit(each, at)
            yield from self._around_unit(each, at, after=True)
        yield from self._sent_after(each)

    def messages_of(self, each: Pass) -> tuple[Placed, ...]:
        """Of a pass: what it receives first and sends last."""
        return (*self._received_before(each), *self._sent_after(each))

    def visits(self, each: Pass, *, first: bool, final: bool) -> list[Visit]:
        """Of a pass's units, in forward order."""
        part, last = self._part(each), self._plan.order.parts - 1
        layers = (Unit(UnitKind.LAYER, layer) for layer in self._plan.layers_of_part(part))
        units = (*((FIRST,) if part == 0 else ()), *layers, *((LAST,) if part == last else ()))
        return [Visit(units, place, each.micro_batch, first, final, part) for place in range(len(units))]

    def of_unit(self, each: Pass, at: Visit) -> Iterator[Placed]:
        """A unit's own items in a pass; of a backward pass all, or those for gradients of weights, or the others."""
        if not each.backward:
            yield from self._forward(at.unit)
            return
        for placed in self._backward(at.unit):
            weights = isinstance(placed.item, items.Op) and placed.item.of_weights
            if each.gradient is Gradient.BOTH or weights == (each.gradient is Gradient.WEIGHTS):
                yield placed

    def around(self, each: Pass, at: Visit) -> tuple[Placed, ...]:
        """What settings do before and after a unit."""
        return tuple(placed for after in (False, True) for placed in self._around_unit(each, at, after=after))

    def after_passes(self) -> tuple[Placed, ...]:
        """After the last pass: what settings leave to do, sums of gradients, the update."""
        last = [item for setting in self._around for item in setting.after_passes()]
        sums = gradients.reduce_gradients(self._plan, self._stage)
        return self._placed((*last, *sums, *gradients.update(self._plan, self._stage)))

    def _part(self, each: Pass) -> int:
        """Which part of the model the pass goes through."""
        return self._plan.order.part(self._stage, each.chunk)

    def ends(self, each: Pass) -> tuple[Group | None, Group | None]:
        """From which stage a pass takes, and to which it gives; None: this one, or none."""
        before, after = (self._neighbor(each, step) for step in (-1, 1))
        return (after, before) if each.backward else (before, after)

    def _neighbor(self, each: Pass, step: int) -> Group | None:
        """Where the part of the model before (-1) or after (1) that of a pass is."""
        order, part = self._plan.order, self._part(each) + step
        if each.gradient is Gradient.WEIGHTS or not 0 <= part < order.parts or order.stage(part) == self._stage:
            return None
        return Group.NEXT if (step > 0) != order.returns(each.chunk) else Group.PREVIOUS

    def _received_before(self, each: Pass) -> Iterator[Placed]:
        """A message; the host waits for it (torch.cuda.synchronize in Megatron-LM's p2p_communication.py)."""
        group, phase = self.ends(each)[0], B if each.backward else Phase.FORWARD
        if group is None:
            return
        before = comes_from_step_before(self._plan.order, self._stage, each)
        message = self._message("recv", group, phase, sent_before=before)
        yield Placed(message, f"{phase} {each.micro_batch} {self._part(each)}")
        yield from self._once(("wait", phase), lambda: (items.HostWait(phase),))

    def _sent_after(self, each: Pass) -> Iterator[Placed]:
        group, phase, step = self.ends(each)[1], *((B, -1) if each.backward else (Phase.FORWARD, 1))
        if group is not None:
            yield Placed(self._message("send", group, phase), f"{phase} {each.micro_batch} {self._part(each) + step}")

    def _message(self, kind: str, group: Group, phase: Phase, *, sent_before: bool = False) -> Item:
        """Activations of a micro-batch, or their gradients. A rank does not wait for what it sends."""
        plan = self._plan
        size = plan.resident_tokens * plan.model.hidden * DTYPE_BYTES[plan.model.dtype]
        transfer = Transfer(kind, group, float(size), plan.model.dtype, phase, awaited=kind == "recv",
                            sent_before=sent_before)  # fmt: skip
        (result,) = self._once((kind, group, phase, sent_before), lambda: (transfer,))
        return result.item

    def _around_unit(self, each: Pass, at: Visit, *, after: bool) -> Iterator[Placed]:
        """What settings do before a unit, with its gradient of inputs, or after it, with that of weights."""
        if each.gradient is (Gradient.INPUT if after else Gradient.WEIGHTS):
            return
        for setting in self._around:
            if each.backward:
                own = setting.after_backward(at) if after else setting.before_backward(at)
            else:
                own = setting.after_forward(at) if after else setting.before_forward(at)
            yield from self._placed(own)

    def _forward(self, unit: Unit, phase: Phase = Phase.FORWARD) -> tuple[Placed, ...]:
        """A unit's forward items; of a layer in the backward phase, its recomputation."""
        plan = self._plan
        if unit == FIRST:
            return self._once("first forward", lambda: embedding_forward(plan))
        if unit == LAST:
            return self._once("last forward", lambda: head_forward(plan))
        key = ("layer", phase, plan.has_experts(unit.layer))
        return self._once(key, lambda: layer_forward(plan, unit.layer, phase))

    def _backward(self, unit: Unit) -> tuple[Placed, ...]:
        plan = self._plan
        if unit == FIRST:
            return self._once("first backward", lambda: embedding_backward(plan))
        if unit == LAST:
            return self._once("last backward", lambda: head_backward(plan))
        again = self._forward(unit, B) if recomputed(plan, unit.layer) else ()
        key = ("layer backward", plan.has_experts(unit.layer))
        return (*again, *self._once(key, lambda: layer_backward(plan, unit.layer)))


def settings(plan: TransformerPlan) -> tuple[Around, ...]:
    """What the plan does around units, in the order in which it is done."""
    state, every_pass = plan.sharding.state, plan.sharding.reduces_every_pass
    buckets = plan.schedule.reduction is Reduction.BUCKETS and plan.parallelism.data_context > 1 and not every_pass
    offers = (
        (plan.offload.activations is not Store.DEVICE, ActivationOffload(plan)),
        (state is Sharded.PARAMETERS, Gathering(plan)),
        (buckets, gradients.Buckets(plan)),
        (every_pass, gradients.Scattering(plan)),
        (every_pass and plan.offload.optimizer is not Store.DEVICE, gradients.GradientOffload(plan)),
    )
    return tuple(setting for chosen, setting in offers if chosen)
