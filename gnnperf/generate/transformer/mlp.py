"""Between the MLP's products, and its residual: what is computed element by element."""

from __future__ import annotations

from gnnperf.core import Phase
from gnnperf.generate.transformer.block import Activation, Kernels
from gnnperf.generate.transformer.items import (
    Group,
    HostWait,
    Item,
    Transfer,
    all_gather,
    fused,
    op,
    reduce_scatter,
    views,
)
from gnnperf.generate.transformer.plan import TransformerPlan
from gnnperf.generate.transformer.sizes import Sizes, routed, sizes
from gnnperf.graph import DTYPE_BYTES, Tensor

# Products and their gradients, biases, and where gradients of micro-batches are added up.

B = Phase.BACKWARD


def product(s: Sizes, phase: Phase, depth: int, columns: int) -> tuple[Item, ...]:
    """[tokens, depth] x [depth, columns], a linear layer without its bias."""
    return (views(phase, "t", "reshape"), op("aten::mm", phase, s.half(s.tokens, depth), s.half(depth, columns)))


def input_gradient(s: Sizes, rows: int, depth: int, columns: int) -> tuple[Item, ...]:
    """Of [rows, depth] x [depth, columns]."""
    return (views(B, "reshape", "t"), op("aten::mm", B, s.half(rows, columns), s.half(columns, depth)))


def weight_gradient(s: Sizes, rows: int, depth: int, columns: int) -> tuple[Item, ...]:
    """Of [rows, depth] x [depth, columns], added to that of earlier micro-batches."""
    return (
        views(B, "t", "t"),
        op("aten::mm", B, s.half(columns, rows), s.half(rows, depth), of_weights=True),
        views(B, "reshape", "t"),
        *accumulate(s, columns * depth),
    )


def product_backward(s: Sizes, rows: int, depth: int, columns: int) -> tuple[Item, ...]:
    """Of [rows, depth] x [depth, columns]: gradients of input and weight."""
    return (*input_gradient(s, rows, depth, columns), *weight_gradient(s, rows, depth, columns))


def bias_backward(s: Sizes, rows: int, columns: int) -> tuple[Item, ...]:
    """A sum over tokens."""
    grad = s.half(rows, columns)
    summed = op("aten::sum", B, grad, None, None, values=["", "[0]", "True"], of_weights=True)
    return (summed, *accumulate(s, columns))


def accumulate(s: Sizes, parameters: int) -> tuple[Item, ...]:
    """A weight's gradient, added to the sum over micro-batches; nothing where it leaves the rank in every pass."""
    if not s.adds_gradients:
        return ()
    held = Tensor((parameters,), s.gradient_dtype)
    return (op("aten::add_", B, held, s.half(parameters), of_weights=True),)


def up_columns(plan: TransformerPlan, width: int) -> int:
    """What the first product makes: with SwiGLU gate and up side by side."""
    return 2 * width if plan.block.activation is Activation.SWIGLU else width


