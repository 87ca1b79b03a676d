"""Matrix products. FLOPs as in torch.utils.flop_counter (bias not counted); bytes: operands once, result once."""

from collections.abc import Sequence
from math import prod

from gnnperf.core import OpFamily
from gnnperf.graph.cost.op_call import Formula, OpCall, Tensor, UnknownCost, Work, broadcast, of_ops, total_bytes


def product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Work:
    """a [..., m, k] times b [..., k, n], broadcast over the leading dimensions."""
    if len(a.shape) < 2 or len(b.shape) < 2 or a.shape[-1] != b.shape[-2]:
        raise UnknownCost
    batch = prod(broadcast([a.shape[:-2], b.shape[:-2]]))
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    written = batch * m * n * max(a.item_bytes, b.item_bytes)
    return Work(2.0 * batch * m * k * n, total_bytes(a, b, bias) + written)


def mm(call: OpCall) -> Work:
    """mm(a [m, k], b [k, n]), bmm with a batch; the buffers (a, b, result, ...) of Inductor's template."""
    return product(call.tensor(0), call.tensor(1))


def addmm(call: OpCall) -> Work:
    """addmm(bias, a, b), baddbmm with a batch."""
    return product(call.tensor(1), call.tensor(2), call.tensor(0))


def matmul(call: OpCall) -> Work:
    """matmul(a, b), mv(a, x): vectors become matrices, the rest broadcasts."""
    a, b = call.tensor(0), call.tensor(1)
    wide_a = Tensor((1, *a.shape), a.dtype) if len(a.shape) == 1 else a
    wide_b = Tensor((*b.shape, 1), b.dtype) if len(b.shape) == 1 else b
    return product(wide_a, wide_b)


def linear(call: OpCall) -> Work:
    """linear(x [..., k], weight [n, k], bias [n])."""
    x, weight = call.tensor(0), call.tensor(1)
    if len(weight.shape) != 2 or not x.shape:
        raise UnknownCost
    rows = Tensor((prod(x.shape[:-1]), x.shape[-1]), x.dtype)
    return product(rows, Tensor(weight.shape[::-1], weight.dtype), call.optional(2))


def eight_bit(result_bytes: float) -> Formula:
    """_scaled_mm(a [m, k], b [k, n], scale_a, ...), a result of 16 bits as a rule; _int_mm(a, b), one of 32 bits."""

    def work(call: OpCall) -> Work:
        a, b = call.tensor(0), call.tensor(1)
        return Work(product(a, b).flops, total_bytes(a, b) + a.shape[-2] * b.shape[-1] * result_bytes)

    return work


def grouped_size(shapes: Sequence[Sequence[int]]) -> tuple[float, float, float, float]:
    """Number of products of _grouped_mm(a, b, ends), and m, n and k of each, from the shapes of its arguments.

    Groups divide the rows of a [m, k] with b [groups, k, n], the columns of b [k, n] with a [groups, m, k], or with two
    matrices the axis that is summed. They count as equal, at most one per row: `ends` are data.

    Raises UnknownCost: other shapes.
    """
    if len(shapes) < 2:
        raise UnknownCost
    a, b, *others = shapes
    groups = [shape[0] for shape in (a, b) if len(shape) == 3] or [prod(ends) if ends else 0 for ends in others[:1]]
    if not groups or {len(a), len(b)} - {2, 3} or len(set(groups)) > 1 or groups[0] < 1 or a[-1] != b[-2]:
        raise UnknownCost
    m, n, k = float(a[-2]), float(b[-1]), float(a[-1])
    match len(a), len(b):
        case 2, 3:
            count = max(min(groups[0], m), 1.0)
            return count, m / count, n, k
        case 3, 2:
            count = max(min(groups[0], n), 1.0)
            return count, m, n / count, k
        case 2, 2:
            return float(groups[0]), m, n, k / groups[0]
    return float(groups[0]), m, n, k


def grouped_mm(call: OpCall) -> Work:
    """_grouped_mm(a, b, ends): the experts of a mixture. Matrices of groups without a row are not read."""
    count, m, n, k = grouped_size(call.shapes)
    return Work(2.0 * count * m * n * k, count * (m * k + k * n + m * n) * call.tensor(0).item_bytes)


def dot(call: OpCall) -> Work:
    """dot(a [k], b [k])."""
    a, b = call.tensor(0), call.tensor(1)
    return Work(2.0 * a.numel, total_bytes(a, b) + a.item_bytes)


# Products with a sparse operand: FLOPs of the values that are kept; bytes as stored, with what states where they are.
#
# 2:4 (Mishra et al. 2021, Accelerating Sparse Deep Neural Networks): two of four neighbors are kept, half of k, and 2
# bits each say which. The ops take the kept values as a tensor of their own, so names and shapes tell everything.

KEPT = 0.5  # of k, in 2:4


def _two_four(m: int, dense: Tensor, *stored: Tensor | None) -> Work:
    """[m, k] in 2:4 times dense [k, n]; `stored` are the other tensors that are read."""
    k, n = dense.shape
    return Work(2.0 * m * n * k * KEPT, total_bytes(dense, *stored) + m * n * dense.item_bytes)


