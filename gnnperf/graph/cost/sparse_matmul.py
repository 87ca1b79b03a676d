"""Products with a sparse operand: FLOPs of the values that are kept; bytes as stored, with what says where they are.

2:4 (Mishra et al. 2021, Accelerating Sparse Deep Neural Networks): two of four neighbors are kept, half of k, and 2
bits each say which. The ops take the kept values as a tensor of their own, so names and shapes tell everything.

Blocks (BSR) and single values (CSR) hide behind the shape of the dense matrix: `gnnperf.graph.op_costs` reads
how much is kept off the events inside.
"""

from __future__ import annotations

from math import prod

from gnnperf.core import OpFamily
from gnnperf.graph.cost.op_call import DTYPE_BYTES, OpCall, Tensor, UnknownCost
from gnnperf.graph.cost.recurrent import Formula, Work, total_bytes

FAMILY = OpFamily.GEMM
KEPT = 0.5  # of k, in 2:4
INDEX_BYTES = DTYPE_BYTES["int64"]  # torch's default of crow_indices and col_indices


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
    return _two_four(compressed_rows(packed, dense), dense, packed, call.optional(2))


def compressed_rows(packed: Tensor, dense: Tensor) -> int:
    """m of a compressed [m, k]."""
    if len(packed.shape) == 2:
        return packed.shape[0]
    sixteenths = 10 if dense.item_bytes == 1 else 9
    return packed.numel * 16 // (sixteenths * dense.shape[0])


def semi_structured_mm(call: OpCall) -> Work:
    """_sparse_semi_structured_mm(values [m, k / 2], places, dense [k, n])."""
    values, places, dense = (call.tensor(i) for i in range(3))
    return _two_four(_rows(values, dense), dense, values, places)


def semi_structured_addmm(call: OpCall) -> Work:
    """_sparse_semi_structured_addmm(bias, values [m, k / 2], places, dense [k, n])."""
    bias, values, places, dense = (call.tensor(i) for i in range(4))
    return _two_four(_rows(values, dense), dense, values, places, bias)


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


def thinned(
    flops: float, moved_bytes: float, elements: float, retained: float, item_bytes: int, index_bytes: float
) -> tuple[float, float]:
    """FLOPs and bytes of a product, one operand of which stores `retained` of its `elements` values.

    Args:
        flops: of the dense product.
        moved_bytes: of the dense product.
        elements: of the dense operand.
        retained: values that are stored, zeros within blocks among them.
        item_bytes: of a value.
        index_bytes: that say where the values are.
    """
    return flops * retained / elements, moved_bytes - item_bytes * (elements - retained) + index_bytes


def index_bytes(indices: float, pointers: float) -> float:
    """An index for each value or block, a pointer for each row of them and one behind (Gray, Radford, Kingma 2017)."""
    return INDEX_BYTES * (indices + pointers + 1.0)


SPARSE_MATMUL_FORMULAS: dict[str, Formula] = {
    "aten::_cslt_sparse_mm": cslt_sparse_mm,
    "aten::_sparse_semi_structured_mm": semi_structured_mm,
    "aten::_sparse_semi_structured_addmm": semi_structured_addmm,
    "aten::_sparse_semi_structured_linear": semi_structured_linear,
}
