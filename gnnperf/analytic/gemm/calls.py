"""Matrix products: batch, m, n and k of each op from its shapes, then `gnnperf.analytic.gemm.model`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from gnnperf.analytic.gemm import model
from gnnperf.analytic.gemm.constants import typical
from gnnperf.analytic.kernels.call import Array, KernelCall, Setting, known_rows, sized
from gnnperf.analytic.memory_bound.streams import stream_us
from gnnperf.graph import OpCall, UnknownCost, broadcast, grouped_size
from gnnperf.hardware import DeviceSpec

CALIBRATED_EDGE = 4096
# Products of a program that compete for the cache, where nothing is known about it: as in the tables that constants of
# matrix units were fitted on; those of lanes were fitted on the same product again and again.
PROGRAM_TURNS = {True: 6.0, False: 1.0}
GROUPED = "aten::_grouped_mm"  # its edges are means over groups, none of which is odd: rows have the total's length
EIGHT_BITS = ("aten::_scaled_mm", "aten::_int_mm")  # take operands in 8 bits; other ops in 8 bits quantize their input
ODD_SLOWDOWN = 3.4  # of what arithmetic or bytes take at least; TraceLens (MIT): bmm of bf16 with edges 3137, 5185
DENSE = 1.0 - 1e-6  # of the FLOPs that shapes imply; with fewer, an operand is sparse: its stored values are a roofline
# Generations after those of the tables have tiles of 32 and 64 for batched float32 products of such edges (NeuSight's
# nodes on L4); the others multiply them in tiles of 128 (its tables, ampere_sgemm_128x128 in traces).
SHORT_EDGE, NARROW_TILES = 64, ("ada", "hopper", "blackwell")
Size = tuple[float, float, float, float]  # batch, m, n, k


def _product(a: tuple[int, ...], b: tuple[int, ...]) -> Size:
    """a [..., m, k] times b [..., k, n]; a matrix b is multiplied by all of a's rows at once, as torch folds them."""
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        raise UnknownCost
    if len(b) == 2:
        return 1.0, float(prod(a[:-1])), float(b[-1]), float(a[-1])
    return float(prod(broadcast([a[:-2], b[:-2]]))), float(a[-2]), float(b[-1]), float(a[-1])


def _operands(first: int) -> Callable[[OpCall], Size]:
    return lambda call: _product(call.tensor(first).shape, call.tensor(first + 1).shape)


