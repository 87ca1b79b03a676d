"""Matrix products with a sparse operand: the roofline of a sparse layer (Shinn et al. 2023, The Sparsity Roofline).

    time = floor + max(FLOPs of kept values / rate, bytes / bandwidth)

A node keeps the shapes of the dense matrices. Fewer FLOPs than those take mean that one operand is stored in blocks or
in single values, and the bytes say which: what stored values, the dense operand and the result leave over are indices,
one per block or one per value (`gnnperf.graph.cost.matmul`). 2:4 has ops of its own. Matrix units need whole
blocks (Gray, Radford, Kingma 2017) or the 2:4 pattern, which doubles their peak where the device has that
(`sparse_matrix_speedup`; Mishra et al. 2021); single values run on the plain lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np

from gnnperf.analytic.gemm.calls import SIZES, as_specified, plain_dtype, product_us
from gnnperf.analytic.gemm.constants import typical
from gnnperf.analytic.gemm.model import ITEM_BYTES, products, rate_key
from gnnperf.analytic.kernels.call import Array, KernelCall, Setting
from gnnperf.analytic.memory_bound.constants import MemoryConstants
from gnnperf.analytic.memory_bound.streams import US, stream_us
from gnnperf.analytic.roofline import flops_per_s
from gnnperf.graph import DTYPE_BYTES, INDEX_BYTES, OpCall, UnknownCost, compressed_rows, op_cost
from gnnperf.hardware import DeviceSpec

TWO_FOUR_DENSITY = 0.5


def sparse_us(
    flops: np.ndarray, moved_bytes: np.ndarray, rate_flops_per_s: float, device: DeviceSpec, constants: MemoryConstants
) -> np.ndarray:
    """Device time [calls] us; see the module."""
    compute = device.launch_floor_us + flops / rate_flops_per_s * US  # [calls]
    return np.maximum(compute, stream_us(moved_bytes, device, constants))


def two_four_us(
    flops: np.ndarray, moved_bytes: np.ndarray, dense_us: np.ndarray, dense_rate_flops_per_s: float,
    device: DeviceSpec, constants: MemoryConstants,
) -> np.ndarray:  # fmt: skip
    """Device time [calls] us of a 2:4 product; units without the pattern multiply the zeros too, at the dense rate.

    The rate that matrix units sustain on dense operands, times `sparse_matrix_speedup` with the pattern, is that of all
    m n k products; that times the density is the rate of kept ones. No shape gains more than the units do, so a
    product is never faster than the dense one over the speedup: waves and tiles of small ones stay.
    """
    rate = dense_rate_flops_per_s * device.sparse_matrix_speedup * TWO_FOUR_DENSITY
    return np.maximum(sparse_us(flops, moved_bytes, rate, device, constants), dense_us / device.sparse_matrix_speedup)


SMALLEST_MATRIX_BLOCK = 16  # edge that matrix units take (torch/sparse/_triton_ops.py, check_blocksize)
DENSE = 1.0 - 1e-6  # density from which on nothing is missing
Size = tuple[float, ...]  # m, n, k


def _compressed(call: OpCall) -> Size:
    packed, dense = call.tensor(0), call.tensor(1)
    return float(compressed_rows(packed, dense)), float(dense.shape[1]), float(dense.shape[0])


def _values_at(values: int, dense: int) -> Callable[[OpCall], Size]:
    return lambda call: tuple(map(float, (call.tensor(values).shape[0], *call.tensor(dense).shape[:-3:-1])))


def _linear(call: OpCall) -> Size:
    x, weight = call.tensor(0), call.tensor(1)
    return float(weight.shape[0]), float(prod(x.shape[:-1])), float(x.shape[-1])


TWO_FOUR: Mapping[str, Callable[[OpCall], Size]] = {
    "aten::_cslt_sparse_mm": _compressed,
    "aten::_sparse_semi_structured_mm": _values_at(0, 2),
    "aten::_sparse_semi_structured_addmm": _values_at(1, 3),
    "aten::_sparse_semi_structured_linear": _linear,
}


def sparse_products_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us; NaN: a dense product, shapes that were not recorded, or (2:4) a dtype that the form has no rate for."""
    return np.array([_one_us(call, setting) for call in calls], float)


