"""What layers keep, copied out behind their forward pass and fetched before their backward pass.

    compute  |- layer 0 -|- layer 1 -|..waits for out 0..|- layer 2 -|    ...  |- back 2 -|- back 1 -|
    out                  |== out 0 ==|== out 1 ==|
    in                                                                         |== in 1 ==|== in 0 ==|

A layer begins when what the layer before the last kept has left the device, so that at most two layers' activations lie
there; backward, the layer before is fetched while one runs (TransformerEngine, cpu_offload.py: double buffers, with
synchronize_on_group_commit_forward and bulk_reload_group).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gnnperf.core import Phase
from gnnperf.generate.transformer.activations import kept_bytes
from gnnperf.generate.transformer.around import Around, Items, Unit, UnitKind, Visit
from gnnperf.generate.transformer.copies import copy_in, copy_out, fetching, stored
from gnnperf.generate.transformer.items import Await, Item, Lane, Record
from gnnperf.generate.transformer.plan import TransformerPlan

COMPUTED, LEFT, FETCHED, STARTED = "computed", "left the device", "fetched", "backward started"


@dataclass(frozen=True)
class ActivationOffload(Around):
    """Activations on the host or on its drives between forward and backward.

    Attributes:
        plan: whose offload.activations is not the device.
    """

    plan: TransformerPlan

    def after_forward(self, at: Visit) -> Items:
        """Out; then compute waits for the one before, whose place is taken next."""
        size = self._kept(at.unit)
        if not size:
            return ()
        store = self.plan.offload.activations
        return (
            Record(Lane.COMPUTE, COMPUTED),
            Await(Lane.OUT, COMPUTED),
            *copy_out(store, size, self.plan.model.dtype, Phase.FORWARD),
            Await(Lane.COMPUTE, LEFT),  # of the layer before: this one's event is recorded below
            Record(Lane.OUT, LEFT),
            Record(stored(store), _stored(at, at.unit)),
        )

    def before_backward(self, at: Visit) -> Items:
        """The unit's own, fetched before; then the one of the unit before it."""
        found: list[Item] = []
        if at.place == len(at.units) - 1 and self._kept(at.unit):
            found += self._fetch(at, at.unit)  # nobody came before who could have
        if self._kept(at.unit):
            found.append(Await(Lane.COMPUTE, FETCHED))
        if at.before is not None and self._kept(at.before):
            found += [Record(Lane.COMPUTE, STARTED), Await(fetching(self.plan.offload.activations), STARTED)]
            found += self._fetch(at, at.before)
        return found

    def _fetch(self, at: Visit, unit: Unit) -> Iterator[Item]:
        store = self.plan.offload.activations
        yield Await(fetching(store), _stored(at, unit))
        yield from copy_in(store, self._kept(unit), self.plan.model.dtype, Phase.BACKWARD)
        yield Record(Lane.IN, FETCHED)

    def _kept(self, unit: Unit) -> float:
        """Bytes; 0 of the ends, whose backward pass follows at once or needs token numbers only."""
        return kept_bytes(self.plan, unit.layer) if unit.kind is UnitKind.LAYER else 0.0


def _stored(at: Visit, unit: Unit) -> str:
    return f"{LEFT}: micro-batch {at.micro_batch}, layer {unit.layer}"
