"""Kernels that stream memory: elementwise ops, reductions, copies, gathers, optimizer lists.

Bytes are those of the graph's cost formulas; what they cost is `gnnperf.analytic.memory_bound.streams`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import prod

import numpy as np

from gnnperf.analytic.kernels.call import Array, KernelCall, Setting, known_rows, of_bytes, of_item_bytes, sized
from gnnperf.analytic.memory_bound.constants import MemoryConstants
from gnnperf.analytic.memory_bound.streams import US, elementwise_us, reduction_us, stream_us, sustained_bytes_per_s
from gnnperf.analytic.roofline import flops_per_s
from gnnperf.graph import UnknownCost, broadcast
from gnnperf.hardware import DeviceSpec

# Optimizer steps: bytes per parameter and state, launches per step.
#
#                     reads and writes per parameter            launches
#     foreach         each op of the update reads and writes    ops x ceil(tensors / tensors per launch)
#     fused           each state once                           ceil(tensors / tensors per launch)
#     loop            as foreach                                ops x tensors
#
# State: gradient read; parameter and states read and written; with mixed precision, a float32 copy of the parameter
# read
# and written and the low-precision parameter written (Micikevicius et al. 2018). A multi-tensor launch takes as many
# tensors and chunks as its arguments hold (torch's MultiTensorApply.cuh).

STATE_BYTES = 4  # moments and the master copy are float32
TENSORS_PER_LAUNCH = {1: 110, 2: 64, 3: 48, 4: 36, 5: 30}  # MultiTensorApply.cuh: depth_to_max_tensors
CHUNK_ELEMENTS, CHUNKS_PER_LAUNCH = 65536, 320  # MultiTensorApply.cuh: kChunkSize, depth_to_max_blocks


class Implementation(StrEnum):
    """How a step is launched."""

    LOOP = "loop"
    FOREACH = "foreach"
    FUSED = "fused"


@dataclass(frozen=True)
class UpdateRule:
    """One optimizer.

    Attributes:
        states: float32 tensors per parameter that are read and written (momentum 1, Adam 2).
        ops: elementwise ops of an update that is not fused.
        tensors_touched: tensors that those ops read and write, all together.
    """

    states: int
    ops: int
    tensors_touched: int


SGD = UpdateRule(states=0, ops=1, tensors_touched=3)  # p += -lr g
MOMENTUM = UpdateRule(states=1, ops=3, tensors_touched=8)  # m *= mu (2); m += g (3); p += -lr m (3)
# m.lerp_(g) (3); v *= b (2); v.addcmul_(g, g) (3: g once); sqrt (2); /= bias (2); += eps (2); p.addcdiv_(m, d) (4)
ADAM = UpdateRule(states=2, ops=7, tensors_touched=18)


def bytes_per_parameter(
    rule: UpdateRule, implementation: Implementation, parameter_bytes: int, gradient_bytes: int, master: bool = False
) -> float:
    """Bytes read and written for each parameter; see the module.

    Args:
        rule: the optimizer.
        implementation: fused or not.
        parameter_bytes: of the parameter that the model uses.
        gradient_bytes: of its gradient.
        master: a float32 copy is what is updated; the model's parameter is written from it.
    """
    if implementation is Implementation.FUSED:
        updated = 2.0 * STATE_BYTES + parameter_bytes if master else 2.0 * parameter_bytes
        return gradient_bytes + updated + 2.0 * STATE_BYTES * rule.states
    unfused = float(rule.tensors_touched * (STATE_BYTES if master else parameter_bytes))
    return unfused + (gradient_bytes + STATE_BYTES + STATE_BYTES + parameter_bytes if master else 0.0)


def launches(
    rule: UpdateRule, implementation: Implementation, parameters: np.ndarray, tensors: np.ndarray
) -> np.ndarray:
    """Kernels [n] of one step."""
    if implementation is Implementation.LOOP:
        return rule.ops * tensors
    depth = min(2 + rule.states, max(TENSORS_PER_LAUNCH)) if implementation is Implementation.FUSED else 2
    chunks = np.ceil(parameters / CHUNK_ELEMENTS)  # [n]
    per_op = np.maximum(np.ceil(tensors / TENSORS_PER_LAUNCH[depth]), np.ceil(chunks / CHUNKS_PER_LAUNCH))
    return per_op if implementation is Implementation.FUSED else rule.ops * per_op


def step_us(
    parameters: np.ndarray,
    tensors: np.ndarray,
    bytes_each: float,
    num_launches: np.ndarray,
    device: DeviceSpec,
    constants: MemoryConstants,
    launch_gap_us: float = 0.0,
) -> np.ndarray:
    """Time [n] us of one step from its first kernel's start to its last one's end.

    Args:
        parameters: [n] that are stepped.
        tensors: [n] that hold them.
        bytes_each: see `bytes_per_parameter`.
        num_launches: [n] see `launches`.
        device: floor and bandwidth.
        constants: sustained share.
        launch_gap_us: the host's time per tensor, where it does not run ahead.
    """
    memory = parameters * bytes_each / sustained_bytes_per_s(device, constants) * US  # [n]
    return np.maximum(memory + num_launches * device.launch_floor_us, tensors * launch_gap_us)


def streams_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us of copies, gathers, fills, losses, pooling: bytes at the sustained bandwidth; NaN: bytes unknown."""
    return _no_faster_than_arithmetic(stream_us(of_bytes(calls), setting.device, setting.memory), calls, setting)


