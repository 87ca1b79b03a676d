"""Gradients on their way over replicas: at the end, in buckets, or unit by unit in every backward pass.

          one rank sends   collective
replicas  whole sum        all-reduce (2 P (n - 1) / n on the wire)
sharded   its part         reduce-scatter (P (n - 1) / n); the parameters' all-gather after the update sends as much
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gnnperf.core import Phase
from gnnperf.generate.transformer.items import Await, Group, Item, Lane, Record, Transfer, op
from gnnperf.generate.transformer.plan import Sharded, TransformerPlan
from gnnperf.generate.transformer.sizes import Count, first_parameters, head_parameters, parameters_of
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
        return Count(first_parameters(plan) + (head_parameters(plan) if tied else 0))
    return Count(0 if tied else head_parameters(plan))


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
            end = first_parameters(self.plan) if at.unit == FIRST else head_parameters(self.plan)
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
