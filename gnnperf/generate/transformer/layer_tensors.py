"""Which tensors the two halves of a layer take and make, op by op, in the order of layer.py and mlp.py.

    attention    x -> norm1 [-> full1] -> projections -> (rotary) -> core -> projected [-> scattered] -> x1
    MLP          x1 -> norm2 [-> full2] -> up -> activation -> down [-> scattered] -> y

In brackets: with sequence parallelism the input of a product is gathered, and gathered again backward, so that a rank
keeps its part only; the product's result is scattered. A weight's gradient is made, added to the sum over micro-batches
and gone; where gradients leave in every pass it stays until the unit's gradients are sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from gnnperf.generate.transformer.block import Activation, Attention, Kernels, Norm, Positions
from gnnperf.generate.transformer.layer import FLASH, projections
from gnnperf.generate.transformer.mlp import first_products
from gnnperf.generate.transformer.plan import TransformerPlan
from gnnperf.generate.transformer.sizes import Sizes, sizes
from gnnperf.generate.uses import Use, use
from gnnperf.graph import DTYPE_BYTES

FLOAT_BYTES, INDEX_BYTES = DTYPE_BYTES["float32"], DTYPE_BYTES["int64"]
Uses = tuple[Use, ...]
ADDED = Use("aten::add_", ("d_weight",), of_weights=True)
TRITON = "triton_poi_fused_"
GATHER, SCATTER = "all_gather", "reduce_scatter"  # no ops: they are not checked against the program


def x_bytes(s: Sizes) -> int:
    """What goes into a layer's products."""
    return s.x.num_bytes


def stream_bytes(s: Sizes) -> int:
    """What goes around them; with sequence parallelism a part of it."""
    return s.stream.num_bytes


def weight_gradient(
    s: Sizes, takes: str, elements: int, op: str = "aten::mm", *, of_weights: bool = True
) -> Uses:  # fmt: skip
    """A weight's gradient, and where it goes; `of_weights`: see Use, of the op that makes it."""
    num_bytes, given = s.half(elements).num_bytes, tuple(takes.split())
    if not s.adds_gradients:
        return (Use(op, given, (), (num_bytes,), of_weights),)
    return (Use(op, given, (("d_weight", num_bytes),), (), of_weights), ADDED)


# Norms.


def norm(plan: TransformerPlan, takes: str, makes: str) -> Uses:
    """Forward; its statistics end with the name of its result."""
    s = sizes(plan)
    row, out = s.resident * FLOAT_BYTES, stream_bytes(s)
    if plan.block.norm is Norm.RMS:
        return (use("aten::_fused_rms_norm", takes, **{makes: out, f"rstd_{makes}": row}),)
    return (use("aten::native_layer_norm", takes, **{makes: out, f"mean_{makes}": row, f"rstd_{makes}": row}),)


def norm_backward(plan: TransformerPlan, gradient: str, takes: str, forward: str, makes: str) -> Uses:
    """Of `forward`'s norm, whose input was `takes`."""
    s = sizes(plan)
    rms = plan.block.norm is Norm.RMS
    op = "aten::_fused_rms_norm_backward" if rms else "aten::native_layer_norm_backward"
    given = f"{gradient} {takes} rstd_{forward}" + ("" if rms else f" mean_{forward}")
    names, weight = ("d_scale",) if rms else ("d_scale", "d_shift"), s.half(s.hidden).num_bytes
    out = {makes: stream_bytes(s)}
    if not s.adds_gradients:
        return (Use(op, tuple(given.split()), tuple(out.items()), (weight,) * len(names)),)
    return (
        use(op, given, **out, **dict.fromkeys(names, weight)),
        *(Use("aten::add_", (name,), of_weights=True) for name in names),
    )


# What tensor-parallel ranks exchange.


def gathered(plan: TransformerPlan, takes: str, makes: str) -> tuple[Uses, str]:
    """The whole sequence, and its name; without sequence parallelism nothing happens."""
    s = sizes(plan)
    return ((use(GATHER, takes, **{makes: x_bytes(s)}),), makes) if plan.splits_sequence else ((), takes)


def scattered(plan: TransformerPlan, takes: str, makes: str) -> tuple[Uses, str]:
    """The rank's part, and its name."""
    s = sizes(plan)
    return ((use(SCATTER, takes, **{makes: stream_bytes(s)}),), makes) if plan.splits_sequence else ((), takes)


# Residuals.


def residual(plan: TransformerPlan, takes: str, makes: str, mask: str) -> Use:
    """What a half made, added to what went around it."""
    s, block = sizes(plan), plan.block
    if block.dropout:
        name = "bias_dropout_add" if block.bias else "dropout_add"
        return use(f"{TRITON}{name}", takes, **{makes: stream_bytes(s), mask: s.stream.numel})
    return use(f"{TRITON}bias_add" if block.bias else "aten::add", takes, **{makes: stream_bytes(s)})