def _no_faster_than_arithmetic(us: Array, calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us, or FLOPs at the sustained rate where that is longer: float64 on devices with few such lanes."""
    rate = np.array([flops_per_s(setting.device, call.family, call.dtype) for call in calls], float)
    flops = np.nan_to_num(np.array([call.flops for call in calls], float))  # unknown: bytes only
    return np.maximum(us, setting.device.launch_floor_us + flops / rate * US)


def elementwise_calls_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us of elementwise ops: bytes, or instructions where an op takes many; NaN: bytes unknown."""
    elements = np.nan_to_num(sized(calls, _elements, 1)[:, 0])  # unknown: bytes only
    moved, result = of_bytes(calls), np.full(len(calls), np.nan)
    names = np.array([call.plain_name.removeprefix("aten::") for call in calls])
    for name in map(str, np.unique(names)):
        rows = np.flatnonzero(names == name)
        result[rows] = elementwise_us(name, elements[rows], moved[rows], setting.device, setting.memory)
    return _no_faster_than_arithmetic(result, calls, setting)


def reductions_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us of sums, means, maxima, ...; NaN: bytes unknown. Scans and sorts are bytes only."""
    elements, items = sized(calls, _first_elements, 1)[:, 0], of_item_bytes(calls)
    results = np.maximum(of_bytes(calls) / items - elements, 1.0)  # what the input leaves of the bytes
    result = streams_us(calls, setting)
    for item in np.unique(items):
        rows = np.flatnonzero((items == item) & ~np.isnan(elements + results))
        result[rows] = reduction_us(elements[rows], results[rows], int(item), setting.device, setting.memory)
    return _no_faster_than_arithmetic(result, calls, setting)


def lists_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us of foreach and fused optimizer ops: bytes, and a floor for each launch that its arguments take.

    Where the graph knows how many kernels there were, their floors are added outside.
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


def _first_elements(call: KernelCall) -> tuple[float]:
    if call.plain_name in ("aten::sort", "aten::argsort", "aten::topk", "aten::nonzero"):
        raise UnknownCost  # several passes: their bytes are counted, their results are not what bytes leave over
    return (float(call.parsed().tensor(0).numel),)


def _list_sizes(call: KernelCall) -> tuple[float, float, float]:
    parsed = call.parsed()
    lists = [result for result in parsed.lists if result]
    first = parsed.tensor_list(0)
    return float(len(lists)), float(len(first)), float(sum(-(-t.numel // CHUNK_ELEMENTS) for t in first))