def cslt_sparse_mm(call: OpCall) -> Work:
    """_cslt_sparse_mm(compressed, dense [k, n], bias, ...): compressed holds values and their places.

    [m, ...] (PyTorch 2.8 and later), or all in one axis: 9 / 16 of m k elements, 10 / 16 of 8 bits (cuSPARSELt.cpp).
    """
    packed, dense = call.tensor(0), call.tensor(1)
    if len(dense.shape) != 2 or not dense.shape[0]:
        raise UnknownCost
    sixteenths = 10 if dense.item_bytes == 1 else 9
    rows = packed.shape[0] if len(packed.shape) == 2 else packed.numel * 16 // (sixteenths * dense.shape[0])
    return _two_four(rows, dense, packed, call.optional(2))


def semi_structured_mm(call: OpCall) -> Work:
    """_sparse_semi_structured_mm(values [m, k / 2], places, dense [k, n]), _addmm with a bias first."""
    *bias, values, places, dense = (call.tensor(i) for i in range(4 if "addmm" in call.name else 3))
    return _two_four(_rows(values, dense), dense, values, places, *bias)


def semi_structured_linear(call: OpCall) -> Work:
    """_sparse_semi_structured_linear(x [..., k], values [n, k / 2], places, bias): the weight is the sparse operand."""
    x, values, places = (call.tensor(i) for i in range(3))
    if not x.shape:
        raise UnknownCost
    dense = Tensor((x.shape[-1], prod(x.shape[:-1])), x.dtype)  # transposed: [k, rows]
    return _two_four(_rows(values, dense), dense, values, places, call.optional(3))


def _rows(values: Tensor, dense: Tensor) -> int:
    if len(values.shape) != 2 or len(dense.shape) != 2 or 2 * values.shape[1] != dense.shape[0]:
        raise UnknownCost
    return values.shape[0]


SPARSE_MATMUL_FORMULAS: dict[str, Formula] = {
    "aten::_cslt_sparse_mm": cslt_sparse_mm,
    **of_ops("_sparse_semi_structured_mm _sparse_semi_structured_addmm", semi_structured_mm),
    "aten::_sparse_semi_structured_linear": semi_structured_linear,
}


# Recurrent layers as one op: gates of all time steps. A step of a layer multiplies its input and its state with the
# gates' weights [G H, I] and [G H, H]; the elementwise rest is some ten FLOPs per element of a state (Hochreiter and
# Schmidhuber 1997; Cho et al. 2014).

GATE_FLOPS = 10.0  # per element of a state and step, next to the products
BACKWARD_PASSES = 2.0  # gradients of inputs and of weights


def recurrent_layer(passes: float) -> Formula:
    """mkldnn_rnn_layer(x [T, B, I], w_ih [G H, I], w_hh [G H, H], b_ih, b_hh, hx [B, H], cx [B, H], ...)."""
    return lambda call: _gates(call.tensor(0), [call.tensor(1), call.tensor(2)], passes)


def recurrent_stack(passes: float) -> Formula:
    """_cudnn_rnn(x [T, B, I], weights of all layers and directions, ...): matrices are the weights of gates."""
    return lambda call: _gates(call.tensor(0), [w for w in call.tensor_list(1) if len(w.shape) == 2], passes)


def _gates(x: Tensor, weights: list[Tensor], passes: float) -> Work:
    """Weights are read once (a core keeps them over the steps), inputs and states go through once per pass."""
    if len(x.shape) != 3 or not weights or any(len(w.shape) != 2 for w in weights):
        raise UnknownCost
    rows = prod(x.shape[:2])  # time steps x samples, in either order
    states = rows * sum(w.shape[1] for w in weights[1::2])  # elements of all layers' states
    flops = 2.0 * rows * sum(w.numel for w in weights) + GATE_FLOPS * states
    moved = total_bytes(x, *weights) + 2.0 * states * x.item_bytes
    return Work(passes * flops, passes * moved)


FORMULAS: dict[OpFamily, dict[str, Formula]] = {
    OpFamily.GEMM: {
        **of_ops("mm bmm", mm),
        **of_ops("addmm _addmm_activation baddbmm", addmm),
        **of_ops("linear mkldnn_linear", linear),
        "mkldnn::_linear_pointwise": linear,
        "aten::_scaled_mm": eight_bit(2.0),
        "aten::_int_mm": eight_bit(4.0),
        "aten::_grouped_mm": grouped_mm,
        **of_ops("matmul mv", matmul),
        "aten::dot": dot,
        "aten::mkldnn_rnn_layer": recurrent_layer(1.0),
        "aten::mkldnn_rnn_layer_backward": recurrent_layer(BACKWARD_PASSES),
        **of_ops("_cudnn_rnn miopen_rnn", recurrent_stack(1.0)),
        **of_ops("_cudnn_rnn_backward miopen_rnn_backward", recurrent_stack(BACKWARD_PASSES)),
        **SPARSE_MATMUL_FORMULAS,
    }
}
