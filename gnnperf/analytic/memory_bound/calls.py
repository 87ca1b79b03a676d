"""Kernels that stream memory: elementwise ops, reductions, copies, gathers, optimizer lists, Inductor's chains.

Bytes are those of the graph's cost formulas; their time is `gnnperf.analytic.memory_bound.streams`.

A fused chain has its ops in its name: triton_poi_fused_add_mul_relu_3 (pointwise), triton_per_..., triton_red_... (with
a reduction, rows kept on chip or in a loop). A recording has the buffers as arguments: each is read or written once
(Ansel et al. 2024). The name lists each op once, however often it occurs (torch/_inductor/utils.py,
get_fused_kernel_name), so instructions are counted at their least. A buffer that is updated in place is read and
written but counts once. A recording without shapes has no buffers, and no prediction.
"""

import re
from collections.abc import Sequence
from functools import cache
from math import prod

import numpy as np

from gnnperf.analytic.kernels.call import Array, KernelCall, Setting, column, known_rows, sized
from gnnperf.analytic.memory_bound import streams
from gnnperf.analytic.roofline import flops_per_s
from gnnperf.core import OpFamily
from gnnperf.graph import UnknownCost, broadcast, lookup, supported_ops

TENSORS_PER_LAUNCH = {1: 110, 2: 64, 3: 48, 4: 36, 5: 30}  # MultiTensorApply.cuh: depth_to_max_tensors
# Keys of `clocks`. A sum of columns takes longer than its bytes: parts of a column meet in log2(rows) levels, and
# threads walk down rows. nll_loss_backward in two axes runs in one block.
COLUMN_LEVEL, COLUMN_ROW, SCAN_ROW, LOSS_TARGET = "column_level", "column_row", "cumsum_row", "nll_loss_target"
WARP_THREADS, BLOCK_COLUMNS = 32, 128  # Reduce.cuh: a block is a warp wide, and each of its threads has four columns
# A call does not have the axis of a scan. It counts as the last one (ScanUtils.cuh, scan_innermost_dim: a block's 512
# threads), or as the longest one of few columns, as measured (scan_outer_dim: a thread). One axis takes all blocks.
SCANS, SCAN_THREADS, LEAST_SCAN_THREADS, SCAN_COLUMNS = ("aten::cumsum", "aten::cumprod"), 512, 16, 8
# Keys of `index_cycles`. Kernels load 16 bytes at a time where all operands are contiguous and of a dtype (Loops.cuh).
# A cast or a mixed pair takes element by element; a broadcast operand, or a view as the source, divides to index each
# (OffsetCalculator.cuh). So do tensors that were expanded before: a mean's gradient of three axes or more, which a
# number of 64 bits divides, the counts that divide sums of their shape, and images that are summed over samples and
# pixels. Each row of a reduction is a warp's, and each row of a gather a block's: these start one after the other
# (vectorized_gather_kernel).
CASTS, WIDENED_BYTES, STRIDED, TRANSPOSED = "cast", 2 + 4, "strided", "transposed"
BROADCAST, MIXED, EXPANDED = "broadcast", "mixed", "expanded"
REDUCED, REDUCED_ROW, GATHER_ROW = "reduced", "reduced_row", "gather_row"
MIXING = ("add", "sub", "mul", "div")  # ops whose operands may be of two dtypes
# Ops that issue more than loads and stores -> key of lane_cycles or index_cycles, and the argument whose elements
# threads share
ISSUED = {"aten::index_add": ("index_add", 3), "aten::max_pool2d_with_indices_backward": ("max_pool2d_backward", 1),
          "aten::avg_pool2d_backward": ("avg_pool2d_backward", 1),
          "aten::native_dropout": ("native_dropout", 0)}  # fmt: skip
ALONG_ROWS, BLOCK_INDICES = {"aten::gather": GATHER_ROW, "aten::scatter_add": "scatter_add"}, 4  # of Indexing.cu
INDEX_BYTES = NUMBER_BYTES = 8  # of a position (int64), of a number (float64 or int64)
BROADCAST_STREAMS = 3.0  # that pass between two sweeps of a broadcast operand: itself, another one, the result
CHUNK_ELEMENTS, CHUNKS_PER_LAUNCH = 65536, 320  # MultiTensorApply.cuh: kChunkSize, depth_to_max_blocks


