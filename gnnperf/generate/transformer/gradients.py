"""Gradients on their way over replicas: at the end, in buckets, or unit by unit; and the update after them.

          one rank sends   collective
replicas  whole sum        all-reduce (2 P (n - 1) / n on the wire)
sharded   its part         reduce-scatter (P (n - 1) / n); the parameters' all-gather after the update sends as much
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gnnperf.core import Phase
from gnnperf.generate.transformer import items, sizes
from gnnperf.generate.transformer.items import Await, Group, Item, Lane, Record, Store, Transfer, collective, op
from gnnperf.generate.transformer.plan import Reduction, Sharded, TransformerPlan
from gnnperf.generate.transformer.sizes import Count, layers_of, owned_count, parameters_of, stage_count
from gnnperf.graph import DTYPE_BYTES, Tensor

# Around: what a plan does before and after each unit of the model, next to the unit's own ops.
#
# A unit is what parameters, gradients and activations come and go with: what is before the first layer, a layer,
# what is after the last one. Settings that move them (sharding, buckets, offloading) each are an `Around`; a stage's
# program asks all of them at every visit of a unit.

Items = Sequence[Item]


class UnitKind(StrEnum):
    """Which part of the model."""

    FIRST = "first"
    LAYER = "layer"
    LAST = "last"


@dataclass(frozen=True)
class Unit:
    """A part of the model; `layer` is the layer's number in the model, -1 of the ends."""

    kind: UnitKind
    layer: int = -1


FIRST, LAST = Unit(UnitKind.FIRST), Unit(UnitKind.LAST)


@dataclass(frozen=True)
class Visit:
    """One pass of a micro-batch through one unit."""

    units: tuple[Unit, ...]  # that the pass goes through on this stage, in forward order
    place: int  # of this one among them
    micro_batch: int
    first: bool  # whether it is the chunk's first pass in that direction
    final: bool  # whether it is the chunk's last one
    part: int  # of the model, of all chunks of all stages; the last chunk's gradients come first

    @property
    def unit(self) -> Unit:
        """The unit that is visited."""
        return self.units[self.place]

    @property
    def before(self) -> Unit | None:
        """The unit before it in the model, which a backward pass visits next; None: there is none on this stage."""
        return self.units[self.place - 1] if self.place else None


@dataclass(frozen=True)
class Around:
    """Nothing at all; each setting states something at some of these places."""

    plan: TransformerPlan  # that has the setting

    def before_forward(self, at: Visit) -> Items:
        """Before a unit's forward ops; the others after them, and around backward ops and what is computed again."""
        return ()

    after_forward = before_backward = after_backward = before_forward

    def after_passes(self) -> Items:
        """After all passes of the step."""
        return ()


def unit_parameters(plan: TransformerPlan, unit: Unit) -> Count:
    """That come and go with a unit; a tied embedding on the same stage takes the last norm along, as a root does."""
    if unit.kind is UnitKind.LAYER:
        return parameters_of(plan, unit.layer)
    tied = plan.block.tied_embedding and plan.last_stage == 0
    if unit.kind is UnitKind.FIRST:
        return Count(sizes.first_parameters(plan) + (sizes.head_parameters(plan) if tied else 0))
    return Count(0 if tied else sizes.head_parameters(plan))


def resharded(plan: TransformerPlan, unit: Unit) -> bool:
    """Whether a unit's gathered parameters are dropped after its forward pass."""
    retained = unit == LAST or (unit == FIRST and plan.block.tied_embedding)
    return plan.sharding.reshard_after_forward and not retained


B = Phase.BACKWARD
REDUCED, SCATTERED = "gradients reduced", "gradients scattered"


def summed(plan: TransformerPlan, count: Count, phase: Phase, *, awaited: bool = True) -> Iterator[Item]:
    """Gradients over the replicas that hold the same parameters."""
    kind = "reduce_scatter" if plan.sharding.shards_update else "all_reduce"
    ways, dtype = plan.parallelism, plan.schedule.gradient_dtype
    for group, number, replicas in (
        (Group.DATA, count.shared, ways.data_context),
        (Group.EXPERT_DATA, count.expert, ways.expert_data),
    ):
        if number and replicas > 1:
            yield Transfer(kind, group, float(number * DTYPE_BYTES[dtype]), dtype, phase, awaited)


