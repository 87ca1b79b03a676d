"""The replicated part of a rank's program: perceptrons, interaction and loss, forward and backward, op by op.

As facebookresearch/dlrm has it (dlrm_s_pytorch.py, Naumov et al. 2019): linear layers with ReLU, a sigmoid at the end,
products of all pairs of vectors of which the lower triangle is kept. With a half dtype, operands of products are cast
(autocast). A rank's gradients are divided and put into a bucket, one copy each, and buckets are summed over ranks while
the backward pass goes on (Li et al. 2020, PyTorch DDP: the first bucket of a perceptron is small).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from gnnperf.core import Phase
from gnnperf.generate.recommendation.items import Item, Transfer
from gnnperf.generate.recommendation.plan import FLOAT_BYTES, Interaction, Optimizer, RecommendationPlan, Recommender
from gnnperf.generate.transformer.items import Op, fused, op, views
from gnnperf.graph import Tensor

F, B, O = Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER  # noqa: E741
MEBIBYTE = 1 << 20
FIRST_BUCKET_BYTES, BUCKET_BYTES = 1 * MEBIBYTE, 25 * MEBIBYTE  # torch.distributed: _DEFAULT_FIRST_BUCKET_BYTES, DDP
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


def dense_parameters(model: Recommender) -> int:
    """Of both perceptrons, weights and biases."""
    layers = (*pairwise(bottom_widths(model)), *pairwise(top_widths(model)))
    return sum((inputs + 1) * outputs for inputs, outputs in layers)


def _cast(plan: RecommendationPlan, *tensors: Tensor) -> Iterator[Item]:
    """Autocast's copies, of operands of a product."""
    if plan.model.dtype != "float32":
        yield from (op("aten::copy_", F, Tensor(t.shape, plan.model.dtype), t) for t in tensors)


def perceptron_forward(plan: RecommendationPlan, widths: tuple[int, ...], last: str) -> Iterator[Item]:
    """Linear layers, ReLU after each but the last, which has `last`."""
    dtype, count = plan.model.dtype, plan.samples
    for place, (inputs, outputs) in enumerate(pairwise(widths), start=2):
        x, weight = Tensor((count, inputs), "float32"), Tensor((outputs, inputs), "float32")
        yield from _cast(plan, *((x, weight) if place == 2 else (weight,)))
        yield views(F, "t")
        yield op("aten::addmm", F, Tensor((outputs,), dtype), Tensor(x.shape, dtype), Tensor((inputs, outputs), dtype))
        yield op("aten::relu" if place < len(widths) else last, F, Tensor((count, outputs), dtype))


def perceptron_backward(plan: RecommendationPlan, widths: tuple[int, ...], name: str) -> Iterator[Item]:
    """Of layers from the last to the first, which passes no gradient on if its inputs are data; buckets set off."""
    dtype, count = plan.model.dtype, plan.samples
    waiting, least = 0.0, float(FIRST_BUCKET_BYTES)
    for place in range(len(widths) - 2, -1, -1):
        inputs, outputs = widths[place], widths[place + 1]
        grad, x = Tensor((count, outputs), dtype), Tensor((count, inputs), dtype)
        yield op("aten::threshold_backward", B, grad, grad)
        if place or name == "top":
            yield op("aten::mm", B, grad, Tensor((outputs, inputs), dtype))
        yield views(B, "t")
        yield op("aten::mm", B, Tensor((outputs, count), dtype), x)
        yield op("aten::sum", B, grad, None, None, values=["", "[0]", "True"])
        if plan.ranks > 1:
            yield op("aten::mul", B, Tensor((outputs, inputs), "float32"), None)
            yield op("aten::mul", B, Tensor((outputs,), "float32"), None)
            waiting += FLOAT_BYTES * (inputs + 1.0) * outputs
            if waiting >= least or place == 0:
                yield Transfer(f"gradients of {name} {place}", "all_reduce", waiting, waiting, B)
                waiting, least = 0.0, float(BUCKET_BYTES)


def interaction_forward(plan: RecommendationPlan) -> Iterator[Item]:
    """Vectors of the own samples [samples, vectors, dim] to the top perceptron's inputs."""
    count, width = plan.samples, plan.model.bottom[-1]
    if plan.model.interaction is Interaction.DOT:
        number = vectors(plan.model)
        stacked = Tensor((count, number, width), "float32")
        yield op("aten::cat", F, [(count, number * width)])
        yield views(F, "view", "transpose")
        yield op("aten::bmm", F, stacked, Tensor((count, width, number), "float32"))
        yield op("aten::index", F, Tensor((count, number, number), "float32"), [(), (crossed_width(plan.model),)])
    yield op("aten::cat", F, [(count, width), (count, crossed_width(plan.model))])


def interaction_backward(plan: RecommendationPlan) -> Iterator[Item]:
    """Gradients of the vectors; both factors of the product are the same tensor."""
    count, width = plan.samples, plan.model.bottom[-1]
    yield views(B, "narrow", "narrow")
    if plan.model.interaction is Interaction.CAT:
        return
    number, pairs = vectors(plan.model), crossed_width(plan.model)
    stacked, square = Tensor((count, number, width), "float32"), Tensor((count, number, number), "float32")
    yield op("aten::zero_", B, square)
    yield op("aten::_index_put_impl_", B, square, [(), (pairs,)], Tensor((count, pairs), "float32"))
    yield op("aten::bmm", B, square, stacked)
    yield op("aten::bmm", B, square, stacked)
    yield views(B, "transpose")
    yield op("aten::add", B, stacked, stacked)
    yield op("aten::add", B, Tensor((count, width), "float32"), Tensor((count, width), "float32"))


def loss(plan: RecommendationPlan) -> tuple[Item, ...]:
    """Binary cross entropy, and its gradient."""
    logits = Tensor((plan.samples, 1), "float32")
    return (op("aten::binary_cross_entropy", F, logits, logits),
            op("aten::binary_cross_entropy_backward", B, Tensor((), "float32"), logits, logits),
            fused("sigmoid_backward", B, logits, logits, logits))  # fmt: skip


def update(model: Recommender, shapes: Sequence[tuple[int, ...]]) -> Op:
    """Of the replicated parameters, and of replicated tables' `shapes`, by one kernel for all of them."""
    name, lists, _ = UPDATE_OPS[model.optimizer]
    layers = (*pairwise(bottom_widths(model)), *pairwise(top_widths(model)))
    parameters = [shape for i, o in layers for shape in ((o, i), (o,))]
    return op(name, O, *[(*parameters, *shapes)] * lists, None)  # no state of a kind that this optimizer does not keep


def update_bytes_per_parameter(optimizer: Optimizer) -> float:
    """Read and written by that kernel, as gnnperf.graph.cost.elementwise counts them."""
    _, lists, written = UPDATE_OPS[optimizer]
    return float(FLOAT_BYTES * (lists + written))
