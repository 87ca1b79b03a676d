"""The replicated part of a rank's program: perceptrons, interaction and loss, forward and backward, op by op.

As facebookresearch/dlrm has it (dlrm_s_pytorch.py, Naumov et al. 2019): linear layers with ReLU, a sigmoid at the end,
products of all pairs of vectors of which the lower triangle is kept. With a half dtype, operands of products are cast
(autocast). A rank's gradients are divided and put into a bucket, one copy each, and buckets are summed over ranks while
the backward pass goes on (Li et al. 2020, PyTorch DDP: the first bucket of a perceptron is small).

Names of tensors: NAME_I is the result of layer I of a perceptron, d_NAME the gradient on its way down.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from gnnperf.core import Phase
from gnnperf.generate.recommendation.items import ended, equal
from gnnperf.generate.recommendation.plan import FLOAT_BYTES, Interaction, Optimizer, RecommendationPlan, Recommender
from gnnperf.generate.transformer.items import Line, Op, fused, op, used, views
from gnnperf.generate.uses import Use, use
from gnnperf.graph import Tensor

F, B, O = Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER  # noqa: E741
MEBIBYTE = 1 << 20
FIRST_BUCKET_BYTES, BUCKET_BYTES = 1 * MEBIBYTE, 25 * MEBIBYTE  # torch.distributed: _DEFAULT_FIRST_BUCKET_BYTES, DDP
BOTTOM, TOP = "bottom", "top"
NUMBERS, CROSSED = "numbers", "crossed"  # inputs of the two
UPDATE_OPS = {  # name, lists that are read, lists that are written
    Optimizer.SGD: ("aten::_fused_sgd_", 2, 2),
    Optimizer.ROWWISE_ADAGRAD: ("aten::_fused_adagrad_", 3, 2),
    Optimizer.ADAGRAD: ("aten::_fused_adagrad_", 3, 2),
    Optimizer.ADAM: ("aten::_fused_adam_", 4, 3),
}


def bottom_widths(model: Recommender) -> tuple[int, ...]:
    """Inputs, then results of each layer."""
    return (model.dense_features, *model.bottom)


def vectors(model: Recommender) -> int:
    """That interact: one per table, and the bottom perceptron's."""
    return len(model.tables) + 1


def crossed_width(model: Recommender) -> int:
    """Columns that the interaction gives to the top perceptron, next to the bottom one's result."""
    if model.interaction is Interaction.CAT:
        return sum(table.dim for table in model.tables)
    return vectors(model) * (vectors(model) - 1) // 2


def top_widths(model: Recommender) -> tuple[int, ...]:
    """Inputs, then results of each layer."""
    return (model.bottom[-1] + crossed_width(model), *model.top)


WIDTHS = {BOTTOM: bottom_widths, TOP: top_widths}


def layers(model: Recommender) -> tuple[tuple[int, int], ...]:
    """Inputs and results of all linear layers, those of the bottom perceptron first."""
    return (*pairwise(bottom_widths(model)), *pairwise(top_widths(model)))


def dense_parameters(model: Recommender) -> int:
    """Of both perceptrons, weights and biases."""
    return sum((inputs + 1) * outputs for inputs, outputs in layers(model))


def perceptron_forward(plan: RecommendationPlan, name: str) -> Iterator[Line]:
    """Linear layers, ReLU after each but the top one's last, which has a sigmoid; with autocast's copies of operands.

    Each result is kept for the layer after it and for its own backward pass.
    """
    dtype, count, widths = plan.model.dtype, plan.samples, WIDTHS[name](plan.model)
    cast, takes = dtype != "float32", NUMBERS if name == BOTTOM else CROSSED
    for place, (inputs, outputs) in enumerate(pairwise(widths)):
        x, weight = Tensor((count, inputs), "float32"), Tensor((outputs, inputs), "float32")
        given, copy = takes, f"{name}_weight_{place}"
        if cast and place == 0:
            half = Tensor(x.shape, dtype)
            given = f"{name}_in"
            yield from used(op("aten::copy_", F, half, x), takes, **{given: half})
        if cast:
            half = Tensor(weight.shape, dtype)
            yield from used(op("aten::copy_", F, half, weight), "", **{copy: half})
        yield views(F, "t")
        made = Tensor((count, outputs), dtype)
        bias, across = Tensor((outputs,), dtype), Tensor((inputs, outputs), dtype)
        product = op("aten::addmm", F, bias, Tensor(x.shape, dtype), across)
        yield from used(product, f"{given} {copy}" if cast else given, linear=made)
        last = name == TOP and place == len(widths) - 2
        takes = f"{name}_{place}"
        yield from used(op("aten::sigmoid" if last else "aten::relu", F, made), "linear", **{takes: made})