def streams_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us of copies, gathers, fills, losses, pooling: bytes at the sustained bandwidth; NaN: bytes unknown."""
    moved = column(calls, "moved_bytes")
    missing = streams.missing_share(moved, column(calls, "turns"), setting.device, setting.memory)
    us = streams.stream_us(moved, setting.device, setting.memory, missing)
    issued = [_issued(call) for call in calls]
    for key in {key for key, *_ in issued if key}:
        rows = np.array([row for row, (own, *_) in enumerate(issued) if own == key])
        elements, own_bytes = np.array([issued[row][1:] for row in rows]).T
        us[rows] = streams.elementwise_us(key, elements, own_bytes, setting.device, setting.memory, missing[rows])
    losses = _clocks_us(sized(calls, _targets, 1)[:, 0], LOSS_TARGET, setting)
    us = np.where(np.isnan(losses), us, setting.device.launch_floor_us + losses)
    return _no_faster_than_arithmetic(us, calls, setting)


def _clocks_us(steps: Array, of: str, setting: Setting) -> Array:
    """[n] us of steps that a block does one after the other."""
    return steps * setting.memory.clocks[of] / setting.device.clock_hz * streams.US


def _issued(call: KernelCall) -> tuple[str, float, float]:
    """Key of lane_cycles or index_cycles, what threads share, bytes; "": only loads and stores, or sizes not known.

    Backward of upsampling adds atomically: additions to one element wait for each other.
    """
    name, moved, item = call.plain_name, float(call.moved_bytes), call.item_bytes
    try:
        parsed = call.parsed()
        if name in ("aten::cat", "aten::concat", "aten::concatenate"):
            return (*_concatenated([p.shape for p in parsed.tensor_list(0) if p.numel], moved / 2 / item), moved)
        first = parsed.tensor(0)
        elements = float(first.numel)
        if name == "aten::copy":
            return (*_copied(first.shape, parsed.tensor(1).shape, moved / elements, call), moved)
        if name in ALONG_ROWS and len(first.shape) > 1:  # along the first axis: an expanded index, one for each row
            index = parsed.tensor(2).shape
            along = index[1:] == first.shape[1:] != (1,) * len(index[1:]) and index[0] != first.shape[0]
            key, count = ALONG_ROWS[name], index[0] if name == "aten::gather" else prod(index)
            return key if along else "", count, moved - INDEX_BYTES * (prod(index) - index[0])
        if name == "aten::_index_put_impl" and call.num_kernels > 1:  # adds up: a warp for each index of a last axis
            *others, last = parsed.tensor(2).shape
            return GATHER_ROW if last != first.shape[-1] else "", prod(others) * np.ceil(last / BLOCK_INDICES), moved
        if name == "aten::avg_pool2d":
            return "avg_pool2d", moved / item - elements, moved
        if name == "aten::max_pool2d_with_indices":
            return "max_pool2d", (moved - elements * item) / (item + INDEX_BYTES), moved
        if name == "aten::upsample_bilinear2d_backward":
            return "upsample_backward", elements * elements / (moved / item - elements), moved
        key, argument = ISSUED[name]
        return key, float(parsed.tensor(argument).numel), moved
    except (UnknownCost, IndexError, KeyError, ZeroDivisionError):
        return "", 0.0, moved


def _concatenated(parts: Sequence[tuple[int, ...]], elements: float) -> tuple[str, float]:
    """Matrices, equal parts of three axes, and images are taken to be contiguous, and move in vectors.

    Each other part has blocks of its own. Few parts have too few blocks to keep an SM busy.
    """
    axes = {len(part) for part in parts}
    images = axes == {4} and all(part[2] == part[3] for part in parts)
    vectors = images or axes <= {0, 1, 2} or (axes == {3} and len(set(parts)) == 1)
    return ("", 0.0) if vectors else ("concatenated", elements * (1.0 + 1.0 / len(parts)))


def _copied(shape: tuple[int, ...], source: tuple[int, ...], each_bytes: float, call: KernelCall) -> tuple[str, float]:
    """A copy without a cast has a view as its source: its program wants another order of the elements.

    With three axes it is mostly a batch of transposed matrices: neighbors in one are not neighbors in the other. Where
    an edge is shorter than a warp, a sector that a load touches serves the next ones.
    """
    if each_bytes == WIDENED_BYTES and call.known_dtype == "float32":
        return CASTS, prod(shape)
    if shape == source and len(shape) > 2 and each_bytes == 2 * call.item_bytes:
        return TRANSPOSED if len(shape) == 3 and min(shape[1:]) >= WARP_THREADS else STRIDED, prod(shape)
    return "", 0.0


def _targets(call: KernelCall) -> tuple[float]:
    if call.plain_name != "aten::nll_loss_backward":
        raise UnknownCost
    return (float(call.parsed().tensor(2).numel),)


def _no_faster_than_arithmetic(us: Array, calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us, or FLOPs at the sustained rate where that is longer: float64 on devices with few such lanes."""
    rate = np.array([flops_per_s(setting.device, call.family, call.dtype) for call in calls], float)
    flops = np.nan_to_num(column(calls, "flops"))  # unknown: bytes only
    return np.maximum(us, setting.device.launch_floor_us + flops / rate * streams.US)


