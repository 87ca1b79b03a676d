"""Between the MLP's products, and its residual: what is computed element by element."""

from __future__ import annotations

from gnnperf.core import Phase
from gnnperf.generate.transformer.block import Activation, Kernels
from gnnperf.generate.transformer.items import Item, fused, op, views
from gnnperf.generate.transformer.plan import TransformerPlan
from gnnperf.generate.transformer.sizes import Sizes, sizes
from gnnperf.graph import Tensor

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
        op("aten::mm", B, s.half(columns, rows), s.half(rows, depth)),
        views(B, "reshape", "t"),
        *accumulate(s, columns * depth),
    )


def product_backward(s: Sizes, rows: int, depth: int, columns: int) -> tuple[Item, ...]:
    """Of [rows, depth] x [depth, columns]: gradients of input and weight."""
    return (*input_gradient(s, rows, depth, columns), *weight_gradient(s, rows, depth, columns))


def bias_backward(s: Sizes, rows: int, columns: int) -> tuple[Item, ...]:
    """A sum over tokens."""
    grad = s.half(rows, columns)
    return (op("aten::sum", B, grad, None, None, values=["", "[0]", "True"]), *accumulate(s, columns))


def accumulate(s: Sizes, parameters: int) -> tuple[Item, ...]:
    """A weight's gradient, added to the sum over micro-batches; nothing where it leaves the rank in every pass."""
    if not s.adds_gradients:
        return ()
    return (op("aten::add_", B, Tensor((parameters,), s.gradient_dtype), s.half(parameters)),)


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