def _matmul(call: OpCall) -> Size:
    a, b = call.tensor(0).shape, call.tensor(1).shape
    return _product((1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b)


def _linear(call: OpCall) -> Size:
    """linear(x [..., k], weight [n, k])."""
    x, weight = call.tensor(0).shape, call.tensor(1).shape
    return _product((prod(x[:-1]), x[-1]), weight[::-1])


SIZES: Mapping[str, Callable[[OpCall], Size]] = {
    **dict.fromkeys(("aten::mm", "aten::bmm", *EIGHT_BITS), _operands(0)),
    **dict.fromkeys(("aten::addmm", "aten::_addmm_activation", "aten::baddbmm"), _operands(1)),
    **dict.fromkeys(("aten::matmul", "aten::mv"), _matmul),
    "aten::linear": _linear,
    GROUPED: lambda call: grouped_size(call.shapes),
}


def products_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us of calls of matrix products; NaN: another op, shapes not recorded, or a dtype without a rate."""
    sizes = sized(calls, product_size, 4)
    result = np.full(len(calls), np.nan)
    kinds = [(plain_dtype(call.known_dtype), call.tf32, call.op_name in EIGHT_BITS) for call in calls]
    for dtype, tf32, quantized in sorted(set(kinds)):
        same = np.array([kind == (dtype, tf32, quantized) for kind in kinds])
        rows = np.intersect1d(known_rows(sizes), np.flatnonzero(same))
        if len(rows) and has_rate(setting.device, dtype, tf32):
            batch, m, n, k = sizes[rows].T
            estimate = product_us(setting, dtype, tf32, quantized)
            matrix = model.rate_key(setting.device, dtype, tf32).endswith("_matrix")
            usual = PROGRAM_TURNS[matrix]
            turns = [usual if (own := calls[row].turns) is None else own for row in rows]
            requested = model.products(m, n, k, batch, model.ITEM_BYTES[dtype], turns)
            whole = np.array([calls[row].plain_name != GROUPED for row in rows])
            us = np.maximum(estimate(requested), whole * odd_us(requested, dtype, tf32, setting.device))
            # On lanes, gemv streams the matrix that a vector is multiplied with: it has no tiles.
            streamed = stream_us(operand_bytes(requested), setting.device, setting.memory)
            result[rows] = np.minimum(us, np.where((np.minimum(m, n) == 1) & ~matrix, streamed, np.inf))
    return result


def odd_us(requested: model.Products, dtype: str, tf32: bool, device: DeviceSpec) -> Array:
    """[n] us that products of 16 bits with rows of an odd length take at least; 0 for others.

    Such rows do not start where vectors do: libraries have older kernels for them, which read element by element.
    """
    key = model.rate_key(device, dtype, tf32)
    odd = ((requested.n % 2 == 1) & (requested.n > 1)) | (requested.k % 2 == 1)  # [n] n = 1: a vector
    if not key.endswith("_matrix") or model.ITEM_BYTES[dtype] != 2:
        return np.zeros(len(odd))
    flops = 2.0 * requested.batch * requested.m * requested.n * requested.k  # [n]
    memory = operand_bytes(requested) / device.memory_bandwidth_bytes_per_s
    return np.where(odd, ODD_SLOWDOWN * np.maximum(flops / device.flops_per_s[key], memory) * model.US_PER_S, 0.0)


def operand_bytes(requested: model.Products) -> Array:
    """[n] bytes of both operands and the result, each once."""
    m, n, k = requested.m, requested.n, requested.k
    return requested.batch * (m * k + k * n + m * n) * requested.item_bytes


def product_size(call: KernelCall) -> tuple[float, ...]:
    """Batch, m, n, k. Raises UnknownCost: another op, shapes that do not determine them, or a sparse operand."""
    if call.plain_name not in SIZES:
        raise UnknownCost  # inductor's templates among them: their tiles are tuned for the shapes at hand
    size = SIZES[call.plain_name](call.parsed())
    if call.flops < DENSE * 2.0 * prod(size):
        raise UnknownCost
    return size


def plain_dtype(dtype: str) -> str:
    """The name that rates go by: all 8-bit floats have one."""
    return "float8" if dtype.startswith("float8") else dtype


def has_rate(device: DeviceSpec, dtype: str, tf32: bool = False) -> bool:
    """Whether products in that dtype have a rate of their own on the device."""
    return dtype in model.ITEM_BYTES and model.rate_key(device, dtype, tf32) in device.flops_per_s


def product_us(setting: Setting, dtype: str, tf32: bool = False, quantized: bool = False) -> model.ProductTime:
    """The model of matrix products on the setting's device. Its floor is no shorter than the device's.

    The tiles of batched float32 products are those of square matrices. On NARROW_TILES, results with a short edge come
    with other ones as well: the faster family is taken.
    """
    device = as_specified(setting, dtype, tf32)
    key = model.rate_key(device, dtype, tf32)
    batches, one_by_one = (model.family_of(key, batched, dtype) for batched in (True, False))
    single = {**setting.gemm, batches: setting.gemm[one_by_one]}

    def estimate(result: model.Products, splits: model.Splits = model.SPLITS) -> Array:
        us = model.gemm_us(device, dtype, result, tf32=tf32, constants=setting.gemm, splits=splits, quantized=quantized)
        rows = np.flatnonzero(result.batch > 1)
        if len(rows) and batches != one_by_one:
            requested, one = result.part(rows), replace(result.part(rows), batch=np.ones(len(rows)))
            other, least = (
                model.gemm_us(device, dtype, p, tf32=tf32, constants=single, splits=splits) for p in (requested, one)
            )
            short = (np.minimum(requested.m, requested.n) <= SHORT_EDGE) & (device.architecture in NARROW_TILES)
            better = np.where(short, np.minimum(us[rows], other), us[rows])
            us[rows] = np.maximum(better, least)  # a batch takes no less than one product of it
        return np.maximum(us, setting.device.launch_floor_us)

    return estimate


def as_specified(setting: Setting, dtype: str, tf32: bool = False) -> DeviceSpec:
    """The device in vendor numbers, of which the constants are shares.

    A calibrated device's rates are sustained already, power limit included: the rate of its fastest product. The peak
    is what makes the model sustain that rate on a product of CALIBRATED_EDGE.
    """
    device = setting.device
    key = model.rate_key(device, dtype, tf32)
    if not device.measured:
        return device
    members = model.members_on(device, setting.gemm[model.family_of(key, False, dtype)], key)
    rate = device.flops_per_s[key]
    bandwidth = device.memory_bandwidth_bytes_per_s / typical(members, "memory_share")
    free = replace(device, memory_bandwidth_bytes_per_s=bandwidth, power_limit_w=None)
    square = model.products(CALIBRATED_EDGE, CALIBRATED_EDGE, CALIBRATED_EDGE, 1, model.ITEM_BYTES[dtype])
    us = model.gemm_us(free, dtype, square, tf32=tf32, constants=setting.gemm)[0]
    reached = 2.0 * CALIBRATED_EDGE**3 / us * model.US_PER_S
    return replace(free, flops_per_s={**device.flops_per_s, key: rate * rate / reached})
