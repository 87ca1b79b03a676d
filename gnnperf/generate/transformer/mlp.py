"""Products, their gradients, and the second half of a layer: the MLP's inner part, or experts.

Lines hold the items of a program and, after each op, which tensors it takes and makes (gnnperf.generate.uses).
"""

from collections.abc import Iterator

from gnnperf.core import Phase
from gnnperf.generate.transformer.block import Activation, Kernels
from gnnperf.generate.transformer.items import Group, HostWait, Line, Op, Transfer, collective, fused, op, used, views
from gnnperf.generate.transformer.plan import TransformerPlan
from gnnperf.generate.transformer.sizes import Routed, Sizes, routed, sizes
from gnnperf.generate.uses import Use, use
from gnnperf.graph import DTYPE_BYTES, Tensor

# Products and their gradients, biases, and where gradients of micro-batches are added up.

B = Phase.BACKWARD
Lines = tuple[Line, ...]
FLOAT_BYTES, INDEX_BYTES = DTYPE_BYTES["float32"], DTYPE_BYTES["int64"]


def product(s: Sizes, phase: Phase, depth: int, columns: int, takes: str, makes: str) -> Lines:
    """[tokens, depth] x [depth, columns], a linear layer without its bias."""
    mm = op("aten::mm", phase, s.half(s.tokens, depth), s.half(depth, columns))
    return (views(phase, "t", "reshape"), *used(mm, takes, **{makes: s.half(s.tokens, columns)}))


def input_gradient(s: Sizes, rows: int, depth: int, columns: int, takes: str, makes: str) -> Lines:
    """Of [rows, depth] x [depth, columns], from the gradient of its result."""
    mm = op("aten::mm", B, s.half(rows, columns), s.half(columns, depth))
    return (views(B, "reshape", "t"), *used(mm, takes, **{makes: s.half(rows, depth)}))


def weight_gradient(s: Sizes, rows: int, depth: int, columns: int, takes: str) -> Lines:
    """Of [rows, depth] x [depth, columns], added to that of earlier micro-batches."""
    mm = op("aten::mm", B, s.half(columns, rows), s.half(rows, depth), of_weights=True)
    made, its_use, *added = with_gradients(s, mm, takes, columns * depth)
    return (views(B, "t", "t"), made, its_use, views(B, "reshape", "t"), *added)


def product_backward(s: Sizes, depth: int, columns: int, gradient: str, data: str, makes: str) -> Lines:
    """Of [tokens, depth] x [depth, columns]: gradients of input and weight."""
    return (
        *input_gradient(s, s.tokens, depth, columns, gradient, makes),
        *weight_gradient(s, s.tokens, depth, columns, f"{gradient} {data}"),
    )


def bias_backward(s: Sizes, rows: int, columns: int, gradient: str) -> Lines:
    """A sum over tokens."""
    grad = s.half(rows, columns)
    summed = op("aten::sum", B, grad, None, None, values=["", "[0]", "True"], of_weights=True)
    return tuple(with_gradients(s, summed, gradient, columns))


def with_gradients(s: Sizes, item: Op, takes: str, *elements: int, **makes: Tensor) -> Iterator[Line]:
    """An op that makes gradients of so many elements each: added to the sums over micro-batches and gone.

    Where gradients leave the rank in every pass, they stay until the unit's gradients are sent.
    """
    made, its_use = used(item, takes, **makes)
    assert isinstance(its_use, Use), "as `used` has it"
    sizes_bytes = tuple(s.half(number).num_bytes for number in elements)
    kind = "d_weight" if item.of_weights else "d_scale"  # the latter may wait for a second part of the backward pass
    names = tuple(f"{kind}{place}" for place in range(len(elements)))
    if not s.adds_gradients:
        yield from (made, Use(its_use.op, its_use.takes, its_use.makes, sizes_bytes, its_use.of_weights))
        return
    makes_all = (*its_use.makes, *zip(names, sizes_bytes, strict=True))
    yield from (made, Use(its_use.op, its_use.takes, makes_all, (), its_use.of_weights))
    for name, number in zip(names, elements, strict=True):
        held = Tensor((number,), s.gradient_dtype)
        yield from used(op("aten::add_", B, held, s.half(number), of_weights=True), name)


