"""What one rank of a stage holds: all the time, and change by change in the order of its passes.

Between the stretches of a step stand the changes that no op of a layer makes (docs/concepts/memory.md, plans).
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from gnnperf.generate.transformer import gradients
from gnnperf.generate.transformer.activations import recomputed
from gnnperf.generate.transformer.ends import embedding_backward, embedding_forward, head_backward, head_forward
from gnnperf.generate.transformer.gradients import FIRST, LAST, Unit, UnitKind, held_gradient_dtype
from gnnperf.generate.transformer.items import Store, uses_of
from gnnperf.generate.transformer.layer import layer_backward, layer_forward
from gnnperf.generate.transformer.passes import Gradient, stage_passes
from gnnperf.generate.transformer.plan import Recompute, Sharded, TransformerPlan
from gnnperf.generate.transformer.sizes import owned_count, sizes, stage_count
from gnnperf.generate.uses import HeldFor, Hold, Pair, Stretch, Use, retained_bytes, use
from gnnperf.graph import DTYPE_BYTES

FLOAT_BYTES = DTYPE_BYTES["float32"]
ADAM_MOMENTS = 2
GATHER, COPY_OUT, RESHARD, REDUCE = "all_gather", "fsdp::split_with_sizes_copy", "reshard", "reduce_scatter"


def parameters_bytes(plan: TransformerPlan, stage: int) -> int:
    """Of weights on the device: whole, or the rank's part, in float32 unless the optimizer is on the host."""
    versions = 1 if plan.schedule.pipeline.flushes else 2  # that of the last update, and that of the one before
    if plan.sharding.state is not Sharded.PARAMETERS:
        return versions * stage_count(plan, stage).total * DTYPE_BYTES[plan.model.dtype]
    dtype = "float32" if plan.offload.optimizer is Store.DEVICE else plan.model.dtype
    return versions * owned_count(plan, stage).total * DTYPE_BYTES[dtype]


def state_bytes(plan: TransformerPlan, stage: int) -> tuple[int, ...]:
    """Of the optimizer on the device: two moments, and float32 weights where the weights are not."""
    if plan.offload.optimizer is not Store.DEVICE:
        return ()
    copies = ADAM_MOMENTS + (plan.sharding.state is not Sharded.PARAMETERS)
    return (owned_count(plan, stage).total * FLOAT_BYTES,) * copies


def gradients_bytes(plan: TransformerPlan, stage: int) -> tuple[int, ...]:
    """Of sums over micro-batches that are zeroed and stay; sums of parts come and go with their units."""
    if plan.sharding.reduces_every_pass or plan.sharding.release_gradients:
        return ()
    return (stage_count(plan, stage).total * DTYPE_BYTES[plan.schedule.gradient_dtype],)


# What each unit of a pass runs.
#
# What is alive between a layer's forward and its backward pass is what Korthikanti et al. 2022 (arXiv 2205.05198) count
# in section 4 (gnnperf.generate.transformer.activations), and statistics of norms, which they leave out. Python's names
# hold nothing beyond the last use; a stage's output goes when it is sent (ibid., appendix B).


def layer_uses(plan: TransformerPlan, layer: int = 0, *, recomputed: bool | None = None) -> Pair:
    """One layer of the model, from 0: it decides whether there are experts.

    `recomputed`: whether all of it is computed again before its backward pass; None: as in the plan, for all layers.
    """
    again = plan.schedule.recompute is Recompute.FULL if recomputed is None else recomputed
    forward, backward = uses_of(layer_forward(plan, layer)), uses_of(layer_backward(plan, layer))
    stream = sizes(plan).stream.num_bytes
    return Pair(forward, (*(forward if again else ()), *backward), {"x": stream, "dy": stream})


def embedding_uses(plan: TransformerPlan) -> Pair:
    """Before the first layer."""
    forward, backward = uses_of(embedding_forward(plan)), uses_of(embedding_backward(plan))
    return Pair(forward, backward, {"dy": sizes(plan).stream.num_bytes})


def head_uses(plan: TransformerPlan) -> Pair:
    """After the last layer."""
    return Pair(uses_of(head_forward(plan)), uses_of(head_backward(plan)), {"x": sizes(plan).stream.num_bytes})


@dataclass(frozen=True)
class Visited:
    """One unit of a pass."""

    unit: Unit
    pair: Pair  # what it takes and makes


class Pairs:
    """Pairs of a plan, each made once: profiles are kept by identity."""

    def __init__(self, plan: TransformerPlan) -> None:
        self._plan = plan
        self._known: dict[object, Pair] = {}
        stream = layer_uses(plan).enters["x"]
        self.received = Pair((use("recv", y=stream),), (use("send", "dy"),), {"dy": stream})
        self.sent = Pair((use("send", "x"),), (use("recv", dx=stream),), {"x": stream})
        self.first, self.last = (self._split(pair) for pair in (embedding_uses(plan), head_uses(plan)))

    def _split(self, pair: Pair) -> Pair:
        """In two parts where the order of passes has them."""
        return pair.split() if self._plan.schedule.pipeline.splits_backward else pair

    def layer(self, layer: int) -> Pair:
        """Of one layer of the model."""
        again = recomputed(self._plan, layer)
        key = (again, self._plan.has_experts(layer))
        if key not in self._known:
            self._known[key] = self._split(layer_uses(self._plan, layer, recomputed=again))
        return self._known[key]


