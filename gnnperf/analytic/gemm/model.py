"""Matrix products on GPUs: launch floor and a soft maximum of compute and memory, with tiles, waves, split k and L2.

    latency = floor + min over tiles and splits of throttled((compute^p + memory^p)^(1/p))

compute: waves of tiles over SMs (Osama et al. 2023, Stream-K, section 2), each a number of steps along k; a step takes
its arithmetic and its operands (Williams, Waterman, Patterson 2009, applied to one SM). memory: compulsory traffic and
what tiles read again, from DRAM as far as it outgrows the last-level cache. Results go to the cache after a tile's last
step (matrix units, part of compute) or meanwhile (lanes, part of memory). throttled: long calls compute at the clock of
the power limit, which costs what exceeds the wait for memory. Every candidate's time grows with each of batch, m, n and
k, so their minimum does: more work is never faster (but by another of SERVED_TILES). That is why alignment has no term
of its own: a product of 127 columns would cost more than one of 128. The constants (`GemmConstants`) are fitted; a
device enters as its vendor numbers. Without another source a formula is this module's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from gnnperf.analytic.gemm import constants as gemms
from gnnperf.analytic.memory_bound.streams import cache_parts
from gnnperf.analytic.roofline import soft_maximum
from gnnperf.core import InputError
from gnnperf.hardware import DeviceSpec

# What is multiplied, and on what: sizes of products and vendor numbers of devices, as arrays.

Array = npt.NDArray[np.float64]

# Of an operand's element. float8: a scale per row; float8_block: per 128 elements; float4: per 16 (nvfp4).
ITEM_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8": 1, "float8_block": 1, "float4": 0.5}
UNITS = {"float8_block": "float8"}  # dtype -> whose rate it has
QUANTIZED_FROM_BYTES = 2  # an element before it is quantized, and of the result


@dataclass(frozen=True)
class Products:
    """[rows] products of [batch] x [m, k] x [k, n]."""

    batch: Array  # products in one call
    m: Array  # rows of the result
    n: Array  # columns of the result
    k: Array  # summed length
    item_bytes: Array  # of one element
    turns: Array  # calls in turn on operands of their own, which compete for the cache

    def part(self, rows: slice | npt.NDArray[np.intp]) -> "Products":
        """Some of them."""
        return Products(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class DeviceNumbers:
    """Vendor numbers of [rows] devices, or of one: peak of unit and dtype, bandwidth, cache, SMs, clocks, power."""

    flops_per_s: Array
    bandwidth_bytes_per_s: Array
    l2_bytes: Array  # of one partition for matrix units: each keeps lines of the other one as well
    num_sms: Array
    clock_hz: Array
    power_limit_w: Array  # inf: unknown
    boost_over_base: Array  # clock over the one that the vendor guarantees under the power limit; inf: not published
    served: Array  # whose of SERVED_TILES the sizes decide on, or ANY_TILES
    matrix: Array  # 1: matrix units; 0: lanes

    def part(self, rows: slice | npt.NDArray[np.intp]) -> "DeviceNumbers":
        """Of some rows."""
        return DeviceNumbers(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def products(
    m: npt.ArrayLike, n: npt.ArrayLike, k: npt.ArrayLike, batch: npt.ArrayLike = 1, item_bytes: npt.ArrayLike = 4,
    turns: npt.ArrayLike = 1,
) -> "Products":  # fmt: skip
    """Products of these sizes, broadcast against each other and flattened."""  # fmt: skip
    sizes = np.broadcast_arrays(*(np.asarray(v, float) for v in (batch, m, n, k, item_bytes, turns)))
    return Products(*(np.atleast_1d(v).ravel() for v in sizes))


def numbers_of(device: DeviceSpec, dtype: str, tf32: bool = False) -> "DeviceNumbers":
    """Numbers of one device for products in `dtype`, as arrays of one row.

    Raises InputError: a CPU, or a dtype that the catalog has no rate for.
    """
    rate = device.flops_per_s.get(key := rate_key(device, dtype, tf32))
    if device.kind != "gpu" or rate is None:
        raise InputError(
            f"no tiled products in {dtype} on {device.name}", where="gemm", allowed=", ".join(device.flops_per_s)
        )
    power = device.power_limit_w if device.power_limit_w else np.inf
    boost = device.clock_hz / device.base_clock_hz if device.base_clock_hz else np.inf
    kernels = gemms.matrix_kernels_of(device)
    # On 2026-11-25, A100's linear layers on lanes erred by 15.8 % with the whole cache, 17.0 % with one of two parts.
    matrix = key.endswith("_matrix")
    l2 = device.l2_bytes / (cache_parts(device) if matrix else 1)
    is_served = dtype == gemms.SERVED_DTYPE and kernels in gemms.SERVED_TILES
    served = list(gemms.SERVED_TILES).index(kernels) if is_served else gemms.ANY_TILES
    bandwidth = device.memory_bandwidth_bytes_per_s
    result = (rate, bandwidth, l2, device.num_sms, device.clock_hz, power, boost, served, matrix)
    return DeviceNumbers(*(np.array([v], float) for v in result))


def rate_key(device: DeviceSpec, dtype: str, tf32: bool = False) -> str:
    """Key of DeviceSpec.flops_per_s: matrix units where the dtype has them; float32 uses them if TF32 is allowed."""
    unit = UNITS.get(dtype, dtype)
    matrix = f"{unit}_matrix"
    return matrix if matrix in device.flops_per_s and (unit != "float32" or tf32) else unit


US_PER_S = 1e6
SUM_BYTES = 4  # parts of a split product are added up in float32
Splits = tuple[float, ...]
SPLITS: Splits = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
WHOLE: Splits = (1.0,)  # kernels that sum all of k in one tile
SHORTEST_SPLIT = 32.0  # steps along k that a part keeps
SM_ELEMENTS = 2 * 128 * 128  # of results that one SM's registers hold at a time
MOST_TILES_PER_SM = 8.0
# Steps along k that tiles in flight are apart, so long is what they read in the cache. Of 128, 512 and no limit, the
# least error of float32 products on generations left out.
LIVE_STEPS = 512.0
LIMIT_POWER = 6.0  # p of the soft maximum: a power limit acts on what is beyond it only
REREAD_SHARPNESS = 3.0  # of a quantized row that leaves the cache between its passes
SOFT = 2.0  # sharpness of misses that are fitted by one constant only
LARGEST_RATIO = 1e6  # keeps powers finite
CHUNK_ROWS = 8192


class ProductTime(Protocol):
    """A model of products on one device."""

    def __call__(self, result: "Products", splits: Splits = SPLITS) -> Array:
        """[rows] us of kernels that may divide k into so many parts."""


@dataclass(frozen=True)
class Candidates:
    """What does not depend on constants: [rows, candidates] of every tile and split."""

    tile_elements: Array  # [candidates]; [rows, 1] of SERVED_TILES
    splits: Array  # [candidates]
    steps: Array  # along k, of one tile
    load_elements: Array  # of both operands, per step of one tile
    tiles_per_sm: Array
    resident: Array  # as tile_elements: tiles that one SM works on at a time
    span_elements: Array  # of the operands that tiles in flight read
    live_elements: Array  # the same of those that they read at about the same time
    read_elements: Array  # of operands, by all tiles


def family_of(key: str, batched: bool, dtype: str = "") -> str:
    """Family of constants for a rate's key: libraries choose other tiles for batches of float32 products."""
    if key.endswith("_matrix"):
        unit = key.removesuffix("_matrix")
        return next((family for family in (dtype, unit) if family in gemms.FAMILIES), "matrix")
    return "vector_batched" if batched else "vector"