def layers_per_bucket(plan: TransformerPlan) -> int:
    """Whole layers whose gradients fill a bucket; those of the last one, which has experts if any has."""
    layer_bytes = parameters_of(plan, plan.model.layers - 1).total * DTYPE_BYTES[plan.schedule.gradient_dtype]
    return max(1, round(plan.schedule.bucket_bytes / layer_bytes))


class Buckets(Around):
    """Sums set off while the last backward pass runs; the optimizer waits for the last one."""

    def after_backward(self, at: Visit) -> Items:
        """A bucket, where one is full or the chunk ends."""
        if not at.final:
            return ()
        if at.unit.kind is not UnitKind.LAYER:
            end = sizes.first_parameters(self.plan) if at.unit == FIRST else sizes.head_parameters(self.plan)
            return tuple(summed(self.plan, Count(end), B, awaited=at.unit == FIRST))
        layers, final = bucket_layers(self.plan, at, layers_per_bucket(self.plan))
        filled = sum((parameters_of(self.plan, layer) for layer in layers), Count(0))
        return tuple(summed(self.plan, filled, B, awaited=final))


def bucket_layers(plan: TransformerPlan, at: Visit, step: int) -> tuple[range, bool]:
    """Layers whose gradients go after the visit of a layer, none until `step` are there; whether they are the last."""
    own, latest = at.unit.layer, at.units[-1 - (at.units[-1] == LAST)].layer
    done, ends = latest - own + 1, at.place == 0 or at.before == FIRST  # of the chunk, so far
    if done % step and not ends:
        return range(0), False
    final = ends and 0 < at.part < plan.parallelism.pipeline  # the first chunk ends with the embedding
    return range(own, own + (done - 1) % step + 1), final


class Scattering(Around):
    """Gradients of each unit reduce-scattered in every backward pass, and added up in parts.

    As fully_shard does: copied into one buffer in the dtype of the sum, which is used again only when the unit before
    has been sent (`_fsdp_param_group.py`, post_backward); what arrives is added to the rank's part on that stream.
    """

    def after_backward(self, at: Visit) -> Items:
        """The unit's gradients."""
        count = unit_parameters(self.plan, at.unit)
        if not count.total:
            return ()
        wide, half = (Tensor((count.total,), d) for d in (self.plan.schedule.gradient_dtype, self.plan.model.dtype))
        return (
            Await(Lane.COMPUTE, SCATTERED),
            op("aten::copy_", B, wide, half),
            *summed(self.plan, count, B, awaited=False),
            Record(Lane.DATA, SCATTERED),
            *self._retained(count.over(self.plan).total, first=at.first),
        )

    def after_passes(self) -> Items:
        """The update waits for all of them."""
        return (Record(Lane.DATA, REDUCED), Await(Lane.COMPUTE, REDUCED))

    def _retained(self, part: int, *, first: bool) -> Iterator[Item]:
        """The rank's part, in the dtype of its parameters, and added to that of earlier micro-batches."""
        sent, held = self.plan.schedule.gradient_dtype, held_gradient_dtype(self.plan)
        if sent != held:
            yield op("aten::copy_", B, Tensor((part,), held), Tensor((part,), sent), lane=Lane.DATA)
        if not first:
            yield op("aten::add_", B, Tensor((part,), held), Tensor((part,), held), lane=Lane.DATA)


def held_gradient_dtype(plan: TransformerPlan) -> str:
    """In which a rank holds what it updates from: fully_shard's parts are float32, as the parameters are."""
    return "float32" if plan.sharding.state is Sharded.PARAMETERS else plan.schedule.gradient_dtype


