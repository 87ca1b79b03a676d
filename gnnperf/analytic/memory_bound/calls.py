"""Kernels that stream memory: elementwise ops, reductions, copies, gathers, optimizer lists, Inductor's chains.

Bytes are those of the graph's cost formulas; their time is `gnnperf.analytic.memory_bound.streams`.

A fused chain has its ops in its name: triton_poi_fused_add_mul_relu_3 (pointwise), triton_per_..., triton_red_... (with
a reduction, rows kept on chip or in a loop). A recording has the buffers as arguments: each is read or written once
(Ansel et al. 2024). The name lists each op once, however often it occurs (torch/_inductor/utils.py,
get_fused_kernel_name), so instructions are counted at their least. A buffer that is updated in place is read and
written but counts once. A recording without shapes has no buffers, and no prediction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from math import prod

import numpy as np

from gnnperf.analytic.kernels.call import Array, KernelCall, Setting, column, known_rows, sized
from gnnperf.analytic.memory_bound.streams import (
    CONCATENATION,
    US,
    cache_bytes,
    chain_us,
    elementwise_us,
    miss_share,
    missing_share,
    reduction_us,
    stream_us,
)
from gnnperf.analytic.roofline import flops_per_s
from gnnperf.core import OpFamily
from gnnperf.graph import UnknownCost, broadcast, lookup, supported_ops

TENSORS_PER_LAUNCH = {1: 110, 2: 64, 3: 48, 4: 36, 5: 30}  # MultiTensorApply.cuh: depth_to_max_tensors
# Keys of `clocks`. A sum of columns takes longer than its bytes: parts of a column meet in log2(rows) levels, and
# threads walk down rows. nll_loss_backward in two axes runs in one block.
COLUMN_LEVEL, COLUMN_ROW, SCAN_ROW, LOSS_TARGET = "column_level", "column_row", "cumsum_row", "nll_loss_target"
# Of a cumsum down a matrix, the sizes measured (datasets/h200): a call does not have its axis, and along the columns of
# a larger one it takes its bytes.
SCAN_ROWS, SCAN_COLUMNS = 4096, 8
CASTS, WIDENED_BYTES = "cast", 2 + 4
# Ops that issue more than loads and stores -> key of lane_cycles
ISSUED = {**dict.fromkeys(("aten::cat", "aten::concat", "aten::concatenate"), CONCATENATION),
          "aten::index_add": "index_add", "aten::max_pool2d_with_indices_backward": "max_pool2d_backward",
          "aten::copy": CASTS}  # fmt: skip
BROADCAST_STREAMS = 3.0  # that pass between two sweeps of a broadcast operand: itself, another one, the result
CHUNK_ELEMENTS, CHUNKS_PER_LAUNCH = 65536, 320  # MultiTensorApply.cuh: kChunkSize, depth_to_max_blocks


def streams_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us of copies, gathers, fills, losses, pooling: bytes at the sustained bandwidth; NaN: bytes unknown."""
    moved = column(calls, "moved_bytes")
    missing = missing_share(moved, column(calls, "turns"), setting.device, setting.memory)
    us = stream_us(moved, setting.device, setting.memory, missing)
    issued = [ISSUED.get(call.plain_name) for call in calls]
    for key in {key for key in issued if key is not None}:
        rows = np.array([row for row, own in enumerate(issued) if own == key])
        elements = sized([calls[row] for row in rows], _issued_elements, 1)[:, 0]
        known = rows[~np.isnan(elements)]
        us[known] = elementwise_us(key, elements[~np.isnan(elements)], moved[known], setting.device, setting.memory,
                                   missing[known])  # fmt: skip
    losses = _clocks_us(sized(calls, _targets, 1)[:, 0], LOSS_TARGET, setting)
    us = np.where(np.isnan(losses), us, setting.device.launch_floor_us + losses)
    return _no_faster_than_arithmetic(us, calls, setting)


def _clocks_us(steps: Array, of: str, setting: Setting) -> Array:
    """[n] us of steps that a block does one after the other."""
    return steps * setting.memory.clocks[of] / setting.device.clock_hz * US


def _issued_elements(call: KernelCall) -> tuple[float]:
    """What is divided among threads. Raises UnknownCost: a copy that does not widen 16 bits."""
    parsed, key = call.parsed(), ISSUED[call.plain_name]
    if key == CONCATENATION:
        return (call.moved_bytes / 2 / call.item_bytes,)
    if key == CASTS:
        elements = float(parsed.tensor(0).numel)
        if call.moved_bytes != elements * WIDENED_BYTES or call.known_dtype != "float32":
            raise UnknownCost
        return (elements,)
    return (float(parsed.tensor(3 if key == "index_add" else 1).numel),)