def gemm_us(
    device: DeviceSpec, dtype: str, result: "Products", *, tf32: bool = False, splits: Splits = SPLITS,
    constants: Mapping[str, gemms.Members] | None = None, quantized: bool = False,
) -> Array:  # fmt: skip
    """[rows] us of products on one device; in 8 and 4 bits with the kernel that quantizes the left operand.

    `quantized`: it comes in that form already (`EIGHT_BITS`).

    Raises InputError: see `numbers_of`.
    """
    family = constants or gemms.default_gemm_constants()
    key, numbers = rate_key(device, dtype, tf32), numbers_of(device, dtype, tf32)  # numbers of one row
    us = np.full(len(result.m), np.nan)  # [rows]
    for batched in (False, True):
        rows = np.flatnonzero((result.batch > 1) == batched)
        members = members_on(device, family[family_of(key, batched, dtype)], key)
        us[rows] = tiled_us(result.part(rows), numbers, members, False, splits, quantized)
    return us


def members_on(device: DeviceSpec, members: gemms.Members, key: str) -> gemms.Members:
    """The members of a family whose kernels a device runs, for a rate's key."""
    if key.endswith("_matrix"):
        return gemms.members_for(members, gemms.matrix_kernels_of(device))
    return gemms.members_for(members, device.architecture, gemms.kernels_of(device.architecture))


