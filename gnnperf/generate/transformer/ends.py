"""What the first stage has before its layers and the last one after them: embedding, logits, cross entropy.

Both ends hold a tied embedding, a part of its rows per tensor-parallel rank. The cross entropy is computed in float32
on each rank's columns, with three sums over ranks of a number per token (Shoeybi et al. 2019, section 3).
"""

from __future__ import annotations

from gnnperf.generate.transformer.block import Positions
from gnnperf.generate.transformer.items import Group, Item, all_reduce, fused, op
from gnnperf.generate.transformer.layer import (
    F,
    first_product_backward,
    into_products,
    norm,
    norm_backward,
    out_of_products,
    out_of_products_backward,
)
from gnnperf.generate.transformer.mlp import B, accumulate
from gnnperf.generate.transformer.plan import TransformerPlan
from gnnperf.generate.transformer.sizes import Sizes, sizes
from gnnperf.graph import Tensor


def embedding_forward(plan: TransformerPlan) -> tuple[Item, ...]:
    """Tokens and positions to activations."""
    s = sizes(plan)
    return (
        op("aten::embedding", F, s.half(plan.vocabulary_per_rank, s.hidden), _ids(s)),
        *out_of_products(plan, F),
        *_positions(plan, s),
        *(
            (fused("native_dropout", F, s.stream, s.stream, Tensor(s.stream.shape, "bool")),)
            if plan.block.dropout
            else ()
        ),
        op("aten::copy_", F, s.stream, s.stream),  # batch and sequence change places
    )


def _ids(s: Sizes) -> Tensor:
    return Tensor((s.batch, s.sequence), "int64")


def _positions(plan: TransformerPlan, s: Sizes) -> tuple[Item, ...]:
    if plan.block.positions is Positions.ROTARY:
        return ()
    ids = Tensor((s.batch, s.resident // s.batch), "int64")
    return (op("aten::embedding", F, s.half(s.sequence, s.hidden), ids), op("aten::add", F, s.stream, s.stream))


def embedding_backward(plan: TransformerPlan) -> tuple[Item, ...]:
    """Gradients of the tables."""
    s = sizes(plan)
    dropped = fused("native_dropout_backward", B, s.stream, Tensor(s.stream.shape, "bool"), s.stream)
    result: list[Item] = [op("aten::copy_", B, s.stream, s.stream), *((dropped,) if plan.block.dropout else ())]
    result += [*out_of_products_backward(plan), *_table_backward(s, s.x, _ids(s), plan.vocabulary_per_rank)]
    if plan.block.positions is Positions.LEARNED:
        ids = Tensor((s.batch, s.resident // s.batch), "int64")
        result += _table_backward(s, s.stream, ids, s.sequence)
    return tuple(result)


def _table_backward(s: Sizes, grad: Tensor, ids: Tensor, rows: int) -> tuple[Item, ...]:
    backward = op("aten::embedding_dense_backward", B, grad, ids, values=["", "", str(rows)])
    return (backward, *accumulate(s, rows * s.hidden))


def head_forward(plan: TransformerPlan) -> tuple[Item, ...]:
    """Activations to a loss."""
    s, rows = sizes(plan), plan.vocabulary_per_rank
    logits, per_token = Tensor((s.tokens, rows), "float32"), Tensor((s.tokens, 1), "float32")
    summed = (all_reduce(Group.TENSOR, per_token, F),) if plan.parallelism.tensor > 1 else ()
    return (
        op("aten::copy_", F, s.stream, s.stream),
        norm(plan, F),
        *into_products(plan, F),
        op("aten::mm", F, s.x, s.half(s.hidden, rows)),
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
    logits = Tensor((s.tokens, rows), "float32")
    return (
        op("aten::mul_", B, logits, Tensor((s.tokens, 1), "float32")),
        op("aten::copy_", B, s.half(s.tokens, rows), logits),
        *first_product_backward(plan, s.hidden, (rows,), ()),
        *norm_backward(plan),
        op("aten::copy_", B, s.stream, s.stream),
    )
