"""One transformer layer on one tensor-parallel rank, forward and backward, op by op.

    x -- norm -- f -- qkv -- attention -- projection -- g -- + -- norm -- f -- up -- activation -- down -- g -- +
      `------------------------------------------------------'  `-----------------------------------------------'

As the block is by default, this is Megatron-LM of 2021 and 2022: unfused attention; scale, mask and softmax, bias and
GELU, bias, dropout and addition fused. The second half may be experts. A product's backward pass is two products;
every weight's gradient is added to those of earlier micro-batches, unless it is sent on in every pass. Ops that launch
nothing stand where torch's profiler shows them for this code; frames around ops (autograd's nodes, aten::linear) do
not.

Names of tensors, for the account of memory:

    attention    x -> norm1 [-> full_norm1] -> qkv -> heads -> context -> projected [-> part_projected] -> x1
    MLP          x1 -> norm2 [-> full_norm2] -> up -> inner -> down [-> part_down] -> y

In brackets: with sequence parallelism the input of a product is gathered, and gathered again backward, so that a rank
keeps its part only; the product's result is scattered.
"""

from collections.abc import Sequence

from gnnperf.core import Phase
from gnnperf.generate.transformer import mlp
from gnnperf.generate.transformer.block import Attention, Kernels, Norm, Positions
from gnnperf.generate.transformer.context import flash, once
from gnnperf.generate.transformer.items import Await, Group, Lane, Record, collective, fused, op, used, views
from gnnperf.generate.transformer.mlp import B, Lines, product, with_gradients
from gnnperf.generate.transformer.plan import Recompute, TransformerPlan
from gnnperf.generate.transformer.sizes import Sizes, sizes
from gnnperf.generate.uses import use
from gnnperf.graph import Tensor

# Between the product that makes queries, keys and values and the one that takes the context: forward, backward.
#
# Unfused: Megatron-LM's CoreAttention (scale, mask and softmax in one kernel; dropout in one). Flash: torch's
# scaled_dot_product_attention with its flash kernel, causal, dropout inside; fewer heads of keys are not repeated
# (enable_gqa). Rotary positions turn queries and keys by one kernel each, both ways.


def attention(plan: TransformerPlan, phase: Phase) -> Lines:
    """From the projection's columns, by views as heads, to the context's."""
    split: tuple[str, ...] = ("view", "split_with_sizes", *("view",) * 3, *("transpose",) * 3)
    last: Lines = (views(phase, "transpose", "reshape"),)
    if plan.block.attention is Attention.UNFUSED:  # heads of the context as columns again
        part = sizes(plan).half(sizes(plan).tokens, sizes(plan).shard)
        copied = used(op("aten::copy_", phase, part, part), "heads", context=part)
        split = ("view", "view", *("narrow",) * 3, "reshape", "reshape", "empty")
        last = (views(phase, "view", "permute", "empty_like"), *copied, views(phase, "view"))
    return (views(phase, *split), *_turned(plan, phase, ""), *core(plan, phase), *last)


def core(plan: TransformerPlan, phase: Phase) -> Lines:
    """Scores, their softmax and dropout, context: what selective recomputation repeats."""
    if plan.block.attention is Attention.FLASH:
        return tuple(flash(plan, _queries_keys_values(plan)).forward(phase))
    return _unfused(sizes(plan), plan, phase)


def attention_backward(plan: TransformerPlan) -> Lines:
    """From the context's gradient `d_heads` to that of queries, keys and values side by side."""
    s = sizes(plan)
    if plan.block.attention is Attention.FLASH:
        backward, transposed = flash(plan, _queries_keys_values(plan)).backward(), ("transpose",) * 3
        first: Lines = (views(B, "reshape", "transpose"), *backward, views(B, *transposed))
    else:
        first = _unfused_backward(s, plan)
    joined, whole = plan.block.kernels is Kernels.FUSED, s.half(s.tokens, s.projected)  # copied side by side
    last = used(op("aten::copy_", B, whole, whole), "d_q d_k d_v", d_qkv=whole) if joined else ()
    return (*first, *_turned(plan, B, "d_"), *last)