def up_columns(plan: TransformerPlan, width: int) -> int:
    """What the first product makes: with SwiGLU gate and up side by side."""
    return 2 * width if plan.block.activation is Activation.SWIGLU else width


def first_products(plan: TransformerPlan, width: int) -> tuple[tuple[str, int], ...]:
    """Names and columns of what the products before the activation make: gate and up in one, or one after the other."""
    if plan.block.kernels is Kernels.EAGER and plan.block.activation is Activation.SWIGLU:
        return ("gate", width), ("up", width)
    return (("up", up_columns(plan, width)),)


def activated(plan: TransformerPlan, phase: Phase, rows: int, width: int, *, bias: bool, gate: str = "gate") -> Lines:
    """[rows, up columns] -> `inner` [rows, width]: Megatron-LM's fused bias and GELU, or fused SwiGLU; or torch's."""
    s = sizes(plan)
    wide, inner = s.half(rows, up_columns(plan, width)), s.half(rows, width)
    gated, eager = plan.block.activation is Activation.SWIGLU, plan.block.kernels is Kernels.EAGER
    if eager and gated:
        silu = used(op("aten::silu", phase, inner), gate, opened=inner)
        return (*silu, *used(op("aten::mul", phase, inner, inner), "opened up", inner=inner))
    if eager:
        item = op("aten::gelu", phase, inner)
    elif gated:
        item = fused("silu_mul", phase, wide, *((s.half(2 * width),) if bias else ()), inner)
    else:
        item = fused("bias_gelu", phase, wide, s.half(width), inner) if bias else fused("gelu", phase, wide, inner)
    return used(item, "up", inner=inner)


def activated_backward(plan: TransformerPlan, rows: int, width: int, *, bias: bool, gate: str = "gate") -> Lines:
    """From `d_inner` to `d_up` and, where it is a tensor of its own, `d_gate`; and the gradient of the bias."""
    s = sizes(plan)
    columns = up_columns(plan, width)
    wide, inner = s.half(rows, columns), s.half(rows, width)
    gated = plan.block.activation is Activation.SWIGLU
    if plan.block.kernels is Kernels.EAGER:
        if not gated:
            return used(op("aten::gelu_backward", B, inner, inner), "d_inner up", d_up=inner)
        product = op("aten::mul", B, inner, inner)  # each factor's gradient is by the other
        return (
            *used(product, "d_inner up", d_opened=inner),
            *used(product, "d_inner opened", d_up=inner),
            *used(op("aten::silu_backward", B, inner, inner), f"d_opened {gate}", d_gate=inner),
        )
    name = "silu_mul_backward" if gated else "bias_gelu_backward" if bias else "gelu_backward"
    backward = used(fused(name, B, inner, wide, wide), "d_inner up", d_up=wide)
    return (*backward, *(bias_backward(s, rows, columns, "d_up") if bias else ()))


def residual(plan: TransformerPlan, phase: Phase, takes: str, makes: str, mask: str) -> Lines:
    """What a layer's half made, added to what went around it: with bias and dropout one kernel (Megatron-LM)."""
    s = sizes(plan)
    biased, made = (s.half(s.hidden),) if plan.block.bias else (), {makes: s.stream}
    if plan.block.dropout:
        bits = Tensor(s.stream.shape, "bool")
        name = "bias_dropout_add" if biased else "dropout_add"
        return used(fused(name, phase, s.stream, *biased, s.stream, s.stream, bits), takes, **made, **{mask: bits})
    if biased:
        return used(fused("bias_add", phase, s.stream, *biased, s.stream, s.stream), takes, **made)
    return used(op("aten::add", phase, s.stream, s.stream), takes, **made)


