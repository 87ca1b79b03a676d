"""What is multiplied, and on what: sizes of products and vendor numbers of devices, as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gnnperf.core import InputError
from gnnperf.hardware import DeviceSpec

Array = npt.NDArray[np.float64]

ITEM_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8": 1}


@dataclass(frozen=True)
class Products:
    """[rows] products of [batch] x [m, k] x [k, n].

    Attributes:
        batch: products in one call.
        m: rows of the result.
        n: columns of the result.
        k: summed length.
        item_bytes: of one element.
        turns: calls in turn on operands of their own, which compete for the cache.
    """

    batch: Array
    m: Array
    n: Array
    k: Array
    item_bytes: Array
    turns: Array

    def part(self, rows: slice | npt.NDArray[np.intp]) -> Products:
        """Some of them."""
        return Products(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class DeviceNumbers:
    """Vendor numbers of [rows] devices, or of one: peak of unit and dtype, bandwidth, cache, SMs, clocks, power."""

    flops_per_s: Array
    bandwidth_bytes_per_s: Array
    l2_bytes: Array
    num_sms: Array
    clock_hz: Array
    power_limit_w: Array  # inf: unknown
    boost_over_base: Array  # clock over the one that the vendor guarantees under the power limit; inf: not published

    def part(self, rows: slice | npt.NDArray[np.intp]) -> DeviceNumbers:
        """Of some rows."""
        return DeviceNumbers(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def products(
    m: npt.ArrayLike,
    n: npt.ArrayLike,
    k: npt.ArrayLike,
    batch: npt.ArrayLike = 1,
    item_bytes: npt.ArrayLike = 4,
    turns: npt.ArrayLike = 1,
) -> Products:
    """Products of these sizes, broadcast against each other and flattened."""  # fmt: skip
    sizes = np.broadcast_arrays(*(np.asarray(v, float) for v in (batch, m, n, k, item_bytes, turns)))
    return Products(*(np.atleast_1d(v).ravel() for v in sizes))


def numbers_of(device: DeviceSpec, dtype: str, tf32: bool = False) -> DeviceNumbers:
    """Numbers of one device for products in `dtype`, as arrays of one row.

    Raises:
        InputError: a CPU, or a dtype that the catalog has no rate for.
    """
    rate = device.flops_per_s.get(rate_key(device, dtype, tf32))
    if device.kind != "gpu" or rate is None:
        raise InputError(
            f"no tiled products in {dtype} on {device.name}", where="gemm", allowed=", ".join(device.flops_per_s)
        )
    power = device.power_limit_w if device.power_limit_w else np.inf
    boost = device.clock_hz / device.base_clock_hz if device.base_clock_hz else np.inf
    result = (rate, device.memory_bandwidth_bytes_per_s, device.l2_bytes, device.num_sms, device.clock_hz, power, boost)
    return DeviceNumbers(*(np.array([v], float) for v in result))


def rate_key(device: DeviceSpec, dtype: str, tf32: bool = False) -> str:
    """Key of DeviceSpec.flops_per_s: matrix units where the dtype has them; float32 uses them if TF32 is allowed."""
    matrix = f"{dtype}_matrix"
    return matrix if matrix in device.flops_per_s and (dtype != "float32" or tf32) else dtype