def tiled_us(
    result: "Products", device: "DeviceNumbers", members: gemms.Members, launch_included: bool, splits: Splits = SPLITS,
    quantized: bool = False,
) -> Array:  # fmt: skip
    """[rows] us of one family: the geometric mean over its members, which grows with work as each of them does."""
    rows = len(result.m)
    numbers = DeviceNumbers(*(np.broadcast_to(getattr(device, f), rows) for f in device.__dataclass_fields__))
    every = []
    for constants in members:
        us = np.empty(rows)
        for at in range(0, rows, CHUNK_ROWS):
            some = slice(at, at + CHUNK_ROWS)
            part, device_part = result.part(some), numbers.part(some)
            us[some] = kernel_us(part, device_part, candidates(part, device_part, constants.tiles, splits), constants)
        if constants.quantize is not None and not quantized:
            us = us + quantize_us(result, numbers, constants, constants.quantize)
        every.append(observed_us(us, constants, launch_included))
    return np.exp(np.mean(np.log(every), axis=0))


def candidates(result: "Products", device: "DeviceNumbers", tiles: str, splits: Splits = SPLITS) -> Candidates:
    """Counts of every tile and split; one tile set of TILE_SETS, or the tile that the sizes decide on."""
    m, n = result.m[:, None], result.n[:, None]
    if (device.served == gemms.ANY_TILES).any():
        height, width, parts = np.array([(*tile, s) for tile in gemms.TILE_SETS[tiles] for s in splits], float).T
    else:
        height, width, parts = _served_tiles(m, n, device.served[:, None])
    resident = np.clip(SM_ELEMENTS / (height * width), 1.0, MOST_TILES_PER_SM)
    tiles_in_all = result.batch[:, None] * np.ceil(m / height) * np.ceil(n / width) * parts
    side = np.sqrt(device.num_sms[:, None] * resident)  # tiles in flight, arranged as a square
    load = np.minimum(m, height) + np.minimum(n, width)
    in_flight, k = np.minimum(m, side * height) + np.minimum(n, side * width), result.k[:, None]
    return Candidates(
        tile_elements=height * width, splits=parts, steps=np.maximum(k / parts, np.minimum(k, SHORTEST_SPLIT)),
        load_elements=load, tiles_per_sm=tiles_in_all / device.num_sms[:, None], resident=resident,
        span_elements=k * in_flight, live_elements=np.minimum(k, LIVE_STEPS) * in_flight,
        read_elements=tiles_in_all / parts * load * k,
    )  # fmt: skip


