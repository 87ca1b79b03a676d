"""One transformer layer on one tensor-parallel rank, forward and backward, op by op as Megatron-LM of 2021 and 2022.

    x -- layer norm -- qkv -- scores -- softmax -- dropout -- context -- projection -- sum over ranks -- + -- layer norm
      `-------------------------------------------------------------------------------------------------'
      -- up -- GELU -- down -- sum over ranks -- +

Unfused attention; kernels fused by that code: scale, mask and softmax; bias and GELU; bias, dropout and addition.
A product's backward pass is two products; every weight's gradient is added to those of earlier micro-batches. Ops that
launch nothing stand where torch's profiler shows them for this code; frames around ops (autograd's nodes, aten::linear)
do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gnnperf.graph.cost.op_call import Tensor
from gnnperf.plan.transformer.items import Group, Item, all_reduce, fused, op, views
from gnnperf.plan.transformer.plan import Recompute, TransformerPlan
from gnnperf.schema import Phase

MLP_FACTOR = 4  # width of the MLP over that of the model
F, B = Phase.FORWARD, Phase.BACKWARD


@dataclass(frozen=True)
class Sizes:
    """Of one rank: tokens of a micro-batch, hidden width, heads and their width, all of its shard."""

    tokens: int
    hidden: int
    shard: int  # hidden / tensor ranks
    batch_heads: int
    sequence: int
    head: int
    dtype: str
    gradient_dtype: str

    def half(self, *shape: int) -> Tensor:
        """A tensor in the dtype of weights and activations."""
        return Tensor(shape, self.dtype)

    @property
    def scores(self) -> Tensor:
        """[batch x heads, sequence, sequence]."""
        return self.half(self.batch_heads, self.sequence, self.sequence)

    def by_head(self, *, transposed: bool = False) -> Tensor:
        """Queries, keys or values: [batch x heads, sequence, head], or its transpose."""
        last = (self.head, self.sequence) if transposed else (self.sequence, self.head)
        return self.half(self.batch_heads, *last)


def sizes(plan: TransformerPlan) -> Sizes:
    """Of each rank of a plan."""
    model, ways = plan.model, plan.parallelism.tensor
    return Sizes(plan.tokens, model.hidden, model.hidden // ways, plan.schedule.micro_batch * model.heads // ways,
                 model.sequence, model.hidden // model.heads, model.dtype, plan.schedule.gradient_dtype)  # fmt: skip


def layer_forward(plan: TransformerPlan, phase: Phase = F) -> tuple[Item, ...]:
    """Ops of one layer; in the backward phase, its recomputation."""
    s = sizes(plan)
    x, wide = s.half(s.tokens, s.hidden), s.half(s.tokens, MLP_FACTOR * s.shard)
    return (
        layer_norm(s, phase),
        views(phase, "view", "t"),
        op("aten::addmm", phase, s.half(3 * s.shard), x, s.half(s.hidden, 3 * s.shard)),
        views(phase, "view", "view", "narrow", "narrow", "narrow", "reshape", "reshape", "empty"),
        *attention_forward(s, phase),
        views(phase, "view", "permute", "empty_like"),
        op("aten::copy_", phase, s.half(s.tokens, s.shard), s.half(s.tokens, s.shard)),  # heads side by side again
        views(phase, "view"),
        *_product(s, phase, s.shard, s.hidden),
        *_sum_over_shards(plan, x, phase),
        views(phase, "expand"),
        _bias_dropout_add(s, phase),
        layer_norm(s, phase),
        *_product(s, phase, s.hidden, MLP_FACTOR * s.shard),
        fused("bias_gelu", phase, wide, s.half(MLP_FACTOR * s.shard), wide),
        *_product(s, phase, MLP_FACTOR * s.shard, s.hidden),
        *_sum_over_shards(plan, x, phase),
        views(phase, "expand"),
        _bias_dropout_add(s, phase),
    )


def _product(s: Sizes, phase: Phase, depth: int, columns: int) -> tuple[Item, ...]:
    """A linear layer without its bias."""
    return (views(phase, "t", "reshape"), op("aten::mm", phase, s.half(s.tokens, depth), s.half(depth, columns)))


def attention_forward(s: Sizes, phase: Phase) -> tuple[Item, ...]:
    """Scores, their softmax and dropout, context: what selective recomputation repeats."""
    mask = Tensor(s.scores.shape, "bool")
    return (
        views(phase, "transpose", "transpose", "transpose"),
        op("aten::baddbmm", phase, s.scores, s.by_head(), s.by_head(transposed=True)),
        views(phase, "view"),
        op("aten::_softmax", phase, s.scores),
        fused("native_dropout", phase, s.scores, s.scores, mask),
        views(phase, "reshape", "view", "transpose"),
        op("aten::bmm", phase, s.scores, s.by_head()),
    )


def layer_backward(plan: TransformerPlan) -> tuple[Item, ...]:
    """Recomputation as the plan has it, then the gradients."""
    s = sizes(plan)
    x, wide = s.half(s.tokens, s.hidden), s.half(s.tokens, MLP_FACTOR * s.shard)
    again: tuple[Item, ...] = layer_forward(plan, B) if plan.schedule.recompute is Recompute.FULL else ()
    core = attention_forward(s, B) if plan.schedule.recompute is Recompute.SELECTIVE else ()
    return (
        *again,
        *_bias_dropout_add_backward(s),
        *product_backward(s, s.tokens, MLP_FACTOR * s.shard, s.hidden),
        fused("bias_gelu_backward", B, wide, wide, wide),
        *bias_backward(s, MLP_FACTOR * s.shard),
        *product_backward(s, s.tokens, s.hidden, MLP_FACTOR * s.shard),
        *_sum_over_shards(plan, x, B),
        *layer_norm_backward(s),
        op("aten::add", B, x, x),  # with the gradient that went around
        *_bias_dropout_add_backward(s),
        *product_backward(s, s.tokens, s.shard, s.hidden),
        *core,
        *attention_backward(s),
        *product_backward(s, s.tokens, s.hidden, 3 * s.shard),
        *bias_backward(s, 3 * s.shard),
        *_sum_over_shards(plan, x, B),
        *layer_norm_backward(s),
        op("aten::add", B, x, x),
    )


def attention_backward(s: Sizes) -> tuple[Item, ...]:
    """From the context's gradient to that of queries, keys and values side by side."""
    across = s.half(*s.scores.shape)  # its transpose has the same shape: sequence by sequence
    part = s.half(s.tokens, s.shard)
    return (
        views(B, "reshape", "permute", "reshape", "transpose", "transpose"),
        op("aten::bmm", B, s.by_head(), s.by_head(transposed=True)),  # of the probabilities
        op("aten::bmm", B, across, s.by_head()),  # of the values
        views(B, "transpose", "reshape", "reshape"),
        fused("native_dropout_backward", B, s.scores, Tensor(s.scores.shape, "bool"), s.scores),
        op("aten::_softmax_backward_data", B, s.scores, s.scores),
        views(B, "reshape", "transpose", "transpose"),
        op("aten::bmm", B, s.scores, s.by_head()),  # of the queries
        op("aten::bmm", B, across, s.by_head()),  # of the keys
        op("aten::mul", B, part, None),  # both by the scale of the scores
        op("aten::mul", B, part, None),
        views(B, "transpose", "transpose", "transpose", "reshape", "reshape", "narrow", "narrow", "narrow"),
        op("aten::copy_", B, s.half(s.tokens, 3 * s.shard), s.half(s.tokens, 3 * s.shard)),  # side by side
    )