def residual_backward(plan: TransformerPlan, gradient: str, mask: str, makes: str) -> tuple[Lines, str]:
    """Through the dropout, and of the bias, and the gradient's name; without both it goes on as it is."""
    s = sizes(plan)
    dropped: Lines = ()
    if plan.block.dropout:
        name = "bias_dropout_add_backward" if plan.block.bias else "dropout_add_backward"
        item = fused(name, B, s.stream, Tensor(s.stream.shape, "bool"), s.stream)
        dropped, gradient = used(item, f"{gradient} {mask}", **{makes: s.stream}), makes
    return (*dropped, *(bias_backward(s, s.resident, s.hidden, gradient) if plan.block.bias else ())), gradient


# The second half of a layer with experts: tokens go to the ranks of their experts and come back.
#
#     router -- softmax, top k -- permute -- all-to-all -- sort -- [f] experts [g] -- sort -- all-to-all -- weigh, add
#
# Two all-to-alls forward and two backward, over the replicas that hold a layer's experts together (Lepikhin et al.
# 2021, GShard, section 3; Rajbhandari et al. 2022, DeepSpeed-MoE; Megatron-LM, MoEAlltoAllTokenDispatcher). Of h
# hidden columns in b bytes each rank sends tokens x top_k x h x b, or with a capacity c: experts x ceil(c tokens x
# top_k / experts) x h x b, in each of them. Without a capacity nothing is padded: counts are gathered first and the
# host waits for them, since they are the sizes of messages; the busiest rank's load stands for all (an uneven
# exchange counts as the even one that keeps its busiest rank as busy).
#
# Experts of a rank are one batched product: rows divided evenly over them, as in grouped products with equal groups
# (Gale et al. 2023, MegaBlocks, section 4). With tensor parallelism, each rank routes its part of the sequence, its
# neighbors' rows are gathered and sums scattered around the experts (Megatron-LM demands sequence parallelism for
# that, too). Permutations and the weights of the router are kept for the backward pass.


def experts_forward(plan: TransformerPlan, phase: Phase) -> tuple[Lines, str]:
    """From `norm2` to what is added to the residual, and its name."""
    s, r = sizes(plan), routed(plan)
    rows, index = s.half(r.sent, s.hidden), Tensor((r.sent,), "int64")
    there, arrived = _to_experts(plan, phase, "rows", "")
    back, returned = _from_experts(plan, phase, "down", "")
    return (
        *_router(plan, phase),
        *used(_rows(plan, phase, r.sent), "norm2 order", rows=rows),  # a copy of each token for each of its experts
        *there,
        *_products(plan, phase, arrived),
        *back,
        *used(fused("mul", phase, rows, s.half(r.sent), rows), f"{returned} weights", weighed=rows),
        *used(op("aten::index_add", phase, s.stream, None, index, rows), "weighed order", down2=s.stream),
    ), "down2"


def experts_backward(plan: TransformerPlan, gradient: str) -> tuple[Lines, str]:
    """From the gradient of what was added to that of `norm2`, and its name."""
    s, r = sizes(plan), routed(plan)
    rows, weights, index = s.half(r.sent, s.hidden), s.half(r.sent), Tensor((r.sent,), "int64")
    _, arrived = _to_experts(plan, B, "rows", "")
    _, returned = _from_experts(plan, B, "down", "")
    there, received = _to_experts(plan, B, "d_returned", "d_")
    back, gone = _from_experts(plan, B, "d_given", "d_")
    return (
        *used(_rows(plan, B, r.sent), f"{gradient} order", d_weighed=rows),
        *used(fused("mul_mul_sum", B, rows, rows, weights, rows, weights), f"d_weighed {returned} weights",
              d_returned=rows, d_weights=weights),
        *there,
        *_products_backward(plan, received, arrived),
        *back,
        *used(op("aten::index_add", B, s.stream, None, index, rows), f"{gone} order", d_rows=s.stream),
        *_router_backward(plan),
    ), "d_norm2"  # fmt: skip


