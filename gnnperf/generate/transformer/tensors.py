"""Which tensors the ops of a transformer take and make, layer and ends, in the order of layer.py and ends.py.

What is alive between a layer's forward and its backward pass is what Korthikanti et al. 2022 (arXiv 2205.05198) count
in section 4, with s tokens, b samples, a heads, h hidden, t tensor ranks, in bytes of 2-byte activations:

    nothing recomputed    sbh (10 + 24/t + 5as/(ht))      34 + 5as/h on one rank
    selective             sbh (10 + 24/t)
    full                  2sbh

On top of it are the statistics of layer norms (8 sb per norm), which they leave out. Python's names hold nothing
beyond the last use; a stage's output goes when it is sent (ibid., appendix B).
"""

from __future__ import annotations

from gnnperf.generate.transformer.plan import Recompute, TransformerPlan
from gnnperf.generate.transformer.sizes import Sizes, sizes
from gnnperf.generate.uses import Pair, Use, use
from gnnperf.graph import DTYPE_BYTES

FLOAT_BYTES, INDEX_BYTES = DTYPE_BYTES["float32"], DTYPE_BYTES["int64"]
_NORM, _NORM_BACKWARD = "aten::native_layer_norm", "aten::native_layer_norm_backward"
_DROPOUT, _DROPOUT_BACKWARD = "triton_poi_fused_native_dropout", "triton_poi_fused_native_dropout_backward"
_ADD, _ADD_BACKWARD = "triton_poi_fused_bias_dropout_add", "triton_poi_fused_bias_dropout_add_backward"
_GELU, _GELU_BACKWARD = "triton_poi_fused_bias_gelu", "triton_poi_fused_bias_gelu_backward"


def layer_uses(plan: TransformerPlan) -> Pair:
    """One layer. A gradient of a weight is made, added to the sum over micro-batches, and goes."""
    s = sizes(plan)
    again: tuple[Use, ...] = _forward(s) if plan.schedule.recompute is Recompute.FULL else ()
    core = _core(s) if plan.schedule.recompute is Recompute.SELECTIVE else ()
    x = _x(s)
    return Pair(_forward(s), (*again, *_mlp_backward(s), *_attention_backward(s, core)), {"x": x, "dy": x})


def _x(s: Sizes) -> int:
    """Activations between layers."""
    return s.half(s.tokens, s.hidden).num_bytes


def _forward(s: Sizes) -> tuple[Use, ...]:
    x, part, wide = _x(s), s.half(s.tokens, s.shard).num_bytes, s.half(s.tokens, s.width).num_bytes
    row, mask = s.tokens * FLOAT_BYTES, s.tokens * s.hidden
    return (
        use(_NORM, "x", norm1=x, mean1=row, rstd1=row),
        use("aten::addmm", "norm1", qkv=3 * part),
        *_core(s),
        use("aten::copy_", "heads", context=part),
        use("aten::mm", "context", projected=x),
        use(_ADD, "projected x", x1=x, mask1=mask),
        use(_NORM, "x1", norm2=x, mean2=row, rstd2=row),
        use("aten::mm", "norm2", up=wide),
        use(_GELU, "up", gelu=wide),
        use("aten::mm", "gelu", down=x),
        use(_ADD, "down x1", y=x, mask2=mask),
    )


def _core(s: Sizes) -> tuple[Use, ...]:
    """What selective recomputation repeats; the product of scores is given a buffer of their size to add to."""
    scores, part = s.scores.num_bytes, s.half(s.tokens, s.shard).num_bytes
    return (
        use("aten::baddbmm", "qkv", buffer=scores, scores=scores),
        use("aten::_softmax", "scores", probabilities=scores),
        use(_DROPOUT, "probabilities", dropped=scores, retained=s.scores.numel),
        use("aten::bmm", "dropped qkv", heads=part),
    )


def _mlp_backward(s: Sizes) -> tuple[Use, ...]:
    x, wide = _x(s), s.half(s.tokens, s.width).num_bytes
    weight = s.width * s.hidden
    return (
        use(_ADD_BACKWARD, "dy mask2", d_down=x),
        *_sum(s, "d_down", s.hidden),
        *_product(s, "d_down", "gelu", weight, d_gelu=wide),
        use(_GELU_BACKWARD, "d_gelu up", d_up=wide),
        *_sum(s, "d_up", s.width),
        *_product(s, "d_up", "norm2", weight, d_norm2=x),
        *_norm_backward(s, "d_norm2 x1 mean2 rstd2", d_x1=x),
        use("aten::add", "d_x1 dy", d_sum=x),
    )