def _served_tiles(m: Array, n: Array, served: Array) -> tuple[Array, Array, Array]:
    """Height and width [rows, 1] of tiles, and into how many parts [1] they divide k; columns [rows, 1]."""
    result = np.zeros((len(m), 2))
    for place, tiles in enumerate(gemms.SERVED_TILES.values()):
        own, (rows, columns, *size) = served == place, np.array(tiles).T
        result = np.where(own, np.transpose(size)[np.argmax((m <= rows) & (n <= columns), axis=1)], result)
    return result[:, :1], result[:, 1:], np.ones(1)


def kernel_us(result: "Products", device: "DeviceNumbers", counts: Candidates, constants: gemms.GemmConstants) -> Array:
    """[rows] us of the fastest candidate, with the kernel's floor; an empty product costs the floor."""
    compute, memory = _compute_us(result, device, counts, constants), _memory_us(result, device, counts, constants)
    written = _result_bytes(result, constants) / _l2_bytes_per_us(device, constants)
    matrix = device.matrix[:, None]  # which write a tile after its last step; lanes, while others of the SM multiply
    compute, memory = compute + matrix * written, memory + (1 - matrix) * written
    soft = soft_maximum(compute, memory, constants.overlap_power)  # [rows, candidates]
    soft = _throttled_us(soft, compute, device, constants)
    empty = (result.batch == 0) | (result.m == 0) | (result.n == 0) | (result.k == 0)  # [rows]
    return constants.floor_clocks / device.clock_hz * US_PER_S + np.where(empty, 0.0, soft.min(axis=1))


def quantize_us(result: "Products", device: "DeviceNumbers", c: gemms.GemmConstants, quantize: gemms.Quantize) -> Array:
    """[rows] us of quantizing the left operand, read in 16 bits: start, then the slower of instructions and bytes.

    A row is read for its scale and again for its values: from DRAM where the rows in flight outgrow the cache.
    """
    elements = result.batch * result.m * result.k
    cache = c.l2_share * device.l2_bytes  # bytes
    rows = np.minimum(device.num_sms * quantize.rows_in_flight, result.batch * result.m)
    again = _missing(rows * result.k * QUANTIZED_FROM_BYTES / cache, REREAD_SHARPNESS)
    moved = elements * (QUANTIZED_FROM_BYTES * (1.0 + again) + result.item_bytes)  # bytes
    touched = result.turns * elements * (QUANTIZED_FROM_BYTES + result.item_bytes)
    dram_us = moved * _missing(touched / cache, c.l2_sharpness) / (device.bandwidth_bytes_per_s * c.memory_share)
    memory_us = dram_us * US_PER_S + moved / _l2_bytes_per_us(device, c)[:, 0]
    per_sm = np.maximum(result.batch * result.m / device.num_sms, 1.0) * result.k  # elements
    issue_us = per_sm * quantize.element_clocks / device.clock_hz * US_PER_S
    return quantize.start_clocks / device.clock_hz * US_PER_S + np.hypot(memory_us, issue_us)


def observed_us(kernel: Array, constants: gemms.GemmConstants, launch_included: bool) -> Array:
    """[rows] us as measured: of the kernel only, or with the wait for its launch, part of which a long kernel hides."""
    if not launch_included:
        return kernel
    p = constants.launch_power
    return (constants.launch_us**p + kernel**p) ** (1.0 / p)


