"""Parameters in parts over the replicas: gathered before a unit's forward pass, and again before its backward pass.

    input copies  |in 0|  |in 1|             fully_shard of torch.distributed.fsdp (FSDP2), _fsdp_param_group.py
    gather        |= all-gather 0 =|= all-gather 1 =|
    compute                        |out 0|- layer 0 -|out 1|- layer 1 -|

Forward, the host issues a unit's gather when it comes to the unit; since it runs ahead, the gather runs beside the unit
before (implicit prefetch), but not before the copies out of the buffer before the last are done. Backward, the gather
of the unit before is issued as soon as this one's copies are out (explicit prefetch). Zhao et al. 2023, section 3.3.

Units are those of torchtitan: the embedding, each layer, and norm with logits, which are kept from forward to backward.
A tied embedding is the root's: gathered once, kept until its gradient. Volume of a micro-batch, of P parameters of
layers: 2 P gathered and P reduce-scattered (Rajbhandari et al. 2020, section 7.2.2), P (n - 1) / n on the wire each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gnnperf.core import Phase
from gnnperf.generate.transformer.around import FIRST, LAST, Around, Items, Unit, Visit, unit_parameters
from gnnperf.generate.transformer.items import Await, Group, Item, Lane, Record, Transfer, op
from gnnperf.generate.transformer.offload import Store
from gnnperf.generate.transformer.parameters import Count
from gnnperf.generate.transformer.plan import TransformerPlan
from gnnperf.graph import DTYPE_BYTES, Tensor

COPIED_IN, GATHERED, COPIED_OUT = "parameters copied in", "parameters gathered", "parameters copied out"


@dataclass(frozen=True)
class Gathering(Around):
    """Whole parameters where and when they are needed.

    Attributes:
        plan: with parameters in parts.
    """

    plan: TransformerPlan

    def before_forward(self, at: Visit) -> Items:
        """The unit's gather, and the wait for it. Its buffer waits for the copies out of the one before."""
        if not self._count(at.unit).total:
            return ()
        return (*self._issue(at.unit, Phase.FORWARD), *_reuse(), *self._whole(at.unit, Phase.FORWARD))

    def before_backward(self, at: Visit) -> Items:
        """The wait for the unit's gather, which the unit after it has issued, and the gather of the one before."""
        found: list[Item] = []
        if self._dropped(at.unit):
            found += [*self._whole(at.unit, Phase.BACKWARD), *_reuse()]
        if at.before is not None and self._dropped(at.before):
            found += self._issue(at.before, Phase.BACKWARD)
        return found

    def _dropped(self, unit: Unit) -> bool:
        """Whether the unit's parameters are dropped after its forward pass."""
        kept = unit == LAST or (unit == FIRST and self.plan.block.tied_embedding)
        return self.plan.sharding.reshard_after_forward and not kept and self._count(unit).total > 0

    def _count(self, unit: Unit) -> Count:
        return unit_parameters(self.plan, unit)

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


def _reuse() -> tuple[Item, ...]:
    """Gathers to come wait for the latest copies out of a buffer."""
    return (Await(Lane.GATHER_INPUT, COPIED_OUT), Await(Lane.GATHER, COPIED_OUT))
