"""Which tensors a layer and the ends of a transformer take and make, forward and backward.

What is alive between a layer's forward and its backward pass is what Korthikanti et al. 2022 (arXiv 2205.05198) count
in section 4, with s tokens, b samples, a heads, h hidden, t tensor ranks, in bytes of 2-byte activations:

    nothing recomputed    sbh (10 + 24/t + 5as/(ht))      34 + 5as/h on one rank
    sequence parallel     sbh (34/t + 5as/(ht))           section 4.2.2
    selective             sbh (10 + 24/t)
    full                  2sbh

On top of it are the statistics of layer norms (8 sb per norm), which they leave out. Python's names hold nothing
beyond the last use; a stage's output goes when it is sent (ibid., appendix B).
"""

from __future__ import annotations

from dataclasses import replace

from gnnperf.generate.transformer.block import Positions
from gnnperf.generate.transformer.expert_tensors import experts_backward, experts_forward
from gnnperf.generate.transformer.layer_tensors import (
    FLOAT_BYTES,
    GATHER,
    INDEX_BYTES,
    SCATTER,
    TRITON,
    Product,
    Uses,
    attention_backward,
    attention_forward,
    core,
    first_products_backward,
    gathered,
    mlp_backward,
    mlp_forward,
    norm,
    norm_backward,
    residual,
    residual_backward,
    stream_bytes,
    weight_gradient,
    x_bytes,
)
from gnnperf.generate.transformer.plan import Recompute, TransformerPlan
from gnnperf.generate.transformer.sizes import sizes
from gnnperf.generate.uses import Pair, Use, use


def layer_uses(plan: TransformerPlan, layer: int = 0, *, recomputed: bool | None = None) -> Pair:
    """One layer of the model.

    Args:
        plan: see there.
        layer: from 0; it decides whether there are experts.
        recomputed: whether all of it is computed again before its backward pass; None: as in the plan, for all layers.
    """
    s, full = sizes(plan), plan.schedule.recompute is Recompute.FULL if recomputed is None else recomputed
    again: Uses = _forward(plan, layer) if full else ()
    stream = stream_bytes(s)
    return Pair(_forward(plan, layer), (*again, *_backward(plan, layer)), {"x": stream, "dy": stream})


def layers_uses(plan: TransformerPlan, layers: tuple[int, ...]) -> Pair:
    """Several layers that are computed again together: only the first one's input is kept."""
    s = sizes(plan)
    stream = stream_bytes(s)
    forward: list[Use] = []
    backward: list[Use] = []
    for place, layer in enumerate(layers):
        own = {"x": "x" if place == 0 else f"x_{place}", "y": "y" if place == len(layers) - 1 else f"x_{place + 1}"}
        forward += [_renamed(item, own, f"_{place}") for item in _forward(plan, layer)]
        ends = {**own, "dy": "dy" if place == len(layers) - 1 else f"dx_{place + 1}",
                "dx": "dx" if place == 0 else f"dx_{place}"}  # fmt: skip
        backward = [*(_renamed(item, ends, f"_{place}") for item in _backward(plan, layer)), *backward]
    return Pair(tuple(forward), (*forward, *backward), {"x": stream, "dy": stream})


def _renamed(item: Use, ends: dict[str, str], suffix: str) -> Use:
    def name(of: str) -> str:
        return ends.get(of, f"{of}{suffix}")

    return replace(item, takes=tuple(map(name, item.takes)), makes=tuple((name(n), size) for n, size in item.makes))


def _forward(plan: TransformerPlan, layer: int) -> Uses:
    if plan.has_experts(layer):
        second, out = experts_forward(plan)
    else:
        second, out = mlp_forward(plan), "scattered2" if plan.splits_sequence else "down"
    return (
        *attention_forward(plan),
        *norm(plan, "x1", "norm2"),
        *second,
        residual(plan, f"{out} x1", "y", "mask2"),
    )


def _backward(plan: TransformerPlan, layer: int) -> Uses:
    s = sizes(plan)
    into, gradient = residual_backward(plan, "dy", "mask2", "d_down")
    second, d_norm = (experts_backward if plan.has_experts(layer) else mlp_backward)(plan, gradient)
    again = core(plan) if plan.schedule.recompute is Recompute.SELECTIVE else ()
    return (
        *into,
        *second,
        *norm_backward(plan, d_norm, "x1", "norm2", "d_x1"),
        use("aten::add", "d_x1 dy", d_sum=stream_bytes(s)),
        *attention_backward(plan, again),
    )


def embedding_uses(plan: TransformerPlan) -> Pair:
    """Before the first layer. Tokens and positions are of a micro-batch, and there until it has come back."""
    s, learned, dropout = sizes(plan), plan.block.positions is Positions.LEARNED, plan.block.dropout
    x, stream, ids = x_bytes(s), stream_bytes(s), s.tokens * INDEX_BYTES
    rows, places = plan.vocabulary_per_rank * s.hidden, s.sequence * s.hidden
    out, forward = "words", [use("data", tokens=ids, positions=ids) if learned else use("data", tokens=ids)]
    forward.append(use("aten::embedding", "tokens", words=x))
    if plan.splits_sequence:
        forward.append(use(SCATTER, out, part=stream))
        out = "part"
    if learned:
        forward += [use("aten::embedding", "positions", places=stream), use("aten::add", f"{out} places", both=stream)]
        out = "both"
    if dropout:
        forward.append(use(f"{TRITON}native_dropout", out, dropped=stream, retained=s.stream.numel))
        out = "dropped"
    forward.append(use("aten::copy_", out, y=stream))
    back, d_out = [use("aten::copy_", "dy", d_dropped=stream)], "d_dropped"
    if dropout:
        back.append(use(f"{TRITON}native_dropout_backward", f"{d_out} retained", d_both=stream))
        d_out = "d_both"
    whole = d_out
    if plan.splits_sequence:
        back.append(use(GATHER, d_out, d_words=x))
        whole = "d_words"
    table = "aten::embedding_dense_backward"
    back += weight_gradient(s, f"{whole} tokens", rows, table, of_weights=False)
    if learned:
        back += weight_gradient(s, f"{d_out} positions", places, table, of_weights=False)
    return Pair(tuple(forward), tuple(back), {"dy": stream})


def head_uses(plan: TransformerPlan) -> Pair:
    """After the last layer. The cross entropy keeps its probabilities in the memory of the float32 logits."""
    s = sizes(plan)
    stream, row, rows = stream_bytes(s), s.tokens * FLOAT_BYTES, plan.vocabulary_per_rank
    logits, half_logits = s.tokens * rows * FLOAT_BYTES, s.half(s.tokens, rows).num_bytes
    full, data = gathered(plan, "norm", "full")
    products, d_norm = first_products_backward(plan, (Product("d_logits", rows),), "norm", "d_norm", ())
    forward = (
        use("data", labels=s.tokens * INDEX_BYTES),
        use("aten::copy_", "x", turned=stream),
        *norm(plan, "turned", "norm"),
        *full,
        use("aten::mm", data, half_logits=half_logits),
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
        *products,
        *norm_backward(plan, d_norm, "turned", "norm", "d_turned"),
        use("aten::copy_", "d_turned", dx=stream),
    )
    return Pair(forward, backward, {"x": stream})
