"""What the first stage has before its layers and the last one after them: embedding, logits, cross entropy.

Both ends hold the embedding, a part of its rows per tensor-parallel rank. The cross entropy is computed in float32 on
each rank's columns, with three sums over ranks of a number per token (Shoeybi et al. 2019, section 3).
"""

from __future__ import annotations

from gnnperf.graph.cost.op_call import Tensor
from gnnperf.plan.transformer.items import Group, Item, all_reduce, fused, op
from gnnperf.plan.transformer.layer import B, F, accumulate, layer_norm, layer_norm_backward, product_backward, sizes
from gnnperf.plan.transformer.plan import TransformerPlan


def embedding_forward(plan: TransformerPlan) -> tuple[Item, ...]:
    """Tokens and positions to activations."""
    s, batch = sizes(plan), plan.schedule.micro_batch
    x, ids = s.half(s.tokens, s.hidden), Tensor((batch, s.sequence), "int64")
    summed = (all_reduce(Group.TENSOR, x, F),) if plan.parallelism.tensor > 1 else ()
    return (
        op("aten::embedding", F, s.half(plan.vocabulary_per_rank, s.hidden), ids),
        *summed,
        op("aten::embedding", F, s.half(s.sequence, s.hidden), ids),
        op("aten::add", F, x, x),
        fused("native_dropout", F, x, x, Tensor(x.shape, "bool")),
        op("aten::copy_", F, x, x),  # batch and sequence change places
    )


def embedding_backward(plan: TransformerPlan) -> tuple[Item, ...]:
    """Gradients of both tables."""
    s = sizes(plan)
    x, ids = s.half(s.tokens, s.hidden), Tensor((plan.schedule.micro_batch, s.sequence), "int64")
    found: list[Item] = [
        op("aten::copy_", B, x, x),
        fused("native_dropout_backward", B, x, Tensor(x.shape, "bool"), x),
    ]
    for rows in (plan.vocabulary_per_rank, s.sequence):
        found.append(op("aten::embedding_dense_backward", B, x, ids, values=["", "", str(rows)]))
        found.append(accumulate(s, rows * s.hidden))
    return tuple(found)


def head_forward(plan: TransformerPlan) -> tuple[Item, ...]:
    """Activations to a loss."""
    s, rows = sizes(plan), plan.vocabulary_per_rank
    logits, per_token = Tensor((s.tokens, rows), "float32"), Tensor((s.tokens, 1), "float32")
    summed = (all_reduce(Group.TENSOR, per_token, F),) if plan.parallelism.tensor > 1 else ()
    return (
        op("aten::copy_", F, s.half(s.tokens, s.hidden), s.half(s.tokens, s.hidden)),
        layer_norm(s, F),
        op("aten::mm", F, s.half(s.tokens, s.hidden), s.half(s.hidden, rows)),
        op("aten::copy_", F, logits, s.half(s.tokens, rows)),
        op("aten::amax", F, logits, values=["", "[1]"]),
        *summed,
        op("aten::sub_", F, logits, per_token),
        *summed,  # of the logits of the right tokens
        op("aten::exp", F, logits),
        op("aten::sum", F, logits, values=["", "[1]"]),
        *summed,
        op("aten::div_", F, logits, per_token),
    )


def head_backward(plan: TransformerPlan) -> tuple[Item, ...]:
    """From the loss to the gradient of the last layer's output."""
    s, rows = sizes(plan), plan.vocabulary_per_rank
    logits, x = Tensor((s.tokens, rows), "float32"), s.half(s.tokens, s.hidden)
    summed = (all_reduce(Group.TENSOR, x, B),) if plan.parallelism.tensor > 1 else ()
    return (
        op("aten::mul_", B, logits, Tensor((s.tokens, 1), "float32")),
        op("aten::copy_", B, s.half(s.tokens, rows), logits),
        *product_backward(s, s.tokens, s.hidden, rows),
        *summed,
        *layer_norm_backward(s),
        op("aten::copy_", B, x, x),
    )
