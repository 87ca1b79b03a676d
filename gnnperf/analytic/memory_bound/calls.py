"""Kernels that stream memory: elementwise ops, reductions, copies, gathers, optimizer lists.

Bytes are those of the graph's cost formulas; what they cost is `gnnperf.analytic.memory_bound.streams`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from gnnperf.analytic.kernels.call import Array, KernelCall, Setting, known_rows, of_bytes, of_item_bytes, sized
from gnnperf.analytic.memory_bound.optimizers import CHUNK_ELEMENTS, CHUNKS_PER_LAUNCH, TENSORS_PER_LAUNCH
from gnnperf.analytic.memory_bound.streams import US, elementwise_us, reduction_us, stream_us
from gnnperf.analytic.roofline import flops_per_s
from gnnperf.graph import UnknownCost, broadcast


def streams_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us of copies, gathers, fills, losses, pooling: bytes at the sustained bandwidth; NaN: bytes unknown."""
    return _no_faster_than_arithmetic(stream_us(of_bytes(calls), setting.device, setting.memory), calls, setting)


def _no_faster_than_arithmetic(us: Array, calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us, or FLOPs at the sustained rate where that is longer: float64 on devices with few such lanes."""
    rate = np.array([flops_per_s(setting.device, call.family, call.dtype) for call in calls], float)
    flops = np.nan_to_num(np.array([call.flops for call in calls], float))  # unknown: bytes alone
    return np.maximum(us, setting.device.launch_floor_us + flops / rate * US)


def elementwise_calls_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us of elementwise ops: bytes, or instructions where an op takes many; NaN: bytes unknown."""
    elements = np.nan_to_num(sized(calls, _elements, 1)[:, 0])  # unknown: bytes alone
    moved, found = of_bytes(calls), np.full(len(calls), np.nan)
    names = np.array([call.plain_name.removeprefix("aten::") for call in calls])
    for name in map(str, np.unique(names)):
        rows = np.flatnonzero(names == name)
        found[rows] = elementwise_us(name, elements[rows], moved[rows], setting.device, setting.memory)
    return _no_faster_than_arithmetic(found, calls, setting)


def reductions_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us of sums, means, maxima, ...; NaN: bytes unknown. Scans and sorts are bytes alone."""
    elements, items = sized(calls, _first_elements, 1)[:, 0], of_item_bytes(calls)
    results = np.maximum(of_bytes(calls) / items - elements, 1.0)  # what the input leaves of the bytes
    found = streams_us(calls, setting)
    for item in np.unique(items):
        rows = np.flatnonzero((items == item) & ~np.isnan(elements + results))
        found[rows] = reduction_us(elements[rows], results[rows], int(item), setting.device, setting.memory)
    return _no_faster_than_arithmetic(found, calls, setting)


def lists_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us of foreach and fused optimizer ops: bytes, and a floor for each launch that its arguments take.

    Where the graph knows how many kernels there were, their floors are added outside.
    """
    sizes = sized(calls, _list_sizes, 3)  # lists, tensors, chunks
    found = streams_us(calls, setting)
    rows = known_rows(sizes)
    depth = np.clip(sizes[rows, 0], 1, max(TENSORS_PER_LAUNCH))
    per_launch = np.array([TENSORS_PER_LAUNCH[int(d)] for d in depth])
    launches = np.maximum(np.ceil(sizes[rows, 1] / per_launch), np.ceil(sizes[rows, 2] / CHUNKS_PER_LAUNCH))
    alone = np.array([calls[r].num_kernels == 1 for r in rows], bool)
    found[rows] += np.where(alone, np.maximum(launches - 1.0, 0.0), 0.0) * setting.device.launch_floor_us
    return found


def _elements(call: KernelCall) -> tuple[float]:
    shapes = [t.shape for t in call.parsed().all_tensors()]
    try:
        return (float(prod(broadcast(shapes))),)
    except UnknownCost:  # buffers of a fused kernel, conditions of other shapes
        return (float(max(map(prod, shapes), default=0)),)


def _first_elements(call: KernelCall) -> tuple[float]:
    if call.plain_name in ("aten::sort", "aten::argsort", "aten::topk", "aten::nonzero"):
        raise UnknownCost  # several passes: their bytes are counted, their results are not what bytes leave over
    return (float(call.parsed().tensor(0).numel),)


def _list_sizes(call: KernelCall) -> tuple[float, float, float]:
    parsed = call.parsed()
    lists = [found for found in parsed.lists if found]
    first = parsed.tensor_list(0)
    return float(len(lists)), float(len(first)), float(sum(-(-t.numel // CHUNK_ELEMENTS) for t in first))
