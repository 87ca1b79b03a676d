"""Around: what a plan does before and after each unit of the model, next to the unit's own ops.

A unit is what parameters, gradients and activations come and go with: what is before the first layer, a layer, what is
after the last one. Settings that move them (sharding, buckets, offloading) each are an `Around`; a stage's program asks
all of them at every visit of a unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gnnperf.generate.transformer.items import Item
from gnnperf.generate.transformer.parameters import Count, first_parameters, head_parameters, parameters_of
from gnnperf.generate.transformer.plan import TransformerPlan

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
    """One pass of a micro-batch through one unit.

    Attributes:
        units: that the pass goes through on this stage, in forward order.
        place: of this one among them.
        micro_batch: which.
        first: whether it is the chunk's first pass in that direction.
        final: whether it is the chunk's last one.
        part: of the model, of all chunks of all stages; the last chunk's gradients come first.
    """

    units: tuple[Unit, ...]
    place: int
    micro_batch: int
    first: bool
    final: bool
    part: int

    @property
    def unit(self) -> Unit:
        """The unit that is visited."""
        return self.units[self.place]

    @property
    def before(self) -> Unit | None:
        """The unit before it in the model, which a backward pass visits next; None: there is none on this stage."""
        return self.units[self.place - 1] if self.place else None


class Around:
    """Nothing at all; each setting says something at some of these places."""

    def before_forward(self, at: Visit) -> Items:
        """Before a unit's forward ops."""
        return ()

    def after_forward(self, at: Visit) -> Items:
        """After them."""
        return ()

    def before_backward(self, at: Visit) -> Items:
        """Before a unit's backward ops, and what is computed again."""
        return ()

    def after_backward(self, at: Visit) -> Items:
        """After them."""
        return ()

    def after_passes(self) -> Items:
        """After all passes of the step."""
        return ()


def unit_parameters(plan: TransformerPlan, unit: Unit) -> Count:
    """That come and go with a unit; a tied embedding on the same stage takes the last norm along, as a root does."""
    if unit.kind is UnitKind.LAYER:
        return parameters_of(plan, unit.layer)
    tied = plan.block.tied_embedding and plan.parallelism.pipeline == 1
    if unit.kind is UnitKind.FIRST:
        return Count(first_parameters(plan) + (head_parameters(plan) if tied else 0))
    return Count(0 if tied else head_parameters(plan))