def elementwise_calls_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us of elementwise ops: bytes, or instructions where an op takes many; NaN: bytes unknown."""
    elements = np.nan_to_num(sized(calls, _elements, 1)[:, 0])  # unknown: bytes only
    moved, result = column(calls, "moved_bytes"), np.full(len(calls), np.nan)
    missing = streams.missing_share(moved, column(calls, "turns"), setting.device, setting.memory)
    moved = moved + np.array([_read_again(call, setting) for call in calls])
    names = np.array([_key(call) for call in calls])
    for name in map(str, np.unique(names)):
        rows = np.flatnonzero(names == name)
        result[rows] = streams.elementwise_us(
            name, elements[rows], moved[rows], setting.device, setting.memory, missing[rows]
        )
    scans = _clocks_us(sized(calls, _scan_steps, 1)[:, 0], SCAN_ROW, setting)
    result = _at_least(result, setting.device.launch_floor_us + scans)
    return _no_faster_than_arithmetic(result, calls, setting)


def _at_least(result_us: Array, other_us: Array) -> Array:
    """[n] us: the longer one where the other is known; NaN where the result is."""
    return np.where(np.isnan(result_us), np.nan, np.fmax(result_us, other_us))


def _scan_steps(call: KernelCall) -> tuple[float]:
    """Steps one after the other: elements down another axis than the last, twice a row's threads along it."""
    shape = call.parsed().tensor(0).shape
    if call.plain_name not in SCANS or not prod(shape) > max(shape, default=1):
        raise UnknownCost
    length, longest = shape[-1], max(shape)
    if length < longest and prod(shape) <= SCAN_COLUMNS * longest:
        return (float(longest),)
    row, rows = (np.ceil(np.log2(size)) for size in (length, prod(shape) / length))
    threads = np.clip(2.0 ** ((np.log2(SCAN_THREADS) + row - rows) // 2), LEAST_SCAN_THREADS, SCAN_THREADS)
    return (float(np.ceil(length / (2 * threads))),)


def reductions_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us of sums, means, maxima, ...; NaN: bytes unknown. Scans and sorts are bytes only."""
    elements, items, turns = sized(calls, _first_elements, 1)[:, 0], column(calls, "item_bytes"), column(calls, "turns")
    results = np.maximum(column(calls, "moved_bytes") / items - elements, 1.0)  # what the input leaves of the bytes
    rows_summed, images = np.nan_to_num(sized(calls, rows_of_columns, 2)).T
    levels = np.log2(np.maximum(rows_summed, 1.0))  # [n]
    columns = _clocks_us(levels, COLUMN_LEVEL, setting) + _clocks_us(rows_summed, COLUMN_ROW, setting)
    result = streams_us(calls, setting)
    for item in np.unique(items):
        rows = np.flatnonzero((items == item) & ~np.isnan(elements + results))
        sizes = elements[rows], results[rows], int(item)
        result[rows] = streams.reduction_us(*sizes, setting.device, setting.memory, turns[rows]) + columns[rows]
    for key, count in ((REDUCED, elements), (REDUCED_ROW, sized(calls, _rows_in_warps, 1)[:, 0]), (EXPANDED, images)):
        others = np.where(rows_summed > 0, np.nan, count)  # [n]
        result = _at_least(result, streams.elementwise_us(key, others, 0.0 * others, setting.device, setting.memory))
    return _no_faster_than_arithmetic(result, calls, setting)


def lists_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us of foreach and fused optimizer ops: bytes, and a floor for each launch that its arguments take.

    Where the graph has the number of kernels, their floors are added outside.
    """
    sizes = sized(calls, _list_sizes, 3)  # lists, tensors, chunks
    result = streams_us(calls, setting)
    rows = known_rows(sizes)
    depth = np.clip(sizes[rows, 0], 1, max(TENSORS_PER_LAUNCH))
    per_launch = np.array([TENSORS_PER_LAUNCH[int(d)] for d in depth])
    launches = np.maximum(np.ceil(sizes[rows, 1] / per_launch), np.ceil(sizes[rows, 2] / CHUNKS_PER_LAUNCH))
    isolated = np.array([calls[r].num_kernels == 1 for r in rows], bool)
    result[rows] += np.where(isolated, np.maximum(launches - 1.0, 0.0), 0.0) * setting.device.launch_floor_us
    return result


def _elements(call: KernelCall) -> tuple[float]:
    shapes = [t.shape for t in call.parsed().all_tensors()]
    try:
        return (float(prod(broadcast(shapes))),)
    except UnknownCost:  # buffers of a fused kernel, conditions of other shapes
        return (float(max(map(prod, shapes), default=0)),)


def _key(call: KernelCall) -> str:
    """Key of lane_cycles, or of index_cycles where operands differ in shape or, as bytes show, in dtype."""
    name = call.plain_name.removeprefix("aten::")
    try:
        parsed = call.parsed()
        operands = parsed.tensors[:2] if name in MIXING else parsed.all_tensors()  # a third one is out=
        shapes = [t.shape for t in operands if t is not None and t.shape]
        result, sizes = broadcast(shapes), list(map(prod, shapes))
    except UnknownCost:
        return name
    long_axes = sum(size > 1 for size in result)
    other_bytes = call.moved_bytes - 2 * prod(result) * call.item_bytes
    if call.op_name == "aten::div" and len(shapes) == 1 and long_axes > 2 and other_bytes == NUMBER_BYTES:
        return EXPANDED
    counts = name == "div" and len(shapes) == 2 and shapes[0] == shapes[1] and long_axes > 1
    of_one_dtype = (sum(sizes) + prod(result)) * call.item_bytes
    differs = bool(call.moved_bytes > 0 and abs(call.moved_bytes - of_one_dtype) >= prod(result))
    mixed = name in MIXING and len(shapes) > 1 and differs
    return "_".join([BROADCAST] * (counts or min(sizes, default=1) < prod(result)) + [MIXED] * mixed) or name


def _read_again(call: KernelCall, setting: Setting) -> float:
    """Bytes of operands that are broadcast, beyond the first reading of each, as far as they left the cache.

    An operand [2, 1, 2048, 2048] is swept once for each index of the second axis. Between two sweeps, a result and an
    operand of its own size pass as well.
    """
    try:
        shapes = [t.shape for t in call.parsed().all_tensors()]
        result = broadcast(shapes)
    except UnknownCost:
        return 0.0
    again = 0.0
    for shape in shapes:
        axes = [1] * (len(result) - len(shape)) + list(shape)
        along = [axis for axis, (own, whole) in enumerate(zip(axes, result, strict=True)) if own == 1 < whole]
        if along:
            sweep = prod(axes[along[-1] :]) * call.item_bytes  # bytes
            missed = streams.miss_share(
                np.array([BROADCAST_STREAMS * sweep]), streams.cache_bytes(setting.device, setting.memory)
            )[0]
            again += (prod(result) - prod(axes)) * call.item_bytes * missed
    return float(again)


def _first_elements(call: KernelCall) -> tuple[float]:
    if call.plain_name in ("aten::sort", "aten::argsort", "aten::topk", "aten::nonzero"):
        raise UnknownCost  # several passes: their bytes are counted, their results are not what bytes leave over
    return (float(call.parsed().tensor(0).numel),)


def rows_of_columns(call: KernelCall) -> tuple[float, float]:
    """Rows that a block's threads walk in a sum over all but the last axis; elements of one over all but the channels.

    Threads that a narrow matrix has no columns for take other rows. Images are taken to be contiguous. Raises
    UnknownCost: another reduction, one column.
    """
    shape = call.parsed().tensor(0).shape
    if call.plain_name != "aten::sum" or len(shape) < 2 or shape[1:] == (1,) or not np.isfinite(call.moved_bytes):
        raise UnknownCost
    results = round(call.moved_bytes / call.item_bytes - prod(shape))
    if len(shape) == 4 and results == shape[1] < prod(shape[1:]):
        return 0.0, float(prod(shape))
    if not results or results not in (shape[-1], shape[1] if len(shape) == 4 else 0):
        return 0.0, 0.0
    width = 2.0 ** np.floor(np.log2(max(results, 1)))
    return prod(shape) / results * min(width / BLOCK_COLUMNS, 1.0), 0.0


def _rows_in_warps(call: KernelCall) -> tuple[float]:
    """Results of a reduction of the last axes. Raises UnknownCost: other axes, or rows shorter than a warp."""
    shape = call.parsed().tensor(0).shape
    if not np.isfinite(call.moved_bytes):  # of an unknown dtype
        raise UnknownCost
    results = round(call.moved_bytes / call.item_bytes - prod(shape))
    leading = [prod(shape[:axis]) for axis in range(1, len(shape))]
    if results < 2 or results * WARP_THREADS > prod(shape) or results not in leading:
        raise UnknownCost
    return (float(results),)


def _list_sizes(call: KernelCall) -> tuple[float, float, float]:
    parsed = call.parsed()
    lists = [result for result in parsed.lists if result]
    first = parsed.tensor_list(0)
    return float(len(lists)), float(len(first)), float(sum(-(-t.numel // CHUNK_ELEMENTS) for t in first))


CHAIN = re.compile(r"triton_(?:poi|per|red)_fused_(.+?)(?:_\d+)?")
PREFIX = "aten::"


def is_chain(call: KernelCall) -> bool:
    """Whether the call is a kernel that Inductor fused."""
    return CHAIN.fullmatch(call.op_name) is not None


def chains_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us of fused chains (`is_chain`); NaN: no buffers recorded."""
    buffers = sized(calls, lambda call: (max((t.numel for t in call.parsed().all_tensors()), default=0),), 1)
    elements = np.nan_to_num(buffers[:, 0])  # of the largest one; unknown: bytes only
    moved = column(calls, "moved_bytes")
    missing = streams.missing_share(moved, column(calls, "turns"), setting.device, setting.memory)
    result = [streams.chain_us(chain_ops(call.op_name), elements[row : row + 1], moved[row : row + 1], setting.device,
                      setting.memory, missing[row : row + 1])[0] for row, call in enumerate(calls)]  # fmt: skip
    return np.array(result, float)


@cache
def chain_ops(name: str) -> tuple[str, ...]:
    """The ops of a kernel's name that compute, without views: ("add", "silu_backward") of triton_poi_fused_..._3.

    Names hold underscores themselves, so the longest op that has a cost formula is taken first; a word that is in
    none counts as an op.
    """
    match = CHAIN.fullmatch(name)
    words = match[1].split("_") if match else []
    result: list[str] = []
    while words:
        size = next((n for n in range(len(words), 0, -1) if PREFIX + "_".join(words[:n]) in _known()), 1)
        op = "_".join(words[:size])
        computes = op and not op.isdigit() and lookup(PREFIX + op)[0] is not OpFamily.VIEW
        result += [op] if computes else []
        words = words[size:]
    return tuple(result)


@cache
def _known() -> frozenset[str]:
    return frozenset(supported_ops())