def residual_backward(plan: TransformerPlan, gradient: str, mask: str, makes: str) -> tuple[Uses, str]:
    """Through the dropout and of the bias, and the name of the gradient; without dropout it is the one given."""
    s, block = sizes(plan), plan.block
    dropped: Uses = ()
    if block.dropout:
        name = "bias_dropout_add_backward" if block.bias else "dropout_add_backward"
        dropped, gradient = (use(f"{TRITON}{name}", f"{gradient} {mask}", **{makes: stream_bytes(s)}),), makes
    return (*dropped, *(bias_gradient(s, gradient, s.hidden) if block.bias else ())), gradient


def bias_gradient(s: Sizes, gradient: str, columns: int) -> Uses:
    """A sum over tokens."""
    return weight_gradient(s, gradient, columns, "aten::sum")


@dataclass(frozen=True)
class Product:
    """Backward of products behind f: gradient, columns and result of each.

    Attributes:
        gradient: of the product's result, by name.
        columns: of it on this rank.
    """

    gradient: str
    columns: int


def first_products_backward(
    plan: TransformerPlan, products: tuple[Product, ...], data: str, makes: str, after: Uses
) -> tuple[Uses, str]:
    """Gradients of products that share their input, and the name of its gradient; `data` is the rank's input."""
    s = sizes(plan)
    x = x_bytes(s)

    def added(place: int) -> Uses:
        """Sums of the products' gradients: the first product makes `makes_0`, each further one is added to it."""
        return (use("aten::add", f"{makes}_{place} {makes}_sum{place - 1}" if place > 1 else f"{makes}_1 {makes}_0",
                    **{f"{makes}_sum{place}": x}),) if place else ()  # fmt: skip

    last = f"{makes}_sum{len(products) - 1}" if len(products) > 1 else f"{makes}_0"
    inputs = [
        (use("aten::mm", each.gradient, **{f"{makes}_{place}": x}), *added(place))
        for place, each in enumerate(products)
    ]
    if not plan.splits_sequence:
        # a gradient of an input, of a weight, then the sum
        both = [
            (first[0], *weight_gradient(s, f"{each.gradient} {data}", s.hidden * each.columns), *first[1:])
            for first, each in zip(inputs, products, strict=True)
        ]
        return (*(item for each in both for item in each), *after), last
    again, scattered_name = f"again_{data}", makes
    weights = [weight_gradient(s, f"{each.gradient} {again}", s.hidden * each.columns) for each in products]
    return (
        use(GATHER, data, **{again: x}),
        *(item for each in inputs for item in each),
        use(SCATTER, last, **{scattered_name: stream_bytes(s)}),
        *(item for each in weights for item in each),
        *after,
        use("scattered", last),  # its input is in use until the result has arrived
    ), scattered_name


# Attention.


def columns_of(plan: TransformerPlan) -> tuple[str, ...]:
    """Names of what the projections make."""
    return ("qkv",) if plan.block.kernels is Kernels.FUSED else ("q", "k", "v")


def attention_forward(plan: TransformerPlan) -> Uses:
    """From the layer's input `x` to `x1`."""
    s = sizes(plan)
    full, data = gathered(plan, "norm1", "full1")
    op = "aten::addmm" if plan.block.bias else "aten::mm"
    made = zip(columns_of(plan), projections(plan), strict=True)
    part, out = scattered(plan, "projected", "scattered1")
    return (
        *norm(plan, "x", "norm1"),
        *full,
        *(use(op, data, **{name: s.half(s.tokens, columns).num_bytes}) for name, columns in made),
        *_turned(plan),
        *core(plan),
        *(
            (use("aten::copy_", "heads", context=s.half(s.tokens, s.shard).num_bytes),)
            if plan.block.attention is Attention.UNFUSED
            else ()
        ),
        use("aten::mm", context(plan), projected=x_bytes(s)),
        *part,
        residual(plan, f"{out} x", "x1", "mask1"),
    )


def context(plan: TransformerPlan) -> str:
    """Name of what the last projection takes."""
    return "context" if plan.block.attention is Attention.UNFUSED else "heads"


def _turned(plan: TransformerPlan) -> Uses:
    """Queries and keys with their positions; turned ones are tensors of their own."""
    if plan.block.positions is Positions.LEARNED:
        return ()
    s = sizes(plan)
    pairs = (("q", s.shard), ("k", s.key_heads * s.head))
    if plan.block.kernels is Kernels.FUSED:
        return tuple(use(f"{TRITON}rotary", "qkv", **{name: s.half(s.tokens, c).num_bytes}) for name, c in pairs)
    return tuple(item for name, columns in pairs for item in _turned_by_parts(s, name, columns))


