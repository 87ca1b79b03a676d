"""Which tensors the experts of a layer take and make, op by op, in the order of mlp.py.

    norm2 -> logits -> scores -> chosen -> rows -> arrived [-> sorted] [-> full2] -> up -> inner -> down [-> part2]
          -> [back ->] returned -> weighed -> down2, added to the residual

Rows arrive as many as the busiest rank has. Permutations and the weights of the router are kept for the backward pass.
"""

from __future__ import annotations

from dataclasses import replace

from gnnperf.generate.transformer.layer_tensors import (
    FLOAT_BYTES,
    GATHER,
    INDEX_BYTES,
    SCATTER,
    TRITON,
    Uses,
    activated,
    activated_backward,
    stream_bytes,
    weight_gradient,
)
from gnnperf.generate.transformer.mlp import up_columns
from gnnperf.generate.transformer.plan import TransformerPlan
from gnnperf.generate.transformer.sizes import routed, sizes
from gnnperf.generate.uses import Use, use

EXCHANGE = "all_to_all"
_MADE = "down2"  # what is added to the residual


def experts_forward(plan: TransformerPlan) -> tuple[Uses, str]:
    """From `norm2` to what is added to the residual, and its name."""
    s, r = sizes(plan), routed(plan)
    rows = s.half(r.sent, s.hidden).num_bytes
    there, arrived = _to_experts(plan, "rows", "")
    products, made = _products(plan, arrived)
    back, returned = _from_experts(plan, made, "")
    return (
        *_router(plan),
        use("aten::index_select", "norm2 order", rows=rows),
        *there,
        *products,
        *back,
        use(f"{TRITON}mul", f"{returned} weights", weighed=rows),
        use("aten::index_add", "weighed order", **{_MADE: stream_bytes(s)}),
    ), _MADE


def experts_backward(plan: TransformerPlan, gradient: str) -> tuple[Uses, str]:
    """From the gradient of what was added to that of `norm2`, and its name."""
    s, r = sizes(plan), routed(plan)
    rows = s.half(r.sent, s.hidden).num_bytes
    _, _, returned, arrived = _names(plan)
    there, received = _to_experts(plan, "d_returned", "d_")
    products, made = _products_backward(plan, received, arrived)
    back, gone = _from_experts(plan, made, "d_")
    return (
        use("aten::index_select", f"{gradient} order", d_weighed=rows),
        use(f"{TRITON}mul_mul_sum", f"d_weighed {returned} weights", d_returned=rows,
            d_weights=s.half(r.sent).num_bytes),
        *there,
        *products,
        *back,
        use("aten::index_add", f"{gone} order", d_rows=stream_bytes(s)),
        *_router_backward(plan),
    ), "d_norm2"  # fmt: skip


def _names(plan: TransformerPlan) -> tuple[str, str, str, str]:
    """Last names on the way to the experts and back: made there, made by them, what returned, what arrived."""
    _, arrived = _to_experts(plan, "rows", "")
    _, made = _products(plan, arrived)
    _, returned = _from_experts(plan, made, "")
    return "rows", made, returned, arrived


def _router(plan: TransformerPlan) -> Uses:
    assert plan.experts is not None, "only plans with experts have it"
    s, r, count, chosen = sizes(plan), routed(plan), plan.experts.count, plan.experts.top_k
    scores = s.resident * count * FLOAT_BYTES
    tokens = s.resident * chosen
    return (
        use("aten::mm", "norm2", logits=s.half(s.resident, count).num_bytes),
        use("aten::copy_", "logits", wide=scores),
        use("aten::_softmax", "wide", scores=scores),
        use("aten::topk", "scores", chosen=tokens * (FLOAT_BYTES + INDEX_BYTES), routes=s.resident * count),
        use("aten::sum", "scores", load=count * FLOAT_BYTES),
        use("aten::sum", "routes load", counts=count * INDEX_BYTES),
        use("permutation", "chosen counts routes", order=r.sent * INDEX_BYTES, weights=s.half(r.sent).num_bytes),
    )


