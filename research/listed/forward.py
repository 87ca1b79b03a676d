"""Forward ops of a listed node, as eager PyTorch calls them; a node may call none."""

from collections.abc import Callable, Mapping
from math import prod

from gnnperf.core import Phase
from gnnperf.generate.transformer.items import Item, op, views
from gnnperf.graph import Tensor
from research.listed.call import INDEX, Call, Layout, floats, viewed

F = Phase.FORWARD
Items = tuple[Item, ...]
Form = Callable[[Call], Items]


def linear_sizes(call: Call) -> tuple[int, int, int]:
    """Rows, columns and summed length of a linear layer; its weight may be listed in either orientation."""
    x = max((t for t in call.inputs if len(t.shape) >= 2), key=lambda t: t.shape[:-1] == call.op.output[:-1])
    return prod(x.shape[:-1]), call.op.output[-1], x.shape[-1]


def linear(call: Call) -> Items:
    m, n, k = linear_sizes(call)
    return (views(F, "t"), op("aten::addmm", F, floats((n,)), floats((m, k)), floats((k, n))))


def product_sizes(call: Call) -> tuple[int, int, int, int]:
    """Batch, rows, columns and summed length of a batched product."""
    a, b = call.op.tensors[:2]
    return prod(a[:-2]), a[-2], b[-1], a[-1]


def batched_product(call: Call) -> Items:
    """bmm; matmul folds leading axes first and copies an operand whose strides do not allow it (LinearAlgebra.cpp)."""
    batch, m, n, k = product_sizes(call)
    copies = [_copy(lay) for lay in call.layouts[:2] if viewed(lay, (batch, *lay.shape[-2:])) is None]
    folds = (views(F, "expand", "reshape", "expand", "reshape"),) if len(call.op.tensors[0]) > 3 else ()
    return (*folds, *copies, op("aten::bmm", F, floats((batch, m, k)), floats((batch, k, n))))


def _copy(layout: Layout) -> Item:
    return op("aten::copy_", F, floats(layout.shape), floats(layout.shape))


def contiguous_copy(call: Call) -> Items:
    """A copy where the strides are not those of a new tensor."""
    return () if call.layouts[0].is_contiguous else (_copy(call.layouts[0]),)


def reshape(call: Call) -> Items:
    """A view, or a copy where none exists."""
    free = viewed(call.layouts[0], call.op.output) is not None
    return (views(F, "reshape"),) if free else (views(F, "reshape"), _copy(call.layouts[0]))


def _elementwise(name: str) -> Form:
    return lambda call: (op(f"aten::{name}", F, *call.inputs),)


def _views(name: str) -> Form:
    return lambda call: (views(F, name),) if call.is_tensor else ()


def _fill(call: Call) -> Items:
    return (op("aten::fill_", F, call.output),)


def layer_norm(call: Call) -> Items:
    """Statistics and result in one kernel."""
    row = floats(call.op.output[-1:])
    return (op("aten::native_layer_norm", F, call.inputs[0], None, row, row),)


def dropout(call: Call) -> Items:
    """Result and mask; without training nothing."""
    return (op("aten::native_dropout", F, call.inputs[0]),) if call.training else ()


def embedding(call: Call) -> Items:
    return (op("aten::embedding", F, table(call), indices(call)),)


def table(call: Call) -> Tensor:
    """The table: its listed shape; a module's is not listed, it is taken to have a row per position."""
    listed = [x for x in call.inputs[1:] if len(x.shape) == 2]
    if listed:
        return listed[0]
    return floats((call.op.table_rows or call.op.tensors[0][-1], call.op.output[-1]))


def indices(call: Call) -> Tensor:
    return Tensor(call.op.tensors[0], INDEX)


def masked_fill(call: Call) -> Items:
    """Out of place: a copy, then the fill."""
    x, mask = call.inputs[0], Tensor(call.op.tensors[-1], "bool")
    return (op("aten::copy_", F, x, x), op("aten::masked_fill_", F, x, mask))


def converted(call: Call) -> Items:
    """To bool or whole numbers: a copy."""
    return (op("aten::copy_", F, call.output, call.inputs[0]),) if call.is_tensor and call.inputs else ()


def where(call: Call) -> Items:
    """A mask of one byte per element, a tensor, and another one or a number."""
    return (op("aten::where", F, Tensor(call.op.tensors[0], "bool"), *call.inputs[1:]),)


def getitem(call: Call) -> Items:
    """A part of a tuple or of a tensor is a view; rows by a mask are counted, gathered and copied."""
    if not call.is_tensor:
        return ()
    if len(call.op.tensors) == 2 and 0 not in call.op.output:  # x[mask]
        return (op("aten::index", F, call.inputs[0], [call.op.output[:1]]),)
    return (views(F, "slice"),)


def setitem(call: Call) -> Items:
    return (op("aten::copy_", F, call.output, call.output),) if call.is_tensor else ()


def cat(call: Call) -> Items:
    """Every part is read and written once."""
    return (op("aten::cat", F, [x.shape for x in call.inputs]),)


def reduced(call: Call) -> Items:
    """A mean, maximum, ... over one axis."""
    return (op("aten::mean", F, call.inputs[0], None, None),)


def logsumexp(call: Call) -> Items:
    """Maximum, exponentials, sum, logarithm."""
    x = call.inputs[0]
    return (op("aten::amax", F, x), op("aten::sub", F, x), op("aten::exp", F, x), op("aten::sum", F, x),
            op("aten::log", F, call.output))  # fmt: skip


def nothing(call: Call) -> Items:
    """Numbers, parameters, and conversions to the dtype that a tensor has."""
    return ()


KINDS: Mapping[str, Form] = {
    "Linear": linear, "BMM": batched_product, "VECln": layer_norm, "EMBEDDING": embedding, "dropout": dropout,
    "VECsoftmax": _elementwise("_softmax"), "contiguous": contiguous_copy, "where": where, "getitem": getitem,
    "setitem": setitem, "mean": reduced, "count": nothing, "Weight": nothing, "output": nothing, "allreduce": nothing,
    "sendrecv": nothing,
    **{f"VEC{name}{number}": _elementwise(name) for name in ("add", "mul", "div", "pow") for number in ("", "u")},
    **{f"VEC{name}": _elementwise(name) for name in ("tanh", "gelu", "relu")},
    **{name: _elementwise(name) for name in ("rsqrt", "cumsum")},
}  # fmt: skip
# What NeuSight calls misc, by function
FUNCTIONS: Mapping[str, Form] = {
    **{name: _views(name) for name in ("view", "permute", "transpose", "expand", "unsqueeze", "split", "repeat")},
    **{name: _elementwise(name) for name in ("sub", "abs", "neg", "log", "lt", "le", "gt", "eq")},
    "max": _elementwise("maximum"), "min": _elementwise("minimum"), "reshape": reshape, "dropout": dropout,
    **dict.fromkeys(("ones", "zeros", "full", "full_like", "zeros_like", "arange", "uniform_"), _fill),
    "masked_fill": masked_fill, "masked_fill_": _elementwise("masked_fill_"), "embedding": embedding, "cat": cat,
    **dict.fromkeys(("bool", "long", "clone"), converted), "argmax": reduced, "logsumexp": logsumexp, "one_hot": _fill,
    **dict.fromkeys(("to", "type", "type_as", "float", "size", "getattr", "dim", "add", "mul", "pow", "eq",
                     "empty_like", "input_ids", "decoder_input_ids", "decoder_attention_mask"), nothing),
}  # fmt: skip
