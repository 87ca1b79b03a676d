"""Backward ops of a listed node, as autograd of torch 2.1 calls them (tools/autograd/derivatives.yaml); no loss.

Gradients of parameters are added to those of the step before (AccumulateGrad). Where a node's result goes to several
places, their gradients are added up first: `sums`.
"""

from collections.abc import Callable, Mapping

from gnnperf.core import Phase
from gnnperf.generate.transformer.items import Item, op, views
from gnnperf.graph import Tensor
from research.listed.call import Call, Shape, floats
from research.listed.forward import indices, linear_sizes, product_sizes, table

B = Phase.BACKWARD
Items = tuple[Item, ...]
Form = Callable[[Call], Items]


def sums(shape: Shape, uses: int) -> Items:
    """Gradients from `uses` places, added up one after the other."""
    return (op("aten::add", B, floats(shape), floats(shape)),) * max(uses - 1, 0)


def accumulated(*shapes: Shape) -> Items:
    """Gradients of parameters, added to what was there."""
    return tuple(op("aten::add_", B, floats(s), floats(s)) for s in shapes)


def linear(call: Call) -> Items:
    """Products for input and weight, a sum over rows for the bias."""
    m, n, k = linear_sizes(call)
    gradient = floats((m, n))
    of_input = (op("aten::mm", B, gradient, floats((n, k))),) if call.wanted else ()
    return (
        views(B, "t"), *of_input, views(B, "t"), op("aten::mm", B, floats((n, m)), floats((m, k))),
        op("aten::sum", B, gradient, None, None, values=["", "[0]", "True"]), *accumulated((n, k), (n,)),
    )  # fmt: skip


def batched_product(call: Call) -> Items:
    """A product per operand; a gradient with permuted strides is copied where it cannot be folded."""
    batch, m, n, k = product_sizes(call)
    gradient = floats((batch, m, n))
    folds = call.permuted_later and len(call.op.output) > 3 and call.op.output[0] > 1
    copied = (op("aten::copy_", B, gradient, gradient),) if folds else ()
    of_first = op("aten::bmm", B, gradient, floats((batch, n, k)))
    of_second = op("aten::bmm", B, floats((batch, k, m)), gradient)
    return (*copied, views(B, "transpose"), *(of_first, of_second)[: len(call.wanted)])


def view(call: Call) -> Items:
    """A view of the gradient, or a copy where it comes with permuted strides."""
    copied = (op("aten::copy_", B, call.output, call.output),) if call.permuted_later else ()
    return (views(B, "view"), *copied)


def split(call: Call) -> Items:
    """The parts' gradients side by side."""
    whole = call.op.tensors[0]
    return (op("aten::cat", B, [whole]),)


def part(call: Call) -> Items:
    """Of a tuple: passed on to `split`; of a tensor: zeros with the part's gradient in them."""
    if call.parts_of is not None or not call.wanted:
        return ()
    whole = call.wanted[0]
    return (op("aten::fill_", B, whole), op("aten::copy_", B, call.output, call.output))


def _each(*names: str) -> Form:
    """These ops, each of the gradient and one tensor of its size, for every wanted gradient."""
    return lambda call: tuple(op(f"aten::{n}", B, call.output, call.output) for n in names) * len(call.wanted)


def _by_number(*names: str) -> Form:
    """These ops of the gradient and a number."""
    return lambda call: tuple(op(f"aten::{n}", B, call.output, None) for n in names) if call.wanted else ()


def added(call: Call) -> Items:
    """Passed on; summed over the axes that an argument was broadcast along."""
    small = [x for x in call.wanted if x.numel < call.output.numel]
    return tuple(op("aten::sum", B, call.output, None, None, values=["", "[0]", "True"]) for _ in small)


def multiplied(call: Call) -> Items:
    """A product per wanted gradient; a parameter's or a smaller argument's is summed as well."""
    products = op("aten::mul", B, call.output, call.output)
    return (products,) * len(call.wanted) + added(call)


def power(call: Call) -> Items:
    """gradient * (exponent * x ** (exponent - 1))."""
    if not call.wanted:
        return ()
    of_number = tuple(op(f"aten::{n}", B, call.output, None) for n in ("pow", "mul"))
    return (*of_number, op("aten::mul", B, call.output, call.output))


def softmax(call: Call) -> Items:
    """CUDA's kernel takes gradient * result, which is made first (aten/src/ATen/native/cuda/SoftMax.cu)."""
    y = call.output
    return (op("aten::mul", B, y, y), op("aten::_softmax_backward_data", B, y, y)) if call.wanted else ()


def dropout(call: Call) -> Items:
    """gradient * (mask * scale): the mask is converted, scaled and multiplied."""
    if not call.wanted:
        return ()
    y = call.output
    mask = Tensor(y.shape, "bool")
    return (op("aten::copy_", B, y, mask), op("aten::mul", B, y, None), op("aten::mul", B, y, y))


def layer_norm(call: Call) -> Items:
    """Gradients of input, scale and shift by one op of two kernels."""
    y, width = call.output, call.op.output[-1]
    rows = floats((y.numel // width, 1))
    row = floats((width,))
    return (
        op("aten::native_layer_norm_backward", B, y, y, None, rows, rows, row, row),
        *accumulated((width,), (width,)),
    )


def embedding(call: Call) -> Items:
    """The whole table's gradient: zeroed, added to, and added to what was there."""
    weight = table(call)
    values = ["", "", str(weight.shape[0]), "-1", "False"]
    return (op("aten::embedding_dense_backward", B, call.output, indices(call), values=values),
            *accumulated(weight.shape))  # fmt: skip


def mean(call: Call) -> Items:
    return tuple(op("aten::div", B, x, None) for x in call.wanted)


def where(call: Call) -> Items:
    y = call.output
    return (op("aten::where", B, Tensor(y.shape, "bool"), y, None),) * len(call.wanted)


def nothing(call: Call) -> Items:
    """The gradient is passed on as it is, or there is none."""
    return ()


KINDS: Mapping[str, Form] = {
    "Linear": linear, "BMM": batched_product, "VECln": layer_norm, "EMBEDDING": embedding, "dropout": dropout,
    "VECsoftmax": softmax, "where": where, "getitem": part, "mean": mean, "contiguous": nothing,
    "VECadd": added, "VECaddu": nothing, "VECmul": multiplied, "VECmulu": _by_number("mul"),
    "VECdiv": _by_number("div"), "VECdivu": _by_number("div"), "VECpow": power, "VECpowu": power,
    "VECtanh": _each("tanh_backward"), "VECgelu": _each("gelu_backward"), "VECrelu": _each("threshold_backward"),
    "rsqrt": _by_number("pow", "mul"), "setitem": _by_number("mul"),
}  # fmt: skip
FUNCTIONS: Mapping[str, Form] = {
    "view": view, "reshape": view, "split": split, "embedding": embedding, "max": _each("where"),
    "min": _each("where"), "masked_fill": _by_number("mul"), "sub": added, "log": _each("div"),
    "logsumexp": _each("mul"), "cat": nothing, "dropout": dropout,
}  # fmt: skip