def _router_backward(plan: TransformerPlan) -> Uses:
    assert plan.experts is not None, "only plans with experts have it"
    s, count = sizes(plan), plan.experts.count
    scores, half = s.resident * count * FLOAT_BYTES, s.half(s.resident, count).num_bytes
    return (
        use("aten::_softmax_backward_data", "d_weights scores", d_wide=scores),
        use("aten::copy_", "d_wide", d_logits=half),
        use("aten::mm", "d_logits", d_routed=stream_bytes(s)),
        *weight_gradient(s, "d_logits norm2", count * s.hidden),
        use("aten::add", "d_routed d_rows", d_norm2=stream_bytes(s)),
    )


def _to_experts(plan: TransformerPlan, name: str, prefix: str) -> tuple[Uses, str]:
    """Rows over the expert-parallel group, sorted by expert, and those of the tensor-parallel neighbors."""
    s, r = sizes(plan), routed(plan)
    arriving = s.half(r.arriving, s.hidden).num_bytes
    result: Uses = ()
    if plan.parallelism.expert > 1:
        result += (use(EXCHANGE, name, **{f"{prefix}arrived": arriving}),)
        name = f"{prefix}arrived"
        if r.local > 1:
            result += (use("aten::index_select", name, **{f"{prefix}sorted": arriving}),)
            name = f"{prefix}sorted"
    if plan.splits_sequence:
        result += (use(GATHER, name, **{f"{prefix}full2": arriving * plan.parallelism.tensor}),)
        name = f"{prefix}full2"
    return result, name


def _from_experts(plan: TransformerPlan, name: str, prefix: str) -> tuple[Uses, str]:
    """The same way back: forward what experts made, backward the gradients of what they were given."""
    s, r = sizes(plan), routed(plan)
    arriving, sent = s.half(r.arriving, s.hidden).num_bytes, s.half(r.sent, s.hidden).num_bytes
    result: Uses = ()
    if plan.splits_sequence:
        result += (use(SCATTER, name, **{f"{prefix}part2": arriving}),)
        name = f"{prefix}part2"
    if plan.parallelism.expert > 1:
        if r.local > 1:
            result += (use("aten::index_select", name, **{f"{prefix}back": arriving}),)
            name = f"{prefix}back"
        result += (use(EXCHANGE, name, **{f"{prefix}came": sent}),)
        name = f"{prefix}came"
    return result, name


def _products(plan: TransformerPlan, takes: str) -> tuple[Uses, str]:
    s, r = sizes(plan), routed(plan)
    rows = r.local * r.computed
    return (
        use("aten::bmm", takes, up=s.half(rows, up_columns(plan, r.width)).num_bytes),
        *_activated(plan, rows, r.width),
        use("aten::bmm", "inner", down=s.half(rows, s.hidden).num_bytes),
    ), "down"


def _activated(plan: TransformerPlan, rows: int, width: int) -> Uses:
    """As the MLP's; gate and up are halves of one product here."""
    return tuple(_halves(item) for item in activated(plan, rows, width, bias=False))


def _halves(item: Use) -> Use:
    return replace(item, takes=tuple("up" if name == "gate" else name for name in item.takes))


def _products_backward(plan: TransformerPlan, gradient: str, data: str) -> tuple[Uses, str]:
    s, r = sizes(plan), routed(plan)
    rows, up = r.local * r.computed, up_columns(plan, r.width)
    back = tuple(_halves(item) for item in activated_backward(plan, rows, r.width, bias=False))
    gradients = "d_up d_gate" if any("d_gate" in dict(item.makes) for item in back) else "d_up"
    return (
        use("aten::bmm", gradient, d_inner=s.half(rows, r.width).num_bytes),
        *weight_gradient(s, f"{gradient} inner", r.local * r.width * s.hidden, "aten::bmm"),
        *back,
        use("aten::bmm", gradients, d_given=s.half(rows, s.hidden).num_bytes),
        *weight_gradient(s, f"{gradients} {data}", r.local * s.hidden * up, "aten::bmm"),
    ), "d_given"