# After the last backward pass: gradients summed over replicas, then Adam on float32 copies (Micikevicius et al. 2018).
#
# Parameters of a rank are taken as one flat tensor, as multi-tensor kernels take them. With sharding a rank has the
# gradients of its part, updates that, and gathers the weights of all (Rajbhandari et al. 2020, section 5.1;
# Megatron-LM's DistributedOptimizer); weights that are gathered where they are needed stay in parts.

O = Phase.OPTIMIZER  # noqa: E741
ADAM_LISTS = 4  # parameters, gradients, two moments


def zero_gradients(plan: TransformerPlan, stage: int) -> tuple[Item, ...]:
    """Before the first forward pass; gradients that leave in every pass are dropped, not zeroed."""
    if plan.sharding.reduces_every_pass:
        return ()
    return (op("aten::zero_", O, Tensor((stage_count(plan, stage).total,), plan.schedule.gradient_dtype)),)


def reduce_gradients(plan: TransformerPlan, stage: int) -> tuple[Item, ...]:
    """Over replicas, where it has not been done before; of a tied embedding over both ends of the pipeline."""
    result: list[Item] = []
    ways, dtype = plan.parallelism, plan.schedule.gradient_dtype
    at_end = plan.schedule.reduction is Reduction.AT_END and not plan.sharding.reduces_every_pass
    if plan.splits_sequence:
        norms = 2 * len(layers_of(plan, stage)) + (stage == plan.last_stage)  # of parts of the sequence
        result.append(collective("all_reduce", Group.TENSOR, Tensor((norms * sizes.norm_parameters(plan),), dtype), O))
    if ways.data_context > 1 and at_end:
        count = stage_count(plan, stage)
        result += [op("aten::div_", O, Tensor((count.total,), dtype), None), *summed(plan, count, O)]
    if plan.last_stage and plan.block.tied_embedding and stage in (0, plan.last_stage):
        result.append(collective("all_reduce", Group.EMBEDDING, Tensor((sizes.embedding_parameters(plan),), dtype), O))
    return tuple(result)


def update(plan: TransformerPlan, stage: int) -> tuple[Item, ...]:
    """Gradients to float32 and unscaled, their norm (which the host waits for), clipping, Adam, weights back."""
    own, on_device = owned_count(plan, stage), plan.offload.optimizer is Store.DEVICE
    steps = _adam(plan, own.total) if on_device else host_update(plan, stage)
    return (*_norm(plan, own.total), *steps, *_gathered(plan, own))


def _norm(plan: TransformerPlan, count: int) -> Iterator[Item]:
    full, dtype = Tensor((count,), "float32"), held_gradient_dtype(plan)
    if plan.sharding.state is not Sharded.PARAMETERS:  # whose parts are float32, without a loss scale to take out
        yield op("aten::copy_", O, full, Tensor((count,), dtype))
        yield op("aten::mul_", O, full, None)
    yield op("aten::norm", O, full)
    if plan.sharding.shards_update:
        yield collective("all_reduce", Group.DATA, Tensor((1,), "float32"), O)
    yield items.HostWait(O)


def _adam(plan: TransformerPlan, count: int) -> Iterator[Item]:
    full, half = Tensor((count,), "float32"), Tensor((count,), plan.model.dtype)
    yield op("aten::mul_", O, full, None)
    yield op("aten::_fused_adam_", O, *[[(count,)]] * ADAM_LISTS, None)
    if plan.sharding.state is not Sharded.PARAMETERS:  # gathers cast those
        yield op("aten::copy_", O, half, full)


def _gathered(plan: TransformerPlan, own: Count) -> Iterator[Item]:
    """Updated weights of all replicas, where they stay whole."""
    if plan.sharding.state not in (Sharded.OPTIMIZER, Sharded.GRADIENTS):
        return
    dtype, ways = plan.model.dtype, plan.parallelism
    yield collective("all_gather", Group.DATA, Tensor((own.shared,), dtype), O)
    if own.expert and ways.expert_data > 1:
        yield collective("all_gather", Group.EXPERT_DATA, Tensor((own.expert,), dtype), O)