def _turned_by_parts(s: Sizes, name: str, columns: int) -> Uses:
    """To float32, multiplied, and back; the tensor takes the name of the one before."""
    wide, half = s.tokens * columns * FLOAT_BYTES, s.half(s.tokens, columns).num_bytes
    return (
        use("aten::copy_", name, **{f"{name}_wide": wide}),
        use("aten::mul", f"{name}_wide", **{f"{name}_turned": wide}),
        use("aten::copy_", f"{name}_turned", **{name: half}),
    )


def _queries_keys_values(plan: TransformerPlan) -> tuple[str, str, str]:
    """Names of what the core takes; views of the projection's columns where nothing turned them."""
    if plan.block.kernels is Kernels.EAGER:
        return "q", "k", "v"
    return ("qkv", "qkv", "qkv") if plan.block.positions is Positions.LEARNED else ("q", "k", "qkv")


def core(plan: TransformerPlan) -> Uses:
    """What selective recomputation repeats; the product of scores is given a buffer of their size to add to."""
    s = sizes(plan)
    q, k, v = _queries_keys_values(plan)
    scores, part = s.scores.num_bytes, s.half(s.tokens, s.shard).num_bytes
    if plan.block.attention is Attention.FLASH:
        rows = s.batch_heads * s.sequence * FLOAT_BYTES
        return (use(FLASH, " ".join(dict.fromkeys((q, k, v))), heads=part, sums=rows),)
    dropout = plan.block.dropout
    dropped = (use(f"{TRITON}native_dropout", "probabilities", dropped=scores, retained=s.scores.numel),)
    return (
        use("aten::baddbmm", " ".join(dict.fromkeys((q, k))), buffer=scores, scores=scores),
        use("aten::_softmax", "scores", probabilities=scores),
        *(dropped if dropout else ()),
        use("aten::bmm", f"{'dropped' if dropout else 'probabilities'} {v}", heads=part),
    )


def attention_backward(plan: TransformerPlan, again: Uses) -> Uses:
    """From `d_sum`, the gradient of `x1`, to `dx`; `again` is what selective recomputation repeats."""
    s = sizes(plan)
    into, gradient = residual_backward(plan, "d_sum", "mask1", "d_projected")
    full, whole = gathered(plan, gradient, "d_full1")
    part = s.half(s.tokens, s.shard).num_bytes
    biased = bias_gradient(s, "d_qkv", s.projected) if plan.block.bias else ()
    names = ("d_qkv",) if plan.block.kernels is Kernels.FUSED else ("d_q", "d_k", "d_v")
    products = tuple(Product(name, columns) for name, columns in zip(names, projections(plan), strict=True))
    first, d_norm = first_products_backward(plan, products, "norm1", "d_norm1", biased)
    return (
        *into,
        *full,
        use("aten::mm", whole, d_heads=part),
        *weight_gradient(s, f"{whole} {context(plan)}", s.shard * s.hidden),
        *again,
        *(_flash_backward(plan) if plan.block.attention is Attention.FLASH else _unfused_backward(plan)),
        *first,
        *norm_backward(plan, d_norm, "x", "norm1", "d_x"),
        use("aten::add", "d_x d_sum", dx=stream_bytes(s)),
    )


def _flash_backward(plan: TransformerPlan) -> Uses:
    s = sizes(plan)
    q, k, v = _queries_keys_values(plan)
    part, keys = (s.half(s.tokens, columns).num_bytes for columns in (s.shard, s.key_heads * s.head))
    takes = " ".join(dict.fromkeys(("d_heads", q, k, v, "heads", "sums")))
    backward = use(f"{FLASH}_backward", takes, d_q=part, d_k=keys, d_v=keys)
    return (backward, *_turned_backward(plan), *(_joined(plan) if plan.block.kernels is Kernels.FUSED else ()))


def _turned_backward(plan: TransformerPlan) -> Uses:
    if plan.block.positions is Positions.LEARNED:
        return ()
    s = sizes(plan)
    pairs = (("d_q", s.shard), ("d_k", s.key_heads * s.head))
    if plan.block.kernels is Kernels.FUSED:
        return tuple(use(f"{TRITON}rotary", name, **{name: s.half(s.tokens, c).num_bytes}) for name, c in pairs)
    return tuple(item for name, columns in pairs for item in _turned_by_parts(s, name, columns))