def first_products(plan: TransformerPlan, width: int) -> tuple[int, ...]:
    """Columns of the products before the activation: gate and up in one, or one after the other."""
    whole = up_columns(plan, width)
    return (width,) * (whole // width) if plan.block.kernels is Kernels.EAGER else (whole,)


def activated(plan: TransformerPlan, phase: Phase, rows: int, width: int, *, bias: bool) -> tuple[Item, ...]:
    """[rows, up columns] -> [rows, width]; Megatron-LM's fused bias and GELU, or fused SwiGLU; or torch's ops."""
    s = sizes(plan)
    wide, inner = s.half(rows, up_columns(plan, width)), s.half(rows, width)
    gated, eager = plan.block.activation is Activation.SWIGLU, plan.block.kernels is Kernels.EAGER
    if eager:
        return (
            (op("aten::silu", phase, inner), op("aten::mul", phase, inner, inner))
            if gated
            else (op("aten::gelu", phase, inner),)
        )
    if gated:
        return (fused("silu_mul", phase, wide, *((s.half(2 * width),) if bias else ()), inner),)
    return (fused("bias_gelu", phase, wide, s.half(width), inner) if bias else fused("gelu", phase, wide, inner),)


def activated_backward(plan: TransformerPlan, rows: int, width: int, *, bias: bool) -> tuple[Item, ...]:
    """Gradient of the first products' results, and of their bias."""
    s = sizes(plan)
    columns = up_columns(plan, width)
    wide, inner = s.half(rows, columns), s.half(rows, width)
    gated, eager = plan.block.activation is Activation.SWIGLU, plan.block.kernels is Kernels.EAGER
    if eager:
        factors = (op("aten::mul", B, inner, inner),) * 2  # of the product: each by the other
        last = op("aten::silu_backward", B, inner, inner) if gated else op("aten::gelu_backward", B, inner, inner)
        return (*(factors if gated else ()), last)
    name = "silu_mul_backward" if gated else "bias_gelu_backward" if bias else "gelu_backward"
    return (fused(name, B, inner, wide, wide), *(bias_backward(s, rows, columns) if bias else ()))


def residual(plan: TransformerPlan, phase: Phase) -> Item:
    """What a layer's half made, added to what went around it: with bias and dropout one kernel (Megatron-LM)."""
    s = sizes(plan)
    biased = (s.half(s.hidden),) if plan.block.bias else ()
    if plan.block.dropout:
        return fused("bias_dropout_add" if biased else "dropout_add", phase, s.stream, *biased, s.stream, s.stream,
                     Tensor(s.stream.shape, "bool"))  # fmt: skip
    return (
        fused("bias_add", phase, s.stream, *biased, s.stream, s.stream)
        if biased
        else op("aten::add", phase, s.stream, s.stream)
    )


def residual_backward(plan: TransformerPlan) -> tuple[Item, ...]:
    """Through the dropout, and of the bias; without both the gradient goes on as it is."""
    s = sizes(plan)
    dropped = (fused("bias_dropout_add_backward" if plan.block.bias else "dropout_add_backward", B, s.stream,
                     Tensor(s.stream.shape, "bool"), s.stream),) if plan.block.dropout else ()  # fmt: skip
    return (*dropped, *(bias_backward(s, s.resident, s.hidden) if plan.block.bias else ()))


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
# that, too).


def experts_forward(plan: TransformerPlan, phase: Phase) -> tuple[Item, ...]:
    """From the norm's output to what is added to the residual."""
    s, r = sizes(plan), routed(plan)
    return (
        *_router(plan, phase),
        _rows(plan, phase, r.sent),  # a copy of each token for each of its experts
        *_exchange(plan, phase),
        *_sorted(plan, phase),
        *_gathered(plan, phase),
        *_products(plan, phase),
        *_scattered(plan, phase),
        *_sorted(plan, phase),
        *_exchange(plan, phase),
        fused(
            "mul", phase, s.half(r.sent, s.hidden), s.half(r.sent), s.half(r.sent, s.hidden)
        ),  # by the router's weight
        op("aten::index_add", phase, s.stream, None, Tensor((r.sent,), "int64"), s.half(r.sent, s.hidden)),
    )


def experts_backward(plan: TransformerPlan) -> tuple[Item, ...]:
    """From the gradient of what was added to that of the norm's output."""
    s, r = sizes(plan), routed(plan)
    rows = s.half(r.sent, s.hidden)
    return (
        _rows(plan, B, r.sent),
        fused("mul_mul_sum", B, rows, rows, s.half(r.sent), rows, s.half(r.sent)),  # of rows and of their weights
        *_exchange(plan, B),
        *_sorted(plan, B),
        *_gathered(plan, B),
        *_products_backward(plan),
        *_scattered(plan, B),
        *_sorted(plan, B),
        *_exchange(plan, B),
        op("aten::index_add", B, s.stream, None, Tensor((r.sent,), "int64"), rows),
        *_router_backward(plan),
    )


def _router(plan: TransformerPlan, phase: Phase) -> tuple[Item, ...]:
    """Logits, their softmax in float32, the best k, the loss that balances, counts per expert."""
    assert plan.experts is not None, "only plans with experts have it"
    s, count = sizes(plan), plan.experts.count
    scores = Tensor((s.resident, count), "float32")
    return (
        views(phase, "t"),
        op("aten::mm", phase, s.stream, s.half(s.hidden, count)),
        op("aten::copy_", phase, scores, s.half(s.resident, count)),
        op("aten::_softmax", phase, scores),
        op("aten::topk", phase, scores, values=["", str(plan.experts.top_k)]),
        op("aten::sum", phase, scores, values=["", "[0]"]),  # of the loss (Fedus et al. 2022, equation 4)
        op("aten::sum", phase, Tensor(scores.shape, "bool"), values=["", "[0]"]),
        *_counted(plan, phase),
    )


def _counted(plan: TransformerPlan, phase: Phase) -> tuple[Item, ...]:
    """Without a capacity: how many rows go where, known to the host before it sends them."""
    assert plan.experts is not None, "only plans with experts have it"
    if plan.experts.capacity_factor is not None:
        return ()
    several = plan.parallelism.expert > 1
    counts = (all_gather(Group.EXPERT, Tensor((plan.experts.count,), "int64"), phase),) if several else ()
    return (*counts, HostWait(phase))


def _router_backward(plan: TransformerPlan) -> tuple[Item, ...]:
    assert plan.experts is not None, "only plans with experts have it"
    s, count = sizes(plan), plan.experts.count
    scores = Tensor((s.resident, count), "float32")
    return (
        op("aten::_softmax_backward_data", B, scores, scores),
        op("aten::copy_", B, s.half(s.resident, count), scores),
        op("aten::mm", B, s.half(s.resident, count), s.half(count, s.hidden)),
        op("aten::mm", B, s.half(count, s.resident), s.stream, of_weights=True),
        *accumulate(s, count * s.hidden),
        op("aten::add", B, s.stream, s.stream),
    )


def _rows(plan: TransformerPlan, phase: Phase, rows: int) -> Item:
    """So many rows in another order."""
    s = sizes(plan)
    return op("aten::index_select", phase, s.half(rows, s.hidden), None, Tensor((rows,), "int64"), values=["", "0"])


def _sorted(plan: TransformerPlan, phase: Phase) -> tuple[Item, ...]:
    """Rows of each local expert side by side, or by the rank that they came from."""
    r = routed(plan)
    return (_rows(plan, phase, r.arriving),) if r.local > 1 and plan.parallelism.expert > 1 else ()


def _exchange(plan: TransformerPlan, phase: Phase) -> tuple[Item, ...]:
    if plan.parallelism.expert == 1:
        return ()
    s, r = sizes(plan), routed(plan)
    size = float(r.arriving * s.hidden * DTYPE_BYTES[s.dtype])
    return (Transfer("all_to_all", Group.EXPERT, size, s.dtype, phase, awaited=True),)


def _gathered(plan: TransformerPlan, phase: Phase) -> tuple[Item, ...]:
    s, r = sizes(plan), routed(plan)
    return (all_gather(Group.TENSOR, s.half(r.arriving, s.hidden), phase),) if plan.splits_sequence else ()


def _scattered(plan: TransformerPlan, phase: Phase) -> tuple[Item, ...]:
    s, r = sizes(plan), routed(plan)
    whole = s.half(r.arriving * plan.parallelism.tensor, s.hidden)
    return (reduce_scatter(Group.TENSOR, whole, phase),) if plan.splits_sequence else ()


def _products(plan: TransformerPlan, phase: Phase) -> tuple[Item, ...]:
    s, r = sizes(plan), routed(plan)
    up = up_columns(plan, r.width)
    return (
        op("aten::bmm", phase, s.half(r.local, r.computed, s.hidden), s.half(r.local, s.hidden, up)),
        *activated(plan, phase, r.local * r.computed, r.width, bias=False),
        op("aten::bmm", phase, s.half(r.local, r.computed, r.width), s.half(r.local, r.width, s.hidden)),
    )


def _products_backward(plan: TransformerPlan) -> tuple[Item, ...]:
    s, r = sizes(plan), routed(plan)
    return (
        *_batched_backward(plan, r.width, s.hidden),
        *activated_backward(plan, r.local * r.computed, r.width, bias=False),
        *_batched_backward(plan, s.hidden, up_columns(plan, r.width)),
    )


def _batched_backward(plan: TransformerPlan, depth: int, columns: int) -> tuple[Item, ...]:
    """Of [local, rows, depth] x [local, depth, columns]: gradients of input and weights."""
    s, r = sizes(plan), routed(plan)
    return (
        op("aten::bmm", B, s.half(r.local, r.computed, columns), s.half(r.local, columns, depth)),
        op("aten::bmm", B, s.half(r.local, depth, r.computed), s.half(r.local, r.computed, columns), of_weights=True),
        *accumulate(s, r.local * depth * columns),
    )
