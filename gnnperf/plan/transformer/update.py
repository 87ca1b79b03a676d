"""After the last backward pass: gradients summed over replicas, then Adam on float32 copies (Micikevicius et al. 2018).

Parameters of a rank are taken as one flat tensor, as multi-tensor kernels take them.
"""

from __future__ import annotations

from gnnperf.graph.cost.op_call import DTYPE_BYTES, Tensor
from gnnperf.plan.transformer.items import Group, HostWait, Item, all_reduce, op
from gnnperf.plan.transformer.layer import MLP_FACTOR
from gnnperf.plan.transformer.plan import Reduction, TransformerPlan
from gnnperf.schema import Phase

O = Phase.OPTIMIZER  # noqa: E741
ADAM_LISTS = 4  # parameters, gradients, two moments


def layer_parameters(plan: TransformerPlan) -> int:
    """Of one layer on one rank: four matrices and their biases, two norms."""
    hidden, ways = plan.model.hidden, plan.parallelism.tensor
    shard = hidden // ways
    matrices = (4 + 2 * MLP_FACTOR) * hidden * shard
    return matrices + (3 + MLP_FACTOR) * shard + 2 * hidden + 4 * hidden


def embedding_parameters(plan: TransformerPlan) -> int:
    """The rows of the embedding that one rank holds."""
    return plan.vocabulary_per_rank * plan.model.hidden


def head_parameters(plan: TransformerPlan) -> int:
    """After the last layer: a norm, and a copy of the embedding unless the first stage is the last one too."""
    return 2 * plan.model.hidden + (embedding_parameters(plan) if plan.parallelism.pipeline > 1 else 0)


def stage_parameters(plan: TransformerPlan, stage: int) -> int:
    """Of one rank of a stage; a last stage of several holds a copy of the embedding."""
    stages, hidden = plan.parallelism.pipeline, plan.model.hidden
    count = plan.layers_per_chunk * plan.schedule.chunks * layer_parameters(plan)
    if stage == 0:
        count += embedding_parameters(plan) + plan.model.sequence * hidden
    if stage == stages - 1:
        count += head_parameters(plan)
    return count


def bucket(plan: TransformerPlan, parameters: int, *, last: bool) -> tuple[Item, ...]:
    """A bucket of gradients on its way while the backward pass goes on; the optimizer waits for the last one."""
    gradients = Tensor((parameters,), plan.schedule.gradient_dtype)
    return (all_reduce(Group.DATA, gradients, Phase.BACKWARD, awaited=last),)


def layers_per_bucket(plan: TransformerPlan) -> int:
    """Whole layers whose gradients fill a bucket."""
    layer_bytes = layer_parameters(plan) * DTYPE_BYTES[plan.schedule.gradient_dtype]
    return max(1, round(plan.schedule.bucket_bytes / layer_bytes))


def zero_gradients(plan: TransformerPlan, stage: int) -> tuple[Item, ...]:
    """Before the first forward pass."""
    return (op("aten::zero_", O, Tensor((stage_parameters(plan, stage),), plan.schedule.gradient_dtype)),)


def reduce_gradients(plan: TransformerPlan, stage: int) -> tuple[Item, ...]:
    """Over replicas, where it has not been done before; and of the embedding over both ends of the pipeline."""
    found: list[Item] = []
    ways, dtype = plan.parallelism, plan.schedule.gradient_dtype
    if ways.data > 1 and plan.schedule.reduction is Reduction.AT_END:
        gradients = Tensor((stage_parameters(plan, stage),), dtype)
        found += [op("aten::div_", O, gradients, None), all_reduce(Group.DATA, gradients, O)]
    if ways.pipeline > 1 and stage in (0, ways.pipeline - 1):
        found.append(all_reduce(Group.EMBEDDING, Tensor((embedding_parameters(plan),), dtype), O))
    return tuple(found)


def update(plan: TransformerPlan, stage: int) -> tuple[Item, ...]:
    """Gradients to float32 and unscaled, their norm (which the host waits for), clipping, Adam, weights back."""
    count = stage_parameters(plan, stage)
    half, full = Tensor((count,), plan.model.dtype), Tensor((count,), "float32")
    return (
        op("aten::copy_", O, full, Tensor((count,), plan.schedule.gradient_dtype)),
        op("aten::mul_", O, full, None),
        op("aten::norm", O, full),
        HostWait(O),
        op("aten::mul_", O, full, None),
        op("aten::_fused_adam_", O, *[[(count,)]] * ADAM_LISTS, None),
        op("aten::copy_", O, half, full),
    )