def _joined(plan: TransformerPlan) -> Uses:
    """Gradients of queries, keys and values, copied side by side."""
    s = sizes(plan)
    return (use("aten::copy_", "d_q d_k d_v", d_qkv=s.half(s.tokens, s.projected).num_bytes),)


def _unfused_backward(plan: TransformerPlan) -> Uses:
    s = sizes(plan)
    q, k, v = _queries_keys_values(plan)
    scores, part = s.scores.num_bytes, s.half(s.tokens, s.shard).num_bytes
    dropout = plan.block.dropout
    dropped = (use(f"{TRITON}native_dropout_backward", "d_dropped retained", d_probabilities=scores),)
    return (
        use("aten::bmm", f"d_heads {v}", d_dropped=scores),
        use("aten::bmm", f"d_heads {'dropped' if dropout else 'probabilities'}", d_v=part),
        *(dropped if dropout else ()),
        use("aten::_softmax_backward_data", f"{'d_probabilities' if dropout else 'd_dropped'} probabilities",
            d_scores=scores),
        use("aten::bmm", f"d_scores {k}", d_queries=part),
        use("aten::bmm", f"d_scores {q}", d_keys=part),
        use("aten::mul", "d_queries", d_q=part),
        use("aten::mul", "d_keys", d_k=part),
        *_turned_backward(plan),
        *_joined(plan),
    )  # fmt: skip


# The MLP.


def mlp_forward(plan: TransformerPlan) -> Uses:
    """From `norm2` to what is added to the residual, `down` or `scattered2`."""
    s = sizes(plan)
    full, data = gathered(plan, "norm2", "full2")
    part, _ = scattered(plan, "down", "scattered2")
    made = zip(up_names(plan), first_products(plan, s.width), strict=True)
    return (
        *full,
        *(use("aten::mm", data, **{name: s.half(s.tokens, columns).num_bytes}) for name, columns in made),
        *activated(plan, s.tokens, s.width, bias=plan.block.bias),
        use("aten::mm", "inner", down=x_bytes(s)),
        *part,
    )


def up_names(plan: TransformerPlan) -> tuple[str, ...]:
    """Names of what the first products make."""
    gated = plan.block.activation is Activation.SWIGLU
    return ("gate", "up") if gated and plan.block.kernels is Kernels.EAGER else ("up",)


def activated(plan: TransformerPlan, rows: int, width: int, *, bias: bool) -> Uses:
    """The activation, which makes `inner`."""
    inner = sizes(plan).half(rows, width).num_bytes
    gated = plan.block.activation is Activation.SWIGLU
    if plan.block.kernels is Kernels.EAGER:
        if not gated:
            return (use("aten::gelu", "up", inner=inner),)
        return (use("aten::silu", "gate", opened=inner), use("aten::mul", "opened up", inner=inner))
    name = "silu_mul" if gated else "bias_gelu" if bias else "gelu"
    return (use(f"{TRITON}{name}", "up", inner=inner),)


def activated_backward(plan: TransformerPlan, rows: int, width: int, *, bias: bool) -> Uses:
    """From `d_inner` to `d_up` and, where it is a tensor of its own, `d_gate`."""
    s = sizes(plan)
    inner, gated = s.half(rows, width).num_bytes, plan.block.activation is Activation.SWIGLU
    columns = 2 * width if gated else width
    if plan.block.kernels is Kernels.EAGER:
        if not gated:
            return (use("aten::gelu_backward", "d_inner up", d_up=inner),)
        return (
            use("aten::mul", "d_inner up", d_opened=inner),
            use("aten::mul", "d_inner opened", d_up=inner),
            use("aten::silu_backward", "d_opened gate", d_gate=inner),
        )
    name = "silu_mul_backward" if gated else "bias_gelu_backward" if bias else "gelu_backward"
    backward = use(f"{TRITON}{name}", "d_inner up", d_up=s.half(rows, columns).num_bytes)
    return (backward, *(bias_gradient(s, "d_up", columns) if bias else ()))


def mlp_backward(plan: TransformerPlan, gradient: str) -> tuple[Uses, str]:
    """From the gradient of what was added to that of `norm2`, and the latter's name."""
    s = sizes(plan)
    full, whole = gathered(plan, gradient, "d_full2")
    columns = first_products(plan, s.width)
    products = tuple(Product(f"d_{name}", c) for name, c in zip(up_names(plan), columns, strict=True))
    first, d_norm = first_products_backward(plan, products, "norm2", "d_norm2", ())
    return (
        *full,
        use("aten::mm", whole, d_inner=s.half(s.tokens, s.width).num_bytes),
        *weight_gradient(s, f"{whole} inner", s.width * s.hidden),
        *activated_backward(plan, s.tokens, s.width, bias=plan.block.bias),
        *first,
    ), d_norm