def projections(plan: TransformerPlan) -> tuple[tuple[str, int], ...]:
    """Names and columns of what makes queries, keys and values: all in one product, or one after the other."""
    s = sizes(plan)
    keys = s.key_heads * s.head
    if plan.block.kernels is Kernels.EAGER:
        return ("q", s.shard), ("k", keys), ("v", keys)
    return (("qkv", s.projected),)


def _turned(plan: TransformerPlan, phase: Phase, prefix: str) -> Lines:
    """Queries and keys with their positions, or their gradients; turned ones are tensors of their own."""
    if plan.block.positions is Positions.LEARNED:
        return ()
    s = sizes(plan)
    shapes = {f"{prefix}q": (s.tokens, s.shard), f"{prefix}k": (s.tokens, s.key_heads * s.head)}
    if plan.block.kernels is Kernels.EAGER:
        return tuple(line for name, shape in shapes.items() for line in _turned_by_parts(s, phase, name, shape))
    return tuple(
        line
        for name, shape in shapes.items()
        for line in used(fused("rotary", phase, s.half(*shape), s.half(*shape)), name if prefix else "qkv",
                         **{name: s.half(*shape)})
    )  # fmt: skip


def _turned_by_parts(s: Sizes, phase: Phase, name: str, shape: tuple[int, int]) -> Lines:
    """To float32, times unit complex numbers, and back (Llama's apply_rotary_emb, as torchtitan has it)."""
    wide, half = Tensor(shape, "float32"), s.half(*shape)
    return (
        *used(op("aten::copy_", phase, wide, half), name, **{f"{name}_wide": wide}),
        *used(op("aten::mul", phase, wide, None), f"{name}_wide", **{f"{name}_turned": wide}),
        *used(op("aten::copy_", phase, half, wide), f"{name}_turned", **{name: half}),
    )


def _queries_keys_values(plan: TransformerPlan) -> tuple[str, str, str]:
    """Names of what the core takes; views of the projection's columns where nothing turned them."""
    if plan.block.kernels is Kernels.EAGER:
        return "q", "k", "v"
    return ("qkv", "qkv", "qkv") if plan.block.positions is Positions.LEARNED else ("q", "k", "qkv")


def _unfused(s: Sizes, plan: TransformerPlan, phase: Phase) -> Lines:
    """The product of scores is given a buffer of their size to add to."""
    q, k, v = _queries_keys_values(plan)
    mask, taken = Tensor(s.scores.shape, "bool"), "probabilities"
    dropped: Lines = ()
    if plan.block.dropout:
        item = fused("native_dropout", phase, s.scores, s.scores, mask)
        dropped, taken = used(item, taken, dropped=s.scores, retained=mask), "dropped"
    product_ = op("aten::baddbmm", phase, s.scores, s.by_head(), s.by_head(transposed=True))
    return (
        views(phase, "transpose", "transpose", "transpose"),
        *used(product_, once(q, k), buffer=s.scores, scores=s.scores),
        views(phase, "view"),
        *used(op("aten::_softmax", phase, s.scores), "scores", probabilities=s.scores),
        *dropped,
        views(phase, "reshape", "view", "transpose"),
        *used(op("aten::bmm", phase, s.scores, s.by_head()), f"{taken} {v}", heads=s.half(s.tokens, s.shard)),
    )