def perceptron_backward(plan: RecommendationPlan, name: str) -> Iterator[Line]:
    """Of layers from the last to the first, which passes no gradient on if its inputs are data; buckets set off.

    Gradients of parameters stay, and go into DDP's buckets.
    """
    dtype, count, widths = plan.model.dtype, plan.samples, WIDTHS[name](plan.model)
    cast, first = dtype != "float32", CROSSED if name == TOP else NUMBERS
    waiting, least = 0.0, float(FIRST_BUCKET_BYTES)
    for place in range(len(widths) - 2, -1, -1):
        inputs, outputs = widths[place], widths[place + 1]
        grad, x = Tensor((count, outputs), dtype), Tensor((count, inputs), dtype)
        yield from used(op("aten::threshold_backward", B, grad, grad), f"d_{name} {name}_{place}", d_linear=grad)
        if place or name == TOP:
            product = op("aten::mm", B, grad, Tensor((outputs, inputs), dtype))
            weight = f" {name}_weight_{place}" if cast else ""
            yield from used(product, f"d_linear{weight}", **{f"d_{name}": x})
        yield views(B, "t")
        data = f"{name}_{place - 1}" if place else f"{name}_in" if cast else first
        yield op("aten::mm", B, Tensor((outputs, count), dtype), x)
        yield Use("aten::mm", ("d_linear", data), (), (inputs * outputs * FLOAT_BYTES,))
        yield op("aten::sum", B, grad, None, None, values=["", "[0]", "True"])
        yield Use("aten::sum", ("d_linear",), (), (outputs * FLOAT_BYTES,))
        if plan.ranks > 1:
            yield from used(op("aten::mul", B, Tensor((outputs, inputs), "float32"), None))  # into the bucket
            yield from used(op("aten::mul", B, Tensor((outputs,), "float32"), None))
            waiting += FLOAT_BYTES * (inputs + 1.0) * outputs
            if waiting >= least or place == 0:
                transfer = equal(f"gradients of {name} {place}", "all_reduce", waiting, B)
                yield from (transfer, ended(transfer))
                waiting, least = 0.0, float(BUCKET_BYTES)


def interaction_forward(plan: RecommendationPlan, of_tables: str) -> Iterator[Line]:
    """Vectors of the own samples to the top perceptron's inputs: products of all pairs, or vectors side by side."""
    count, width, crossed = plan.samples, plan.model.bottom[-1], crossed_width(plan.model)
    bottom, given = f"{BOTTOM}_{len(plan.model.bottom) - 1}", of_tables
    joined = op("aten::cat", F, [(count, width), (count, crossed)])
    if plan.model.interaction is Interaction.DOT:
        number = vectors(plan.model)
        stacked, square = Tensor((count, number, width), "float32"), Tensor((count, number, number), "float32")
        pairs, across = Tensor((count, crossed), "float32"), Tensor((count, width, number), "float32")
        yield from used(op("aten::cat", F, [(count, number * width)]), f"{bottom} {of_tables}", stacked=stacked)
        yield views(F, "view", "transpose")
        yield from used(op("aten::bmm", F, stacked, across), "stacked", square=square)
        yield from used(op("aten::index", F, square, [(), (crossed,)]), "square", pairs=pairs)
        given = "pairs"
    yield from used(joined, f"{bottom} {given}", crossed=Tensor((count, width + crossed), "float32"))


def interaction_backward(plan: RecommendationPlan) -> Iterator[Line]:
    """Gradients of the vectors; both factors of the product are the same tensor."""
    count, width = plan.samples, plan.model.bottom[-1]
    yield views(B, "narrow", "narrow")
    if plan.model.interaction is Interaction.CAT:
        yield use("views", "d_top", d_vectors=0, d_bottom=0)  # parts of it
        return
    number, pairs = vectors(plan.model), crossed_width(plan.model)
    stacked, square = Tensor((count, number, width), "float32"), Tensor((count, number, number), "float32")
    vector, product = Tensor((count, width), "float32"), op("aten::bmm", B, square, stacked)
    put = op("aten::_index_put_impl_", B, square, [(), (pairs,)], Tensor((count, pairs), "float32"))
    yield from used(op("aten::zero_", B, square), "", d_square=square)
    yield from used(put, "d_square d_top")
    yield from used(product, "d_square stacked", d_left=stacked)
    yield from used(product, "d_square stacked", d_right=stacked)
    yield views(B, "transpose")
    yield from used(op("aten::add", B, stacked, stacked), "d_left d_right", d_vectors=stacked)
    yield from used(op("aten::add", B, vector, vector), "d_vectors d_top", d_bottom=vector)


def loss(plan: RecommendationPlan) -> Iterator[Line]:
    """Binary cross entropy, and its gradient."""
    logits, probabilities = Tensor((plan.samples, 1), "float32"), f"{TOP}_{len(plan.model.top) - 1}"
    backward = op("aten::binary_cross_entropy_backward", B, Tensor((), "float32"), logits, logits)
    sigmoid = fused("sigmoid_backward", B, logits, logits, logits)
    yield from used(op("aten::binary_cross_entropy", F, logits, logits), probabilities, loss=FLOAT_BYTES)
    yield from used(backward, f"loss {probabilities}", d_probabilities=logits)
    yield from used(sigmoid, f"d_probabilities {probabilities}", d_top=logits)


def update(model: Recommender, shapes: Sequence[tuple[int, ...]]) -> Op:
    """Of the replicated parameters, and of replicated tables' `shapes`, by one kernel for all of them."""
    name, lists, _ = UPDATE_OPS[model.optimizer]
    parameters = [shape for i, o in layers(model) for shape in ((o, i), (o,))]
    return op(name, O, *[(*parameters, *shapes)] * lists, None)  # no state of a kind that this optimizer does not keep


def update_bytes_per_parameter(optimizer: Optimizer) -> float:
    """Read and written by that kernel, as gnnperf.graph.cost.elementwise counts them."""
    _, lists, written = UPDATE_OPS[optimizer]
    return float(FLOAT_BYTES * (lists + written))