def _targets(call: KernelCall) -> tuple[float]:
    if call.plain_name != "aten::nll_loss_backward":
        raise UnknownCost
    return (float(call.parsed().tensor(2).numel),)


def _no_faster_than_arithmetic(us: Array, calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us, or FLOPs at the sustained rate where that is longer: float64 on devices with few such lanes."""
    rate = np.array([flops_per_s(setting.device, call.family, call.dtype) for call in calls], float)
    flops = np.nan_to_num(column(calls, "flops"))  # unknown: bytes only
    return np.maximum(us, setting.device.launch_floor_us + flops / rate * US)


def elementwise_calls_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us of elementwise ops: bytes, or instructions where an op takes many; NaN: bytes unknown."""
    elements = np.nan_to_num(sized(calls, _elements, 1)[:, 0])  # unknown: bytes only
    moved, result = column(calls, "moved_bytes"), np.full(len(calls), np.nan)
    missing = missing_share(moved, column(calls, "turns"), setting.device, setting.memory)
    moved = moved + np.array([_read_again(call, setting) for call in calls])
    names = np.array([call.plain_name.removeprefix("aten::") for call in calls])
    for name in map(str, np.unique(names)):
        rows = np.flatnonzero(names == name)
        result[rows] = elementwise_us(name, elements[rows], moved[rows], setting.device, setting.memory, missing[rows])
    scans = _clocks_us(sized(calls, _scanned_rows, 1)[:, 0], SCAN_ROW, setting)
    return _no_faster_than_arithmetic(np.fmax(result, setting.device.launch_floor_us + scans), calls, setting)


def _scanned_rows(call: KernelCall) -> tuple[float]:
    shape = call.parsed().tensor(0).shape
    if call.plain_name != "aten::cumsum" or len(shape) != 2 or shape[0] > SCAN_ROWS or shape[1] != SCAN_COLUMNS:
        raise UnknownCost
    return (float(shape[0]),)


def reductions_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us of sums, means, maxima, ...; NaN: bytes unknown. Scans and sorts are bytes only."""
    elements, items, turns = sized(calls, _first_elements, 1)[:, 0], column(calls, "item_bytes"), column(calls, "turns")
    results = np.maximum(column(calls, "moved_bytes") / items - elements, 1.0)  # what the input leaves of the bytes
    rows_summed = np.nan_to_num(sized(calls, _rows_of_columns, 1)[:, 0])
    levels = np.log2(np.maximum(rows_summed, 1.0))  # [n]
    columns = _clocks_us(levels, COLUMN_LEVEL, setting) + _clocks_us(rows_summed, COLUMN_ROW, setting)
    result = streams_us(calls, setting)
    for item in np.unique(items):
        rows = np.flatnonzero((items == item) & ~np.isnan(elements + results))
        sizes = elements[rows], results[rows], int(item)
        result[rows] = reduction_us(*sizes, setting.device, setting.memory, turns[rows]) + columns[rows]
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
            missed = miss_share(np.array([BROADCAST_STREAMS * sweep]), cache_bytes(setting.device, setting.memory))[0]
            again += (prod(result) - prod(axes)) * call.item_bytes * missed
    return float(again)


def _first_elements(call: KernelCall) -> tuple[float]:
    if call.plain_name in ("aten::sort", "aten::argsort", "aten::topk", "aten::nonzero"):
        raise UnknownCost  # several passes: their bytes are counted, their results are not what bytes leave over
    return (float(call.parsed().tensor(0).numel),)


def _rows_of_columns(call: KernelCall) -> tuple[float]:
    """Rows that a sum over all but the last axis adds up. Raises UnknownCost: another reduction, or one column."""
    shape = call.parsed().tensor(0).shape
    if call.plain_name != "aten::sum" or len(shape) < 2 or shape[-1] == 1:
        raise UnknownCost
    results = round(call.moved_bytes / call.item_bytes - prod(shape))
    return (prod(shape[:-1]) if results == shape[-1] else 0.0,)


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
    missing = missing_share(moved, column(calls, "turns"), setting.device, setting.memory)
    result = [chain_us(chain_ops(call.op_name), elements[row : row + 1], moved[row : row + 1], setting.device,
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