def _attention_backward(s: Sizes, core: tuple[Use, ...]) -> tuple[Use, ...]:
    x, part, scores = _x(s), s.half(s.tokens, s.shard).num_bytes, s.scores.num_bytes
    return (
        use(_ADD_BACKWARD, "d_sum mask1", d_projected=x),
        *_sum(s, "d_projected", s.hidden),
        *_product(s, "d_projected", "context", s.shard * s.hidden, d_heads=part),
        *core,
        use("aten::bmm", "d_heads qkv", d_dropped=scores),
        use("aten::bmm", "d_heads dropped", d_values=part),
        use(_DROPOUT_BACKWARD, "d_dropped retained", d_probabilities=scores),
        use("aten::_softmax_backward_data", "d_probabilities probabilities", d_scores=scores),
        use("aten::bmm", "d_scores qkv", d_queries=part),
        use("aten::bmm", "d_scores qkv", d_keys=part),
        use("aten::mul", "d_queries", scaled_queries=part),
        use("aten::mul", "d_keys", scaled_keys=part),
        use("aten::copy_", "scaled_queries scaled_keys d_values", d_qkv=3 * part),
        *_product(s, "d_qkv", "norm1", 3 * s.shard * s.hidden, d_norm1=x),
        *_sum(s, "d_qkv", 3 * s.shard),
        *_norm_backward(s, "d_norm1 x mean1 rstd1", d_x=x),
        use("aten::add", "d_x d_sum", dx=x),
    )


def _product(s: Sizes, gradient: str, data: str, weight: int, **made: int) -> tuple[Use, ...]:
    """Backward of a product: gradient of its input, of its weight (a number of elements), and the sum of the latter."""
    num_bytes = s.half(weight).num_bytes
    return (
        use("aten::mm", gradient, **made),
        use("aten::mm", f"{gradient} {data}", d_weight=num_bytes),
        use("aten::add_", "d_weight"),
    )


def _sum(s: Sizes, gradient: str, columns: int) -> tuple[Use, ...]:
    return (use("aten::sum", gradient, d_bias=s.half(columns).num_bytes), use("aten::add_", "d_bias"))


def _norm_backward(s: Sizes, takes: str, **made: int) -> tuple[Use, ...]:
    weight = s.half(s.hidden).num_bytes
    return (
        use(_NORM_BACKWARD, takes, **made, d_scale=weight, d_shift=weight),
        use("aten::add_", "d_scale"),
        use("aten::add_", "d_shift"),
    )


def embedding_uses(plan: TransformerPlan) -> Pair:
    """Before the first layer. Tokens and positions are of a micro-batch, and there until it has come back."""
    s = sizes(plan)
    x, ids, mask = _x(s), s.tokens * INDEX_BYTES, s.tokens * s.hidden
    rows, positions = s.half(plan.vocabulary_per_rank, s.hidden).num_bytes, s.half(s.sequence, s.hidden).num_bytes
    forward = (
        use("data", tokens=ids, positions=ids),
        use("aten::embedding", "tokens", words=x),
        use("aten::embedding", "positions", places=x),
        use("aten::add", "words places", both=x),
        use(_DROPOUT, "both", dropped=x, retained=mask),
        use("aten::copy_", "dropped", y=x),
    )
    backward = (
        use("aten::copy_", "dy", d_dropped=x),
        use(_DROPOUT_BACKWARD, "d_dropped retained", d_both=x),
        use("aten::embedding_dense_backward", "d_both tokens", d_rows=rows),
        use("aten::add_", "d_rows"),
        use("aten::embedding_dense_backward", "d_both positions", d_places=positions),
        use("aten::add_", "d_places"),
    )
    return Pair(forward, backward, {"dy": x})


def head_uses(plan: TransformerPlan) -> Pair:
    """After the last layer. The cross entropy keeps its probabilities in the memory of the float32 logits."""
    s = sizes(plan)
    x, row, rows = _x(s), s.tokens * FLOAT_BYTES, plan.vocabulary_per_rank
    logits, half_logits = s.tokens * rows * FLOAT_BYTES, s.half(s.tokens, rows).num_bytes
    forward = (
        use("data", labels=s.tokens * INDEX_BYTES),
        use("aten::copy_", "x", turned=x),
        use(_NORM, "turned", norm=x, mean=row, rstd=row),
        use("aten::mm", "norm", half_logits=half_logits),
        use("aten::copy_", "half_logits", logits=logits),
        use("aten::amax", "logits", largest=row),
        use("aten::sub_", "logits largest"),
        use("aten::exp", "logits"),
        use("aten::sum", "logits", total=row),
        use("aten::div_", "logits total half_logits"),  # the caller's name still holds the half ones
    )
    backward = (
        use("aten::mul_", "logits labels"),
        use("aten::copy_", "logits", d_logits=half_logits),
        *_product(s, "d_logits", "norm", rows * s.hidden, d_norm=x),
        *_norm_backward(s, "d_norm turned mean rstd", d_turned=x),
        use("aten::copy_", "d_turned", dx=x),
    )
    return Pair(forward, backward, {"x": x})
