"""After the last backward pass: gradients summed over replicas, then Adam on float32 copies (Micikevicius et al. 2018).

Parameters of a rank are taken as one flat tensor, as multi-tensor kernels take them. With sharding a rank has the
gradients of its part, updates that, and gathers the weights of all (Rajbhandari et al. 2020, section 5.1; Megatron-LM's
DistributedOptimizer); weights that are gathered where they are needed stay in parts.
"""

from __future__ import annotations

from collections.abc import Iterator

from gnnperf.core import Phase
from gnnperf.generate.transformer.copies import Store
from gnnperf.generate.transformer.gradients import held_gradient_dtype, summed
from gnnperf.generate.transformer.host_update import host_update
from gnnperf.generate.transformer.items import Group, HostWait, Item, all_gather, all_reduce, op
from gnnperf.generate.transformer.parameters import (
    Count,
    embedding_parameters,
    head_parameters,
    layer_parameters,
    layers_of,
    norm_parameters,
    owned_count,
    stage_count,
    stage_parameters,
)
from gnnperf.generate.transformer.plan import Reduction, Sharded, TransformerPlan
from gnnperf.graph import Tensor

__all__ = ["embedding_parameters", "head_parameters", "layer_parameters", "reduce_gradients", "stage_parameters",
           "update", "zero_gradients"]  # fmt: skip

O = Phase.OPTIMIZER  # noqa: E741
ADAM_LISTS = 4  # parameters, gradients, two moments


def zero_gradients(plan: TransformerPlan, stage: int) -> tuple[Item, ...]:
    """Before the first forward pass; gradients that leave in every pass are dropped, not zeroed."""
    if plan.sharding.reduces_every_pass:
        return ()
    return (op("aten::zero_", O, Tensor((stage_parameters(plan, stage),), plan.schedule.gradient_dtype)),)


def reduce_gradients(plan: TransformerPlan, stage: int) -> tuple[Item, ...]:
    """Over replicas, where it has not been done before; of a tied embedding over both ends of the pipeline."""
    result: list[Item] = []
    ways, dtype = plan.parallelism, plan.schedule.gradient_dtype
    at_end = plan.schedule.reduction is Reduction.AT_END and not plan.sharding.reduces_every_pass
    if plan.splits_sequence:
        result.append(all_reduce(Group.TENSOR, Tensor((_norms(plan, stage),), dtype), O))
    if ways.data > 1 and at_end:
        count = stage_count(plan, stage)
        result += [op("aten::div_", O, Tensor((count.total,), dtype), None), *summed(plan, count, O)]
    if ways.pipeline > 1 and plan.block.tied_embedding and stage in (0, ways.pipeline - 1):
        result.append(all_reduce(Group.EMBEDDING, Tensor((embedding_parameters(plan),), dtype), O))
    return tuple(result)


def _norms(plan: TransformerPlan, stage: int) -> int:
    """Parameters of norms on a stage: each tensor rank has seen a part of the sequence (Megatron-LM sums them)."""
    last = stage == plan.parallelism.pipeline - 1
    return norm_parameters(plan) * (2 * len(layers_of(plan, stage)) + int(last))


def update(plan: TransformerPlan, stage: int) -> tuple[Item, ...]:
    """Gradients to float32 and unscaled, their norm (which the host waits for), clipping, Adam, weights back."""
    own = owned_count(plan, stage)
    if plan.offload.optimizer is not Store.DEVICE:
        return (*_norm(plan, own.total), *host_update(plan, stage), *_gathered(plan, own))
    return (*_norm(plan, own.total), *_adam(plan, own.total), *_gathered(plan, own))


def _norm(plan: TransformerPlan, count: int) -> Iterator[Item]:
    full, dtype = Tensor((count,), "float32"), held_gradient_dtype(plan)
    if not _holds_float32(plan):
        yield op("aten::copy_", O, full, Tensor((count,), dtype))
        yield op("aten::mul_", O, full, None)
    yield op("aten::norm", O, full)
    if plan.sharding.shards_update:
        yield all_reduce(Group.DATA, Tensor((1,), "float32"), O)
    yield HostWait(O)


def _adam(plan: TransformerPlan, count: int) -> Iterator[Item]:
    full, half = Tensor((count,), "float32"), Tensor((count,), plan.model.dtype)
    yield op("aten::mul_", O, full, None)
    yield op("aten::_fused_adam_", O, *[[(count,)]] * ADAM_LISTS, None)
    if not _holds_float32(plan):
        yield op("aten::copy_", O, half, full)


def _holds_float32(plan: TransformerPlan) -> bool:
    """Whether parts are float32 themselves: gathers cast them, and there is no loss scale to take out."""
    return plan.sharding.state is Sharded.PARAMETERS


def _gathered(plan: TransformerPlan, own: Count) -> Iterator[Item]:
    """Updated weights of all replicas, where they stay whole."""
    if plan.sharding.state not in (Sharded.OPTIMIZER, Sharded.GRADIENTS):
        return
    dtype, ways = plan.model.dtype, plan.parallelism
    yield all_gather(Group.DATA, Tensor((own.shared,), dtype), O)
    if own.expert and ways.expert_data > 1:
        yield all_gather(Group.EXPERT_DATA, Tensor((own.expert,), dtype), O)
