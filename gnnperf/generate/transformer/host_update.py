"""Adam on the host: gradients out, weights updated by its cores, and back (Ren et al. 2021, ZeRO-Offload).

    out      |= gradients of unit n =|= n-1 =| ...           behind their reduction, in the last backward pass
    host                                     |- Adam 0 -|- Adam 1 -| ...
    in                                                  |= weights 0 =|= 1 =|
    storage  |= read 0 =|                    |= read 1 =|= write 0 =|     with the drives: float32 weights, two moments

The update goes in as many pieces as the stage has layers: while the host updates one, the last one's weights are copied
to the device, and with drives the next one is read and the last one written (Rajbhandari et al. 2021, ZeRO-Infinity,
section 6.3). The host's work is priced by its memory: per parameter 4 bytes of gradient are read, 12 of weight and
moments read and written, and a weight of the model's dtype written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gnnperf.core import Phase
from gnnperf.generate.transformer.around import Around, Items, Visit, unit_parameters
from gnnperf.generate.transformer.copies import FROM_STORAGE, TO_DEVICE, TO_HOST, TO_STORAGE, Store
from gnnperf.generate.transformer.gradients import held_gradient_dtype
from gnnperf.generate.transformer.items import Await, Copy, HostAwait, HostWork, Item, Lane, Record
from gnnperf.generate.transformer.parameters import layers_of, owned_count
from gnnperf.generate.transformer.plan import TransformerPlan
from gnnperf.graph import DTYPE_BYTES

O = Phase.OPTIMIZER  # noqa: E741
HOST_ADAM = "cpu_adam"
STATE_BYTES = 3 * 4  # float32 weight, two moments
GRADIENT_BYTES = 4  # float32 (DeepSpeed casts them in the host's buffer)
REDUCED, OUT, BACK, READ = "part reduced", "gradients on the host", "weights on the device", "state read"


@dataclass(frozen=True)
class GradientOffload(Around):
    """Gradients copied out behind their reduction, unit by unit.

    Attributes:
        plan: with the optimizer on the host, and gradients reduced in every pass.
    """

    plan: TransformerPlan

    def after_backward(self, at: Visit) -> Items:
        """The unit's part, when it is whole."""
        count = unit_parameters(self.plan, at.unit).over(self.plan).total
        if not at.final or not count:
            return ()
        return (Record(Lane.DATA, REDUCED), Await(Lane.OUT, REDUCED), _gradients(self.plan, count, Phase.BACKWARD))


def host_update(plan: TransformerPlan, stage: int) -> Iterator[Item]:
    """From gradients to weights on the device."""
    count, pieces = owned_count(plan, stage).total, len(layers_of(plan, stage))
    each = math.ceil(count / pieces)
    if not plan.sharding.reduces_every_pass:
        yield Record(Lane.COMPUTE, REDUCED)
        yield Await(Lane.OUT, REDUCED)
        yield _gradients(plan, count, O)
    yield Record(Lane.OUT, OUT)
    yield from _read(plan, each, 0)
    yield HostAwait(OUT, O)
    for piece in range(pieces):
        yield from _piece(plan, each, piece, last=piece == pieces - 1)
    yield Record(Lane.IN, BACK)
    yield Await(Lane.COMPUTE, BACK)


def _piece(plan: TransformerPlan, count: int, piece: int, *, last: bool) -> Iterator[Item]:
    on_drive, dtype = plan.offload.optimizer is Store.NVME, plan.model.dtype
    if not last:
        yield from _read(plan, count, piece + 1)
    if on_drive:
        yield HostAwait(f"{READ} {piece}", O)
    yield HostWork(HOST_ADAM, host_bytes(plan, count), O)
    yield Copy(TO_DEVICE, float(count * DTYPE_BYTES[dtype]), dtype, O, Lane.IN)
    if on_drive:
        yield Copy(TO_STORAGE, float(count * STATE_BYTES), "float32", O, Lane.STORAGE_WRITE)


def host_bytes(plan: TransformerPlan, count: int) -> float:
    """That the host reads and writes for so many parameters."""
    return float(count * (GRADIENT_BYTES + 2 * STATE_BYTES + DTYPE_BYTES[plan.model.dtype]))


def _read(plan: TransformerPlan, count: int, piece: int) -> Iterator[Item]:
    if plan.offload.optimizer is Store.NVME:
        yield Copy(FROM_STORAGE, float(count * STATE_BYTES), "float32", O, Lane.STORAGE_READ)
        yield Record(Lane.STORAGE_READ, f"{READ} {piece}")


def _gradients(plan: TransformerPlan, count: int, phase: Phase) -> Copy:
    dtype = held_gradient_dtype(plan)
    return Copy(TO_HOST, float(count * DTYPE_BYTES[dtype]), dtype, phase, Lane.OUT)
