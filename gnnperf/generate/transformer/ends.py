"""What the first stage has before its layers and the last one after them: embedding, logits, cross entropy.

Both ends hold a tied embedding, a part of its rows per tensor-parallel rank. The cross entropy is computed in float32
on each rank's columns, with three sums over ranks of a number per token (Shoeybi et al. 2019, section 3).
"""

from gnnperf.generate.transformer import layer
from gnnperf.generate.transformer.block import Positions
from gnnperf.generate.transformer.items import Group, Line, collective, fused, op, used
from gnnperf.generate.transformer.layer import F
from gnnperf.generate.transformer.mlp import INDEX_BYTES, B, Lines, with_gradients
from gnnperf.generate.transformer.plan import TransformerPlan
from gnnperf.generate.transformer.sizes import Sizes, sizes
from gnnperf.generate.uses import use
from gnnperf.graph import Tensor


def embedding_forward(plan: TransformerPlan) -> Lines:
    """Tokens and positions to activations. Both are of a micro-batch, and there until it has come back."""
    s, learned, ids_bytes = sizes(plan), plan.block.positions is Positions.LEARNED, sizes(plan).tokens * INDEX_BYTES
    words = op("aten::embedding", F, s.half(plan.vocabulary_per_rank, s.hidden), _ids(s))
    ids = ("tokens", "positions") if learned else ("tokens",)
    result: list[Line] = [use("data", "", **dict.fromkeys(ids, ids_bytes))]
    result += [*used(words, "tokens", words=s.x), *layer.out_of_products(plan, F, "words")]
    out, mask = layer.part(plan, "words"), Tensor(s.stream.shape, "bool")
    if learned:
        places = op("aten::embedding", F, s.half(plan.model.sequence, s.hidden), _own_ids(s))
        result += used(places, "positions", places=s.stream)
        result += used(op("aten::add", F, s.stream, s.stream), f"{out} places", both=s.stream)
        out = "both"
    if plan.block.dropout:
        result += used(fused("native_dropout", F, s.stream, s.stream, mask), out, dropped=s.stream, retained=mask)
        out = "dropped"
    # batch and sequence change places
    return (*result, *used(op("aten::copy_", F, s.stream, s.stream), out, y=s.stream))


def _ids(s: Sizes) -> Tensor:
    return Tensor((s.batch, s.sequence), "int64")


def _own_ids(s: Sizes) -> Tensor:
    return Tensor((s.batch, s.resident // s.batch), "int64")


def embedding_backward(plan: TransformerPlan) -> Lines:
    """Gradients of the tables."""
    s = sizes(plan)
    result: list[Line] = [*used(op("aten::copy_", B, s.stream, s.stream), "dy", d_dropped=s.stream)]
    gradient = "d_dropped"
    if plan.block.dropout:
        item = fused("native_dropout_backward", B, s.stream, Tensor(s.stream.shape, "bool"), s.stream)
        result += used(item, f"{gradient} retained", d_both=s.stream)
        gradient = "d_both"
    result += layer.into_products(plan, B, gradient)
    result += _table_backward(s, s.x, _ids(s), plan.vocabulary_per_rank, f"{layer.full(plan, gradient)} tokens")
    if plan.block.positions is Positions.LEARNED:
        result += _table_backward(s, s.stream, _own_ids(s), plan.model.sequence, f"{gradient} positions")
    return tuple(result)


def _table_backward(s: Sizes, grad: Tensor, ids: Tensor, rows: int, takes: str) -> Lines:
    backward = op("aten::embedding_dense_backward", B, grad, ids, values=["", "", str(rows)])
    return tuple(with_gradients(s, backward, takes, rows * s.hidden))


def head_forward(plan: TransformerPlan) -> Lines:
    """Activations to a loss. The cross entropy keeps its probabilities in the memory of the float32 logits."""
    s, rows = sizes(plan), plan.vocabulary_per_rank
    half, logits, per_token = s.half(s.tokens, rows), *(Tensor((s.tokens, n), "float32") for n in (rows, 1))
    summed = (collective("all_reduce", Group.TENSOR, per_token, F),) if plan.parallelism.tensor > 1 else ()
    return (
        use("data", labels=s.tokens * INDEX_BYTES),
        *used(op("aten::copy_", F, s.stream, s.stream), "x", turned=s.stream),
        *layer.norm(plan, F, "turned", "norm"),
        *layer.into_products(plan, F, "norm"),
        *used(op("aten::mm", F, s.x, s.half(s.hidden, rows)), layer.full(plan, "norm"), half_logits=half),
        *used(op("aten::copy_", F, logits, half), "half_logits", logits=logits),
        *used(op("aten::amax", F, logits, values=["", "[1]"]), "logits", largest=per_token),
        *summed,
        *used(op("aten::sub_", F, logits, per_token), "logits largest"),
        *summed,  # of the logits of the right tokens
        *used(op("aten::exp", F, logits), "logits"),
        *used(op("aten::sum", F, logits, values=["", "[1]"]), "logits", total=per_token),
        *summed,
        # the caller's name still holds the half ones
        *used(op("aten::div_", F, logits, per_token), "logits total half_logits"),
    )


def head_backward(plan: TransformerPlan) -> Lines:
    """From the loss to the gradient of the last layer's output."""
    s, rows = sizes(plan), plan.vocabulary_per_rank
    logits, half = Tensor((s.tokens, rows), "float32"), s.half(s.tokens, rows)
    return (
        *used(op("aten::mul_", B, logits, Tensor((s.tokens, 1), "float32")), "logits labels"),
        *used(op("aten::copy_", B, half, logits), "logits", d_logits=half),
        *layer.first_product_backward(plan, s.hidden, (("logits", rows),), "norm", "d_norm"),
        *layer.norm_backward(plan, "d_norm", "turned", "norm", "d_turned"),
        *used(op("aten::copy_", B, s.stream, s.stream), "d_turned", dx=s.stream),
    )