def _compute_us(result: "Products", device: "DeviceNumbers", counts: Candidates, c: gemms.GemmConstants) -> Array:
    """[rows, candidates] us of tiles and waves, and of adding up split parts."""
    clock = device.clock_hz[:, None]
    rate = device.flops_per_s[:, None] / device.num_sms[:, None] * c.compute_share  # FLOP/s of one SM
    arithmetic = 2 * counts.tile_elements / rate  # s per step
    load = counts.load_elements * result.item_bytes[:, None] / (c.load_bytes_per_flop * rate)  # s per step
    # Rows of long operands lie far apart, and address translation misses.
    span = counts.span_elements * result.item_bytes[:, None] / (c.far_share * device.l2_bytes[:, None])
    step = np.hypot(arithmetic, load) * (1.0 + c.far_slowdown * _missing(span, SOFT))
    fill = c.wave_clocks / clock  # s
    flat = np.maximum(counts.tiles_per_sm, 1.0)
    waves = c.quantization * np.ceil(counts.tiles_per_sm) + (1 - c.quantization) * flat
    throughput = waves * (counts.steps * step + fill)  # s, if SMs are busy
    isolated = counts.steps * (2 * c.least_elements / rate + c.lone_tile_share * arithmetic) + fill
    latency = np.maximum(counts.tiles_per_sm / counts.resident, 1.0) * isolated  # s, if they wait for each step
    tiled = np.hypot(throughput, latency) * US_PER_S
    results = (result.batch * result.m * result.n)[:, None] * counts.splits
    split = c.split_us + 2 * SUM_BYTES * results / _l2_bytes_per_us(device, c)
    return tiled + np.where(counts.splits > 1, split, 0.0)


def _throttled_us(us: Array, compute: Array, device: "DeviceNumbers", c: gemms.GemmConstants) -> Array:
    """Long calls have the clock of the power limit, slower by max(1, peak / (power flops_per_joule)).

    But not below the base clock, which vendors guarantee under that limit, or by what both clocks say (`boost_power`).
    All of `compute` is slower, also results and parts on their way to the cache. A kernel that waits for memory
    computes in the meantime: the limit costs only what exceeds the wait.
    """
    demand = device.flops_per_s / device.power_limit_w / c.flops_per_joule
    limited = (1.0 + demand**LIMIT_POWER) ** (1.0 / LIMIT_POWER)  # [rows]
    slower = np.minimum(limited, device.boost_over_base)
    if c.boost_power:
        slower = np.where(np.isinf(device.boost_over_base), limited, device.boost_over_base**c.boost_power)
    slowed = np.maximum(us, compute * slower[:, None])
    return us + (slowed - us) * us / (us + c.throttle_us)


def _l2_bytes_per_us(device: "DeviceNumbers", c: gemms.GemmConstants) -> Array:
    """[rows, 1] of the last-level cache: so many times memory for matrix units, bytes per clock of an SM for lanes."""
    unit = np.where(device.matrix, device.bandwidth_bytes_per_s, device.clock_hz * device.num_sms)
    return (c.l2_rate * unit / US_PER_S)[:, None]


def _memory_us(result: "Products", device: "DeviceNumbers", counts: Candidates, c: gemms.GemmConstants) -> Array:
    """[rows, candidates] us: compulsory traffic and what tiles read again, as far as they outgrow the cache.

    But not the time that results take to the cache.
    """
    item, cache = result.item_bytes[:, None], c.l2_share * device.l2_bytes[:, None]  # bytes
    operands = (result.batch * (result.m * result.k + result.k * result.n))[:, None] * item  # bytes
    moved = operands + _result_bytes(result, c)
    again = counts.read_elements * item * c.reread_share * _missing(counts.live_elements * item / cache, SOFT)
    dram = moved * _missing(result.turns[:, None] * moved / cache, c.l2_sharpness) + again
    bandwidth = device.bandwidth_bytes_per_s[:, None] * c.memory_share / US_PER_S  # bytes per us
    return dram / bandwidth + operands / _l2_bytes_per_us(device, c)


def _result_bytes(result: "Products", c: gemms.GemmConstants) -> Array:
    item_bytes = result.item_bytes if c.quantize is None else QUANTIZED_FROM_BYTES
    return (result.batch * result.m * result.n * item_bytes)[:, None]


def _missing(working_set: Array, sharpness: float) -> Array:
    """Share of accesses that miss a cache, from the working set over its size: 0 far below 1, 1 far above."""
    outgrown = np.minimum(working_set, LARGEST_RATIO) ** sharpness
    return outgrown / (1.0 + outgrown)
