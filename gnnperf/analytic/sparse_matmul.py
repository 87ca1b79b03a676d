"""Sparse and block-sparse matrix products: the roofline of a sparse layer (Shinn et al. 2023, The Sparsity Roofline).

[m, k] sparse x [k, n] dense. With a density d (the share of values that is kept):

    FLOPs  2 m n k d
    bytes  item (d m k + k n + m n) + what says where the values are
    time   floor + max(FLOPs / rate, bytes / bandwidth)

Where the values are: unstructured (CSR): an index per value and a pointer per row; blocks: an index per block and a
pointer per row of blocks (Gray, Radford, Kingma 2017); 2:4: 2 bits per kept value (Mishra et al. 2021).

Rates: matrix units need whole blocks or the 2:4 pattern; unstructured values run on the plain lanes. 2:4 doubles the
peak of matrix units where the device has that (DeviceSpec.sparse_matrix_speedup).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnperf.analytic.bandwidth_bound import stream_us
from gnnperf.analytic.memory_constants import MemoryConstants
from gnnperf.hardware.spec import DeviceSpec

INDEX_BYTES = 4
TWO_FOUR_DENSITY, TWO_FOUR_BITS = 0.5, 2


@dataclass(frozen=True)
class SparseProducts:
    """Products [m, k] x [k, n] whose first operand is sparse; each field [calls]."""

    m: np.ndarray
    n: np.ndarray
    k: np.ndarray
    density: np.ndarray

    @property
    def kept(self) -> np.ndarray:
        """Values [calls] of the sparse operand that are stored."""
        return self.m * self.k * self.density

    @property
    def flops(self) -> np.ndarray:
        """[calls] of the stored values."""
        return 2.0 * self.kept * self.n


def unstructured_index_bytes(calls: SparseProducts) -> np.ndarray:
    """CSR [calls]: one column index per value, one pointer per row."""
    return INDEX_BYTES * (calls.kept + calls.m + 1.0)


def block_index_bytes(calls: SparseProducts, block: int) -> np.ndarray:
    """Blocks of block x block [calls]: one index per block, one pointer per row of blocks."""
    return INDEX_BYTES * (calls.kept / block**2 + np.ceil(calls.m / block) + 1.0)


def two_four_index_bytes(calls: SparseProducts) -> np.ndarray:
    """2:4 [calls]: 2 bits per kept value."""
    return calls.kept * TWO_FOUR_BITS / 8.0


def sparse_us(
    calls: SparseProducts,
    index_bytes: np.ndarray,
    item_bytes: int,
    rate_flops_per_s: float,
    device: DeviceSpec,
    constants: MemoryConstants,
) -> np.ndarray:
    """Device time [calls] us; see the module.

    Args:
        calls: sizes and densities.
        index_bytes: [calls] see the functions above.
        item_bytes: of a value.
        rate_flops_per_s: sustained, of the units that such a pattern can use.
        device: bandwidth and floor.
        constants: sustained bandwidth.
    """
    moved = item_bytes * (calls.kept + calls.k * calls.n + calls.m * calls.n) + index_bytes  # [calls]
    compute = device.launch_floor_us + calls.flops / rate_flops_per_s * 1e6  # [calls]
    return np.maximum(compute, stream_us(moved, device, constants))


def two_four_us(
    m: np.ndarray, n: np.ndarray, k: np.ndarray, item_bytes: int, dense_rate_flops_per_s: float, device: DeviceSpec,
    constants: MemoryConstants,
) -> np.ndarray:  # fmt: skip
    """Device time [calls] us of a 2:4 product; units without the pattern multiply the zeros too, at the dense rate.

    `dense_rate_flops_per_s` is what matrix units sustain on dense operands; with the pattern they take all m n k
    products at `sparse_matrix_speedup` times that rate, which is that times the density in kept ones.
    """
    calls = SparseProducts(m, n, k, np.full(len(m), TWO_FOUR_DENSITY))
    rate = dense_rate_flops_per_s * device.sparse_matrix_speedup * TWO_FOUR_DENSITY
    return sparse_us(calls, two_four_index_bytes(calls), item_bytes, rate, device, constants)


def breakeven_density(
    m: float, n: float, k: float, item_bytes: int, dense_us: float, rate_flops_per_s: float, device: DeviceSpec,
    constants: MemoryConstants,
) -> float:  # fmt: skip
    """The largest density at which an unstructured product is no slower than `dense_us`; 0 if none is."""
    grid = np.linspace(0.0, 1.0, 1001)  # [1001] densities
    rows, columns, depth = (np.full(len(grid), size) for size in (m, n, k))
    calls = SparseProducts(rows, columns, depth, grid)
    found = sparse_us(calls, unstructured_index_bytes(calls), item_bytes, rate_flops_per_s, device, constants)
    return float(grid[found <= dense_us].max(initial=0.0))