# Adam on the host: gradients out, weights updated by its cores, and back (Ren et al. 2021, ZeRO-Offload).
#
#     out      |= gradients of unit n =|= n-1 =| ...           behind their reduction, in the last backward pass
#     host                                     |- Adam 0 -|- Adam 1 -| ...
#     in                                                  |= weights 0 =|= 1 =|
#     storage  |= read 0 =|                    |= read 1 =|= write 0 =|     with drives: float32 weights, two moments
#
# The update goes in as many pieces as the stage has layers: while the host updates one, the last one's weights are
# copied to the device, and with drives the next one is read and the last one written (Rajbhandari et al. 2021,
# ZeRO-Infinity, section 6.3). The host's work is priced by its memory: per parameter 4 bytes of gradient are read,
# 12 of weight and moments read and written, and a weight of the model's dtype written.

HOST_ADAM = "cpu_adam"
STATE_BYTES = 3 * 4  # float32 weight, two moments
GRADIENT_BYTES = 4  # float32 (DeepSpeed casts them in the host's buffer)
PART_REDUCED, OUT, BACK, READ = "part reduced", "gradients on the host", "weights on the device", "state read"


class GradientOffload(Around):
    """Gradients copied out behind their reduction, unit by unit."""

    def after_backward(self, at: Visit) -> Items:
        """The unit's part, when it is whole."""
        count = unit_parameters(self.plan, at.unit).over(self.plan).total
        if not at.final or not count:
            return ()
        return (
            Record(Lane.DATA, PART_REDUCED),
            Await(Lane.OUT, PART_REDUCED),
            _gradients(self.plan, count, Phase.BACKWARD),
        )


def host_update(plan: TransformerPlan, stage: int) -> Iterator[Item]:
    """From gradients to weights on the device."""
    count, pieces = owned_count(plan, stage).total, len(layers_of(plan, stage))
    each = math.ceil(count / pieces)
    if not plan.sharding.reduces_every_pass:
        yield Record(Lane.COMPUTE, PART_REDUCED)
        yield Await(Lane.OUT, PART_REDUCED)
        yield _gradients(plan, count, O)
    yield Record(Lane.OUT, OUT)
    yield from _read(plan, each, 0)
    yield items.HostAwait(OUT, O)
    for piece in range(pieces):
        yield from _piece(plan, each, piece, last=piece == pieces - 1)
    yield Record(Lane.IN, BACK)
    yield Await(Lane.COMPUTE, BACK)


def _piece(plan: TransformerPlan, count: int, piece: int, *, last: bool) -> Iterator[Item]:
    on_drive, dtype = plan.offload.optimizer is Store.NVME, plan.model.dtype
    if not last:
        yield from _read(plan, count, piece + 1)
    if on_drive:
        yield items.HostAwait(f"{READ} {piece}", O)
    host_bytes = count * (GRADIENT_BYTES + 2 * STATE_BYTES + DTYPE_BYTES[dtype])  # that the host reads and writes
    yield items.HostWork(HOST_ADAM, float(host_bytes), O)
    yield items.Copy(items.TO_DEVICE, float(count * DTYPE_BYTES[dtype]), dtype, O, Lane.IN)
    if on_drive:
        yield items.Copy(items.TO_STORAGE, float(count * STATE_BYTES), "float32", O, Lane.STORAGE_WRITE)


def _read(plan: TransformerPlan, count: int, piece: int) -> Iterator[Item]:
    if plan.offload.optimizer is Store.NVME:
        yield items.Copy(items.FROM_STORAGE, float(count * STATE_BYTES), "float32", O, Lane.STORAGE_READ)
        yield Record(Lane.STORAGE_READ, f"{READ} {piece}")


def _gradients(plan: TransformerPlan, count: int, phase: Phase) -> items.Copy:
    dtype = held_gradient_dtype(plan)
    return items.Copy(items.TO_HOST, float(count * DTYPE_BYTES[dtype]), dtype, phase, Lane.OUT)