def _unfused_backward(s: Sizes, plan: TransformerPlan) -> Lines:
    q, k, v = _queries_keys_values(plan)
    across = s.half(*s.scores.shape)  # its transpose has the same shape: sequence by sequence
    part, mask = s.half(s.tokens, s.shard), Tensor(s.scores.shape, "bool")
    taken, gradient = "probabilities", "d_dropped"
    dropped: Lines = ()
    if plan.block.dropout:
        item = fused("native_dropout_backward", B, s.scores, mask, s.scores)
        dropped = used(item, "d_dropped retained", d_probabilities=s.scores)
        taken, gradient = "dropped", "d_probabilities"
    softmax = op("aten::_softmax_backward_data", B, s.scores, s.scores)
    return (
        views(B, "reshape", "permute", "reshape", "transpose", "transpose"),
        *used(op("aten::bmm", B, s.by_head(), s.by_head(transposed=True)), f"d_heads {v}", d_dropped=s.scores),
        *used(op("aten::bmm", B, across, s.by_head()), f"d_heads {taken}", d_v=part),
        views(B, "transpose", "reshape", "reshape"),
        *dropped,
        *used(softmax, f"{gradient} probabilities", d_scores=s.scores),
        views(B, "reshape", "transpose", "transpose"),
        *used(op("aten::bmm", B, s.scores, s.by_head()), f"d_scores {k}", d_queries=part),
        *used(op("aten::bmm", B, across, s.by_head()), f"d_scores {q}", d_keys=part),
        *used(op("aten::mul", B, part, None), "d_queries", d_q=part),  # both by the scale of the scores
        *used(op("aten::mul", B, part, None), "d_keys", d_k=part),
        views(B, "transpose", "transpose", "transpose", "reshape", "reshape", "narrow", "narrow", "narrow"),
    )


# What tensor-parallel ranks exchange around a pair of products.
#
# f goes in, g comes out (Shoeybi et al. 2019, figure 4; with sequence parallelism Korthikanti et al. 2022, figure 5):
#
#                        forward                      backward
#     f  tensor          nothing                      all-reduce of the input's gradient
#        sequence        all-gather of the input      gathered once more next to the input gradient's product, whose
#                                                     result is reduce-scattered next to the weight gradient's
#     g  tensor          all-reduce of the result     nothing
#        sequence        reduce-scatter of it         all-gather of its gradient
#
# The overlap of f backward is that of Megatron-LM's LinearWithGradAccumulationAndAsyncCommunication.

GATHERED_AGAIN, SCATTERED = "input gathered again", "input gradient scattered"


def full(plan: TransformerPlan, name: str) -> str:
    """Name of a tensor after `into_products`."""
    return f"full_{name}" if plan.splits_sequence else name


def part(plan: TransformerPlan, name: str) -> str:
    """Name of a tensor after `out_of_products`."""
    return f"part_{name}" if plan.splits_sequence else name


def into_products(plan: TransformerPlan, phase: Phase, name: str) -> Lines:
    """f, and backward g: what the ranks hold of the sequence, on all of them."""
    s = sizes(plan)
    if not plan.splits_sequence:
        return ()
    return used(collective("all_gather", Group.TENSOR, s.stream, phase), name, **{full(plan, name): s.x})


def out_of_products(plan: TransformerPlan, phase: Phase, name: str) -> Lines:
    """g: the sum over ranks, or each rank's part of it."""
    s = sizes(plan)
    if plan.splits_sequence:
        return used(collective("reduce_scatter", Group.TENSOR, s.x, phase), name, **{part(plan, name): s.stream})
    return (collective("all_reduce", Group.TENSOR, s.x, phase),) if plan.parallelism.tensor > 1 else ()