def visited(plan: TransformerPlan, part: int, pairs: Pairs) -> tuple[Visited, ...]:
    """What a pass through a part of the model goes through, in forward order; messages belong to no unit."""
    last = plan.order.parts - 1
    return (
        Visited(FIRST, pairs.received if part else pairs.first),
        *(Visited(Unit(UnitKind.LAYER, i), pairs.layer(i)) for i in plan.layers_of_part(part)),
        Visited(LAST, pairs.last if part == last else pairs.sent),
    )


@dataclass
class Changes:
    """Emits the stretches of a stage and the changes between them."""

    plan: TransformerPlan
    whole: set[Unit] = field(default_factory=set)  # units whose parameters are whole now
    buffers: set[Unit] = field(default_factory=set)  # gather buffers that wait to be copied out
    _retained_buffer: Unit | None = None  # that forward keeps until the next one is copied out
    _sending: int = 0  # bytes of the send buffer
    _parts: set[Unit] = field(default_factory=set)  # whose part of gradients is there
    _visits: Counter[Unit] = field(default_factory=Counter)  # backward passes so far
    _pending: list[int] = field(default_factory=list)  # activations on their way out
    _outside: list[int] = field(default_factory=list)  # activations that have left the device

    def forward(self, at: Visited) -> Iterator[Stretch | Hold]:
        """One unit's forward pass."""
        gathers = self._gathers(at.unit, at.pair)
        if gathers and at.unit not in self.whole:
            yield from self._issue(at.unit)
            yield from self.end_of_forward()
            self._retained_buffer = at.unit
            self.buffers.discard(at.unit)
            self.whole.add(at.unit)
            yield Hold(COPY_OUT, HeldFor.GATHERED, self._whole(at.unit))
        yield Stretch(at.pair, False)
        if gathers and gradients.resharded(self.plan, at.unit):
            yield from self._reshard(at.unit)
        if at.unit.kind is UnitKind.LAYER and self.plan.offload.activations is not Store.DEVICE:
            yield from self._leave(retained_bytes(at.pair))

    def end_of_forward(self) -> Iterator[Hold]:
        """The gather buffer that is still there goes."""
        if self._retained_buffer is not None:
            yield Hold(RESHARD, HeldFor.GATHERED, -self._whole(self._retained_buffer))
            self._retained_buffer = None

    def backward(self, at: Visited, before: Visited | None, gradient: Gradient) -> Iterator[Stretch | Hold]:
        """One unit's backward pass, or a part of it; `before` is the unit that comes next."""
        released = self.plan.sharding.release_gradients and self._has_parameters(at.unit, at.pair)
        count, item = gradients.unit_parameters(self.plan, at.unit), DTYPE_BYTES[self.plan.schedule.gradient_dtype]
        if gradient is not Gradient.WEIGHTS:
            yield from self._begin_backward(at, before)
            if released:  # gradients of micro-batches are added up from the first one on
                if not self._visits[at.unit]:
                    yield Hold("aten::zero_", HeldFor.GRADIENTS, count.total * item)
                self._visits[at.unit] += 1
            yield Stretch(at.pair, True)
        if gradient is not Gradient.INPUT and at.pair.weights:
            yield Stretch(at.pair, True, True)
        if gradient is Gradient.INPUT:
            return
        if released and self._visits[at.unit] >= self.plan.num_micro_batches:  # the rank's part is left
            yield Hold(REDUCE, HeldFor.GRADIENTS, count.over(self.plan).total * item)
            yield Hold(REDUCE, HeldFor.GRADIENTS, -count.total * item)
        if self._gathers(at.unit, at.pair):
            yield from self._reshard(at.unit)
        if self.plan.sharding.reduces_every_pass and self._has_parameters(at.unit, at.pair):
            yield from self._reduce(at)

    def _begin_backward(self, at: Visited, before: Visited | None) -> Iterator[Hold]:
        """The unit's parameters and activations; those of the unit before are fetched ahead."""
        gathers = self._gathers(at.unit, at.pair)
        if gathers and at.unit not in self.whole:
            if at.unit not in self.buffers:
                yield from self._issue(at.unit)
            yield Hold(COPY_OUT, HeldFor.GATHERED, self._whole(at.unit))
            yield Hold(RESHARD, HeldFor.GATHERED, -self._whole(at.unit))
            self.buffers.discard(at.unit)
            self.whole.add(at.unit)
        if before is not None and self._gathers(before.unit, before.pair) and before.unit not in self.whole:
            yield from self._issue(before.unit)
        yield from self._return(before)

    def end_of_backward(self) -> Iterator[Hold]:
        """The last send buffer goes."""
        if self._sending:
            yield Hold(REDUCE, HeldFor.TEMPORARY, -self._sending)
            self._sending = 0

    def _gathers(self, unit: Unit, pair: Pair) -> bool:
        return self.plan.sharding.state is Sharded.PARAMETERS and self._has_parameters(unit, pair)

    def _has_parameters(self, unit: Unit, pair: Pair) -> bool:
        message = any(each.op in ("recv", "send") for each in pair.forward)
        return not message and gradients.unit_parameters(self.plan, unit).total > 0

    def _whole(self, unit: Unit) -> int:
        return gradients.unit_parameters(self.plan, unit).total * DTYPE_BYTES[self.plan.model.dtype]

    def _issue(self, unit: Unit) -> Iterator[Hold]:
        """The buffer of an all-gather; the rank's part is copied into it over a flat tensor."""
        part = gradients.unit_parameters(self.plan, unit).over(self.plan).total * DTYPE_BYTES[self.plan.model.dtype]
        yield Hold(GATHER, HeldFor.TEMPORARY, part)
        yield Hold(GATHER, HeldFor.GATHERED, self._whole(unit))
        yield Hold(GATHER, HeldFor.TEMPORARY, -part)
        self.buffers.add(unit)

    def _reshard(self, unit: Unit) -> Iterator[Hold]:
        yield Hold(RESHARD, HeldFor.GATHERED, -self._whole(unit))
        self.whole.discard(unit)

    def _reduce(self, at: Visited) -> Iterator[Hold]:
        """Gradients of the unit into a send buffer, and the rank's part out of it."""
        count = gradients.unit_parameters(self.plan, at.unit)
        if self._sending:
            yield Hold(REDUCE, HeldFor.TEMPORARY, -self._sending)
        sum_bytes = DTYPE_BYTES[self.plan.schedule.gradient_dtype]
        self._sending = count.total * sum_bytes
        yield Hold(REDUCE, HeldFor.TEMPORARY, self._sending)
        for made in (n for each in (*at.pair.backward, *at.pair.weights) for n in each.gradients_bytes):
            yield Hold(REDUCE, HeldFor.GRADIENTS, -made)
        part, held = count.over(self.plan).total, DTYPE_BYTES[held_gradient_dtype(self.plan)]
        first, on_host = at.unit not in self._parts, self.plan.offload.optimizer is not Store.DEVICE
        self._parts.add(at.unit)
        yield Hold(REDUCE, HeldFor.TEMPORARY, part * sum_bytes)
        if first and not on_host:
            yield Hold(REDUCE, HeldFor.GRADIENTS, part * held)
        yield Hold(REDUCE, HeldFor.TEMPORARY, -part * sum_bytes)

    def _leave(self, size: int) -> Iterator[Hold]:
        """What the layer before kept has left the device."""
        if self._pending:
            gone = self._pending.pop()
            self._outside.append(gone)
            yield Hold("Memcpy DtoH", HeldFor.ACTIVATIONS, -gone)
        self._pending.append(size)

    def _return(self, before: Visited | None) -> Iterator[Hold]:
        """What the unit before kept, which is fetched ahead; what has not left yet stays."""
        if before is not None and before.unit.kind is UnitKind.LAYER:
            if self._pending:
                self._pending.pop()
            elif self._outside:
                yield Hold("Memcpy HtoD", HeldFor.ACTIVATIONS, self._outside.pop())


def step_changes(plan: TransformerPlan, stage: int) -> Iterator[Stretch | Hold]:
    """All of a stage's step, in order."""
    pairs, changes = Pairs(plan), Changes(plan)
    order = stage_passes(plan.order, stage)
    for place, each in enumerate(order):
        units = visited(plan, plan.order.part(stage, each.chunk), pairs)
        if not each.backward:
            for unit in units:
                yield from changes.forward(unit)
            yield from changes.end_of_forward()
            continue
        for at in reversed(range(len(units))):
            if each.gradient is Gradient.WEIGHTS and not units[at].pair.weights:
                continue  # messages have no weights
            yield from changes.backward(units[at], units[at - 1] if at else None, each.gradient)
        # The end of autograd's run: no backward pass follows at once.
        if place + 1 == len(order) or order[place + 1].micro_batch != each.micro_batch:
            yield from changes.end_of_backward()
    # Gradients in float32 are made where they are not summed in it; they go when the next step begins.
    full, own = DTYPE_BYTES[held_gradient_dtype(plan)] == FLOAT_BYTES, owned_count(plan, stage).total * FLOAT_BYTES
    yield Stretch(Pair((Use("aten::copy_", gradients_bytes=() if full else (own,)),), ()), False)