def layer_norm(s: Sizes, phase: Phase) -> Item:
    """Over the hidden width."""
    return op("aten::native_layer_norm", phase, s.half(s.tokens, s.hidden), None, s.half(s.hidden), s.half(s.hidden))


def layer_norm_backward(s: Sizes) -> tuple[Item, ...]:
    """Gradients of input, scale and shift; the latter are added up."""
    x, row = s.half(s.tokens, s.hidden), Tensor((s.tokens,), "float32")
    weight = s.half(s.hidden)
    backward = op("aten::native_layer_norm_backward", B, x, x, None, row, row, weight, weight)
    return (backward, accumulate(s, s.hidden), accumulate(s, s.hidden))


def product_backward(s: Sizes, rows: int, depth: int, columns: int) -> tuple[Item, ...]:
    """Of [rows, depth] x [depth, columns]: gradients of input and weight."""
    grad, weight = s.half(rows, columns), s.half(columns, depth)
    return (
        views(B, "reshape", "t"),
        op("aten::mm", B, grad, weight),
        views(B, "t", "t"),
        op("aten::mm", B, s.half(columns, rows), s.half(rows, depth)),
        views(B, "reshape", "t"),
        accumulate(s, columns * depth),
    )


def bias_backward(s: Sizes, columns: int) -> tuple[Item, ...]:
    """A sum over tokens."""
    grad = s.half(s.tokens, columns)
    return (op("aten::sum", B, grad, None, None, values=["", "[0]", "True"]), accumulate(s, columns))


def accumulate(s: Sizes, parameters: int) -> Item:
    """A weight's gradient, added to the sum over micro-batches."""
    return op("aten::add_", B, Tensor((parameters,), s.gradient_dtype), s.half(parameters))


def _bias_dropout_add(s: Sizes, phase: Phase) -> Item:
    x = s.half(s.tokens, s.hidden)
    return fused("bias_dropout_add", phase, x, s.half(s.hidden), x, x, Tensor(x.shape, "bool"))


def _bias_dropout_add_backward(s: Sizes) -> tuple[Item, ...]:
    x = s.half(s.tokens, s.hidden)
    return (fused("bias_dropout_add_backward", B, x, Tensor(x.shape, "bool"), x), *bias_backward(s, s.hidden))


def _sum_over_shards(plan: TransformerPlan, tensor: Tensor, phase: Phase) -> Sequence[Item]:
    return (all_reduce(Group.TENSOR, tensor, phase),) if plan.parallelism.tensor > 1 else ()