def first_product_backward(
    plan: TransformerPlan, depth: int, products: Sequence[tuple[str, int]], data: str, makes: str, after: Lines = ()
) -> Lines:
    """Gradients of the products behind f (name and columns of the result of each), and f backward.

    `depth`: columns of their input; `data`: name of the rank's part of it; `makes`: name of its gradient; `after`: what
    follows the gradients of weights.
    """
    s, split_ = sizes(plan), plan.splits_sequence
    whole = f"whole_{makes}" if split_ else makes
    again = f"again_{data}" if split_ else data
    inputs, weights = [], []
    for place, (name, columns) in enumerate(products):
        made = whole if len(products) == 1 else f"{makes}_{place}"
        inputs.append([*mlp.input_gradient(s, s.tokens, depth, columns, f"d_{name}", made)])
        weights.append(mlp.weight_gradient(s, s.tokens, depth, columns, f"d_{name} {again}"))
    sums: list[Lines] = [()]
    for place in range(1, len(products)):  # each gradient is added to the sum of those before
        before = f"{makes}_0" if place == 1 else f"{makes}_sum{place - 1}"
        total = whole if place == len(products) - 1 else f"{makes}_sum{place}"
        sums.append(used(op("aten::add", B, s.x, s.x), f"{makes}_{place} {before}", **{total: s.x}))
    if not split_:
        summed = (collective("all_reduce", Group.TENSOR, s.x, B),) if plan.parallelism.tensor > 1 else ()
        both = zip(inputs, weights, sums, strict=True)
        return (*(line for each in both for lines in each for line in lines), *after, *summed)
    scattering = collective("reduce_scatter", Group.TENSOR, s.x, B, awaited=False)
    return (
        *used(collective("all_gather", Group.TENSOR, s.stream, B, awaited=False), data, **{again: s.x}),
        Record(Lane.TENSOR, GATHERED_AGAIN),
        *(line for each in zip(inputs, sums, strict=True) for lines in each for line in lines),
        *used(scattering, whole, **{makes: s.stream}),
        Record(Lane.TENSOR, SCATTERED),
        Await(Lane.COMPUTE, GATHERED_AGAIN),
        *(line for lines in weights for line in lines),
        *after,
        Await(Lane.COMPUTE, SCATTERED),
        use("scattered", whole),  # its input is in use until the result has arrived
    )


def around(plan: TransformerPlan, takes: str, makes: str) -> Lines:
    """The gradient that went around a layer's half, added."""
    s = sizes(plan)
    return used(op("aten::add", B, s.stream, s.stream), takes, **{makes: s.stream})


def norm(plan: TransformerPlan, phase: Phase, takes: str, makes: str) -> Lines:
    """The block's norm; names of its statistics end with that of its result."""
    s = sizes(plan)
    row, weight = Tensor((s.resident,), "float32"), s.half(s.hidden)
    if plan.block.norm is Norm.RMS:
        item = op("aten::_fused_rms_norm", phase, s.stream, None, weight)
        return used(item, takes, **{makes: s.stream, f"rstd_{makes}": row})
    item = op("aten::native_layer_norm", phase, s.stream, None, weight, weight)
    return used(item, takes, **{makes: s.stream, f"mean_{makes}": row, f"rstd_{makes}": row})


def norm_backward(plan: TransformerPlan, gradient: str, takes: str, forward: str, makes: str) -> Lines:
    """Gradients of the input, `takes`, and of the weights of the norm that made `forward`."""
    s = sizes(plan)
    x, weight, given = s.stream, s.half(s.hidden), f"{gradient} {takes} rstd_{forward}"
    if plan.block.norm is Norm.RMS:
        row = Tensor((s.resident, 1), "float32")
        item = op("aten::_fused_rms_norm_backward", B, x, x, None, row, weight)
        return tuple(with_gradients(s, item, given, s.hidden, **{makes: x}))
    row = Tensor((s.resident,), "float32")
    item = op("aten::native_layer_norm_backward", B, x, x, None, row, row, weight, weight)
    return tuple(with_gradients(s, item, f"{given} mean_{forward}", s.hidden, s.hidden, **{makes: x}))


F = Phase.FORWARD


def layer_forward(plan: TransformerPlan, layer: int, phase: Phase = F) -> Lines:
    """Ops of a layer of the model, from `x` to `y`; in the backward phase, its recomputation."""
    second, made = mlp.experts_forward(plan, phase) if plan.has_experts(layer) else _mlp_forward(plan, phase)
    return (
        *_attention_forward(plan, phase),
        *norm(plan, phase, "x1", "norm2"),
        *second,
        *mlp.residual(plan, phase, f"{made} x1", "y", "mask2"),
    )