def _one_us(call: KernelCall, setting: Setting) -> float:
    try:
        return _two_four_us(call, setting) if call.op_name in TWO_FOUR else _retained_us(call, setting)
    except (UnknownCost, IndexError):  # fewer arguments or dimensions recorded than the op has
        return np.nan


def _two_four_us(call: KernelCall, setting: Setting) -> float:
    """On matrix units in any case: float32 as TF32, which the pattern has no other units for.

    Integers have no model of dense products, so that nothing but their rate and bytes bounds them.
    """
    m, n, k = TWO_FOUR[call.op_name](call.parsed())
    dtype = plain_dtype(call.known_dtype)
    rate, dense_us = _matrix_rate(setting, dtype), np.zeros(1)
    if dtype in ITEM_BYTES:
        dense_us = product_us(setting, dtype, tf32=True)(products(m, n, k, 1, ITEM_BYTES[dtype]))
    works = np.array([call.flops]), np.array([call.moved_bytes])
    return float(two_four_us(*works, dense_us, rate, setting.device, setting.memory)[0])


def _retained_us(call: KernelCall, setting: Setting) -> float:
    density = density_of(call)
    if not density < DENSE:
        raise UnknownCost
    dtype = plain_dtype(call.known_dtype)
    whole = values_per_index(call, density) > SMALLEST_MATRIX_BLOCK**2 / 2  # pointers count as indices too
    if whole and rate_key(setting.device, dtype, call.tf32).endswith("_matrix"):
        rate = _matrix_rate(setting, dtype)
    else:
        rate = flops_per_s(setting.device, "", call.dtype)
    works = np.array([call.flops]), np.array([call.moved_bytes])
    return float(sparse_us(*works, rate, setting.device, setting.memory)[0])


def density_of(call: KernelCall) -> float:
    """Share of the operand's values that is stored: FLOPs over those of the dense product.

    Raises UnknownCost: another op, FLOPs not known or none, shapes not recorded.
    """
    if call.plain_name not in SIZES or not call.flops > 0:
        raise UnknownCost
    batch, m, n, k = SIZES[call.plain_name](call.parsed())
    return call.flops / (2.0 * batch * m * n * k)


def values_per_index(call: KernelCall, density: float) -> float:
    """How many stored values share an index: 1 in CSR, the block's elements in BSR (pointers make it fewer).

    The bytes of the dense product less the values that are not stored leave the indices. Which operand is the sparse
    one is not on a node: the one that leaves fewer, as indices are small.
    """
    _, m, n, k = SIZES[call.plain_name](call.parsed())
    dense = op_cost(call.op_name, call.input_dims, None, None)
    item = DTYPE_BYTES[call.known_dtype]
    dense_bytes = dense.bytes / DTYPE_BYTES[dense.dtype or "float32"] * item
    left = [(call.moved_bytes - dense_bytes + item * (1.0 - density) * elements, density * elements)
            for elements in (m * k, k * n)]  # fmt: skip
    indices, retained = min((result for result in left if result[0] > 0), default=(np.inf, 0.0))
    return retained / (indices / INDEX_BYTES)


def _matrix_rate(setting: Setting, dtype: str) -> float:
    """FLOP/s that matrix units sustain on dense operands. Raises UnknownCost: the device has none for the dtype."""
    key = rate_key(setting.device, dtype, tf32=True)
    if not key.endswith("_matrix"):
        raise UnknownCost
    device = as_specified(setting, dtype, tf32=True) if dtype in ITEM_BYTES else setting.device
    return device.flops_per_s[key] * typical(setting.gemm["matrix"], "compute_share")