def _router(plan: TransformerPlan, phase: Phase) -> Lines:
    """Logits, their softmax in float32, the best k, the loss that balances, counts per expert."""
    assert plan.experts is not None, "only plans with experts have it"
    s, r, count, chosen = sizes(plan), routed(plan), plan.experts.count, plan.experts.top_k
    half, scores = s.half(s.resident, count), Tensor((s.resident, count), "float32")
    routes, picked_bytes = Tensor(scores.shape, "bool"), s.resident * chosen * (FLOAT_BYTES + INDEX_BYTES)
    topk = op("aten::topk", phase, scores, values=["", str(chosen)])
    counts: Lines = ()  # without a capacity: how many rows go where, known to the host before it sends them
    if plan.experts.capacity_factor is None:
        several = plan.parallelism.expert > 1
        gathered = (collective("all_gather", Group.EXPERT, Tensor((count,), "int64"), phase),) if several else ()
        counts = (*gathered, HostWait(phase))
    return (
        views(phase, "t"),
        *used(op("aten::mm", phase, s.stream, s.half(s.hidden, count)), "norm2", logits=half),
        *used(op("aten::copy_", phase, scores, half), "logits", wide=scores),
        *used(op("aten::_softmax", phase, scores), "wide", scores=scores),
        *used(topk, "scores", chosen=picked_bytes, routes=routes),
        *used(op("aten::sum", phase, scores, values=["", "[0]"]), "scores", load=count * FLOAT_BYTES),
        # of the loss (Fedus et al. 2022, equation 4)
        *used(op("aten::sum", phase, routes, values=["", "[0]"]), "routes load", counts=count * INDEX_BYTES),
        use("permutation", "chosen counts routes", order=r.sent * INDEX_BYTES, weights=s.half(r.sent).num_bytes),
        *counts,
    )


def _router_backward(plan: TransformerPlan) -> Lines:
    assert plan.experts is not None, "only plans with experts have it"
    s, count = sizes(plan), plan.experts.count
    half, scores = s.half(s.resident, count), Tensor((s.resident, count), "float32")
    weights = op("aten::mm", B, s.half(count, s.resident), s.stream, of_weights=True)
    return (
        *used(op("aten::_softmax_backward_data", B, scores, scores), "d_weights scores", d_wide=scores),
        *used(op("aten::copy_", B, half, scores), "d_wide", d_logits=half),
        *used(op("aten::mm", B, half, s.half(count, s.hidden)), "d_logits", d_routed=s.stream),
        *with_gradients(s, weights, "d_logits norm2", count * s.hidden),
        *used(op("aten::add", B, s.stream, s.stream), "d_routed d_rows", d_norm2=s.stream),
    )


def _rows(plan: TransformerPlan, phase: Phase, rows: int) -> Op:
    """So many rows in another order."""
    s = sizes(plan)
    return op("aten::index_select", phase, s.half(rows, s.hidden), None, Tensor((rows,), "int64"), values=["", "0"])


def _exchange(plan: TransformerPlan, phase: Phase) -> Transfer:
    s, r = sizes(plan), routed(plan)
    size = float(r.arriving * s.hidden * DTYPE_BYTES[s.dtype])
    return Transfer("all_to_all", Group.EXPERT, size, s.dtype, phase, awaited=True)