def layer_backward(plan: TransformerPlan, layer: int) -> Lines:
    """Gradients, from `dy` to `dx`; between them what selective recomputation repeats."""
    into, gradient = mlp.residual_backward(plan, "dy", "mask2", "d_down")
    second, d_norm = (mlp.experts_backward if plan.has_experts(layer) else _mlp_backward)(plan, gradient)
    return (
        *into,
        *second,
        *norm_backward(plan, d_norm, "x1", "norm2", "d_x1"),
        *around(plan, "d_x1 dy", "d_sum"),
        *_attention_backward(plan),
        *norm_backward(plan, "d_norm1", "x", "norm1", "d_x"),
        *around(plan, "d_x d_sum", "dx"),
    )


def _context(plan: TransformerPlan) -> str:
    """Name of what the last projection takes."""
    return "context" if plan.block.attention is Attention.UNFUSED else "heads"


def _attention_forward(plan: TransformerPlan, phase: Phase) -> Lines:
    s = sizes(plan)
    return (
        *norm(plan, phase, "x", "norm1"),
        *into_products(plan, phase, "norm1"),
        *(line for name, columns in projections(plan) for line in _projection(plan, phase, columns, name)),
        *attention(plan, phase),
        *product(s, phase, s.shard, s.hidden, _context(plan), "projected"),
        *out_of_products(plan, phase, "projected"),
        views(phase, "expand"),
        *mlp.residual(plan, phase, f"{part(plan, 'projected')} x", "x1", "mask1"),
    )


def _projection(plan: TransformerPlan, phase: Phase, columns: int, makes: str) -> Lines:
    """Queries, keys and values, or one of them."""
    s = sizes(plan)
    weight = s.half(s.hidden, columns)
    biased = op("aten::addmm", phase, s.half(columns), s.x, weight)
    item = biased if plan.block.bias else op("aten::mm", phase, s.x, weight)
    return (views(phase, "view", "t"), *used(item, full(plan, "norm1"), **{makes: s.half(s.tokens, columns)}))


def _mlp_forward(plan: TransformerPlan, phase: Phase) -> tuple[Lines, str]:
    """From `norm2` to what is added to the residual, and its name."""
    s = sizes(plan)
    data = full(plan, "norm2")
    return (
        *into_products(plan, phase, "norm2"),
        *(line for name, c in mlp.first_products(plan, s.width) for line in product(s, phase, s.hidden, c, data, name)),
        *mlp.activated(plan, phase, s.tokens, s.width, bias=plan.block.bias),
        *product(s, phase, s.width, s.hidden, "inner", "down"),
        *out_of_products(plan, phase, "down"),
        views(phase, "expand"),
    ), part(plan, "down")


def _mlp_backward(plan: TransformerPlan, gradient: str) -> tuple[Lines, str]:
    """From the gradient of what was added to that of `norm2`, and its name."""
    s = sizes(plan)
    return (
        *into_products(plan, B, gradient),
        *mlp.product_backward(s, s.width, s.hidden, full(plan, gradient), "inner", "d_inner"),
        *mlp.activated_backward(plan, s.tokens, s.width, bias=plan.block.bias),
        *first_product_backward(plan, s.hidden, mlp.first_products(plan, s.width), "norm2", "d_norm2"),
    ), "d_norm2"


def _attention_backward(plan: TransformerPlan) -> Lines:
    """From `d_sum`, the gradient of `x1`, to that of `norm1`."""
    s = sizes(plan)
    again = core(plan, B) if plan.schedule.recompute is Recompute.SELECTIVE else ()
    biased = mlp.bias_backward(s, s.tokens, s.projected, "d_qkv") if plan.block.bias else ()
    into, gradient = mlp.residual_backward(plan, "d_sum", "mask1", "d_projected")
    return (
        *into,
        *into_products(plan, B, gradient),
        *mlp.product_backward(s, s.shard, s.hidden, full(plan, gradient), _context(plan), "d_heads"),
        *again,
        *attention_backward(plan),
        *first_product_backward(plan, s.hidden, projections(plan), "norm1", "d_norm1", biased),
    )
