"""Sparse and block-sparse matrix products: the roofline of a sparse layer (Shinn et al. 2023, The Sparsity Roofline).

    time = floor + max(FLOPs of kept values / rate, bytes / bandwidth)

FLOPs and bytes, with what says where the values are, come from `gnnperf.graph.cost.sparse_matmul`. Rates: matrix units
need whole blocks (Gray, Radford, Kingma 2017) or the 2:4 pattern; single values run on the plain lanes. 2:4 doubles the
peak of matrix units where the device has that (DeviceSpec.sparse_matrix_speedup; Mishra et al. 2021).
"""

from __future__ import annotations

import numpy as np

from gnnperf.analytic.memory_bound.constants import MemoryConstants
from gnnperf.analytic.memory_bound.streams import US, stream_us
from gnnperf.hardware import DeviceSpec

TWO_FOUR_DENSITY = 0.5


def sparse_us(
    flops: np.ndarray, moved_bytes: np.ndarray, rate_flops_per_s: float, device: DeviceSpec, constants: MemoryConstants
) -> np.ndarray:
    """Device time [calls] us; see the module.

    Args:
        flops: [calls] of the values that are kept.
        moved_bytes: [calls] values and indices, the dense operand, the result.
        rate_flops_per_s: sustained, of the units that such a pattern can use.
        device: bandwidth and floor.
        constants: sustained bandwidth.
    """
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

    Args:
        flops: [calls] of the values that are kept.
        moved_bytes: [calls] see `sparse_us`.
        dense_us: [calls] of the same product without the pattern.
        dense_rate_flops_per_s: what matrix units sustain on dense operands.
        device: bandwidth, floor, speedup.
        constants: sustained bandwidth.
    """
    rate = dense_rate_flops_per_s * device.sparse_matrix_speedup * TWO_FOUR_DENSITY
    return np.maximum(sparse_us(flops, moved_bytes, rate, device, constants), dense_us / device.sparse_matrix_speedup)