def _to_experts(plan: TransformerPlan, phase: Phase, name: str, prefix: str) -> tuple[Lines, str]:
    """Rows over the expert-parallel group, sorted by expert, and those of the tensor-parallel neighbors; their name."""
    r, arriving, _ = _row_tensors(plan)
    result: Lines = ()
    if plan.parallelism.expert > 1:
        result, name = used(_exchange(plan, phase), name, **{f"{prefix}arrived": arriving}), f"{prefix}arrived"
        if r.local > 1:
            result += used(_rows(plan, phase, r.arriving), name, **{f"{prefix}sorted": arriving})
            name = f"{prefix}sorted"
    if plan.splits_sequence:
        full_bytes = arriving.num_bytes * plan.parallelism.tensor
        result += used(collective("all_gather", Group.TENSOR, arriving, phase), name, **{f"{prefix}full2": full_bytes})
        name = f"{prefix}full2"
    return result, name


def _from_experts(plan: TransformerPlan, phase: Phase, name: str, prefix: str) -> tuple[Lines, str]:
    """The same way back: forward what experts made, backward the gradients of what they were given."""
    r, arriving, sent = _row_tensors(plan)
    result: Lines = ()
    if plan.splits_sequence:
        whole = Tensor((r.arriving * plan.parallelism.tensor, plan.model.hidden), arriving.dtype)
        result += used(collective("reduce_scatter", Group.TENSOR, whole, phase), name, **{f"{prefix}part2": arriving})
        name = f"{prefix}part2"
    if plan.parallelism.expert > 1:
        if r.local > 1:  # by the rank that they came from
            result += used(_rows(plan, phase, r.arriving), name, **{f"{prefix}back": arriving})
            name = f"{prefix}back"
        result += used(_exchange(plan, phase), name, **{f"{prefix}came": sent})
        name = f"{prefix}came"
    return result, name


def _row_tensors(plan: TransformerPlan) -> tuple[Routed, Tensor, Tensor]:
    """Sizes, the rows that arrive at a rank, and those that it sends."""
    s, r = sizes(plan), routed(plan)
    return r, s.half(r.arriving, s.hidden), s.half(r.sent, s.hidden)


def _products(plan: TransformerPlan, phase: Phase, takes: str) -> Lines:
    s, r = sizes(plan), routed(plan)
    up, rows = up_columns(plan, r.width), r.local * r.computed
    first = op("aten::bmm", phase, s.half(r.local, r.computed, s.hidden), s.half(r.local, s.hidden, up))
    last = op("aten::bmm", phase, s.half(r.local, r.computed, r.width), s.half(r.local, r.width, s.hidden))
    return (
        *used(first, takes, up=s.half(rows, up)),
        *activated(plan, phase, rows, r.width, bias=False, gate="up"),  # gate and up are halves of one product
        *used(last, "inner", down=s.half(rows, s.hidden)),
    )


def _products_backward(plan: TransformerPlan, gradient: str, data: str) -> Lines:
    r = routed(plan)
    apart = plan.block.kernels is Kernels.EAGER and plan.block.activation is Activation.SWIGLU
    gradients = "d_up d_gate" if apart else "d_up"
    return (
        *_batched_backward(plan, r.width, plan.model.hidden, (gradient, "inner"), "d_inner"),
        *activated_backward(plan, r.local * r.computed, r.width, bias=False, gate="up"),
        *_batched_backward(plan, plan.model.hidden, up_columns(plan, r.width), (gradients, data), "d_given"),
    )


def _batched_backward(plan: TransformerPlan, depth: int, columns: int, takes: tuple[str, str], makes: str) -> Lines:
    """Of [local, rows, depth] x [local, depth, columns]: gradients of input and weights, from that of the result."""
    s, r = sizes(plan), routed(plan)
    given, data = takes
    inputs = op("aten::bmm", B, s.half(r.local, r.computed, columns), s.half(r.local, columns, depth))
    weights = op("aten::bmm", B, s.half(r.local, depth, r.computed), s.half(r.local, r.computed, columns),
                 of_weights=True)  # fmt: skip
    return (
        *used(inputs, given, **{makes: s.half(r.local * r.computed, depth)}),
        *with_gradients(s, weights, f"{given} {data}", r.local * depth * columns),
    )
