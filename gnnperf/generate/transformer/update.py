"""After the last backward pass: gradients summed over replicas, then Adam on float32 copies (Micikevicius et al. 2018).

Parameters of a rank are taken as one flat tensor, as multi-tensor kernels take them. With sharding a rank has the
gradients of its part, updates that, and gathers the weights of all (Rajbhandari et al. 2020, section 5.1; Megatron-LM's
DistributedOptimizer); weights that are gathered where they are needed stay in parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from gnnperf.core import Phase
from gnnperf.generate.transformer.gradients import Around, Items, Visit, held_gradient_dtype, summed, unit_parameters
from gnnperf.generate.transformer.items import (
    FROM_STORAGE,
    TO_DEVICE,
    TO_HOST,
    TO_STORAGE,
    Await,
    Copy,
    Group,
    HostAwait,
    HostWait,
    HostWork,
    Item,
    Lane,
    Record,
    Store,
    collective,
    op,
)
from gnnperf.generate.transformer.plan import Reduction, Sharded, TransformerPlan
from gnnperf.generate.transformer.sizes import (
    Count,
    embedding_parameters,
    layers_of,
    norm_parameters,
    owned_count,
    stage_count,
)
from gnnperf.graph import DTYPE_BYTES, Tensor

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
        result.append(collective("all_reduce", Group.TENSOR, Tensor((norms * norm_parameters(plan),), dtype), O))
    if ways.data_context > 1 and at_end:
        count = stage_count(plan, stage)
        result += [op("aten::div_", O, Tensor((count.total,), dtype), None), *summed(plan, count, O)]
    if plan.last_stage and plan.block.tied_embedding and stage in (0, plan.last_stage):
        result.append(collective("all_reduce", Group.EMBEDDING, Tensor((embedding_parameters(plan),), dtype), O))
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
    yield HostWait(O)


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
REDUCED, OUT, BACK, READ = "part reduced", "gradients on the host", "weights on the device", "state read"


class GradientOffload(Around):
    """Gradients copied out behind their reduction, unit by unit."""

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
    host_bytes = count * (GRADIENT_BYTES + 2 * STATE_BYTES + DTYPE_BYTES[dtype])  # that the host reads and writes
    yield HostWork(HOST_ADAM, float(host_bytes), O)
    yield Copy(TO_DEVICE, float(count * DTYPE_BYTES[dtype]), dtype, O, Lane.IN)
    if on_drive:
        yield Copy(TO_STORAGE, float(count * STATE_BYTES), "float32", O, Lane.STORAGE_WRITE)


def _read(plan: TransformerPlan, count: int, piece: int) -> Iterator[Item]:
    if plan.offload.optimizer is Store.NVME:
        yield Copy(FROM_STORAGE, float(count * STATE_BYTES), "float32", O, Lane.STORAGE_READ)
        yield Record(Lane.STORAGE_READ, f"{READ} {piece}")


def _gradients(plan: TransformerPlan, count: int, phase: Phase) -> Copy:
    dtype = held_gradient_dtype(plan)
    return Copy(TO_HOST, float(count * DTYPE_BYTES[dtype]), dtype, phase, Lane.OUT)
