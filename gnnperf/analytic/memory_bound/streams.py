"""Kernels that stream memory: elementwise ops and fused chains of them, reductions, copies.

A kernel takes its launch floor, then the slower of moving bytes and issuing instructions (roofline: Williams, Waterman,
Patterson 2009). Bytes that the call before left in the last-level cache come from there: with a working set W and a
cache that keeps C bytes, the share that misses is W^9 / (W^9 + C^9), a soft form of what a cache of C bytes does to a
cyclic sweep over W (all hits below C, none above under least-recently-used replacement; GPUs do not replace strictly in
that order, so the step is soft). Ops of
programs are taken to miss: no share of hits predicts the kernels of public traces better.
"""

from collections.abc import Sequence

import numpy as np

from gnnperf.analytic.memory_bound.constants import MemoryConstants
from gnnperf.hardware import DeviceSpec

CACHE_SHARPNESS, FLUSHED = 9.0, 1e30  # FLUSHED: so many turns leave nothing in a cache
DEFAULT_LANES_PER_SM = 64  # float32 lanes; devices whose specification has none
INTEGER_LANES_PER_SM = 64  # from Volta to Hopper (CUDA C++ programming guide, throughput of 32-bit integer multiplies)
US = 1e6  # us per s
OTHER = "other"
VECTORIZED = ("gelu", "gelu_backward", "native_dropout")  # of `index_cycles`, those that load in vectors
CONCATENATION = "CatArrayBatchedCopy"  # torch's kernel of aten::cat (Shape.cu), which divides to index every element
# Their boards with HBM have a last-level cache in two partitions, each of which keeps lines of the other one as well
# (NVIDIA A100 white paper 2020, H100 white paper 2022).
PARTITIONED, WIDE_BUS_BITS = ("ampere", "hopper", "blackwell"), 512


def sustained_bytes_per_s(device: DeviceSpec, constants: MemoryConstants) -> float:
    """Bandwidth of a long stream: measured on a calibrated device, else a fitted share of the data sheet's."""
    share = device.sustained_bandwidth_share if device.measured else stream_share(device, constants)
    return device.memory_bandwidth_bytes_per_s * share


def stream_share(device: DeviceSpec, constants: MemoryConstants) -> float:
    """Of the measured memory that is nearest in width and rate, by ratios; one for all where a device's is not known.

    Wide and slow (HBM) or narrow and fast (GDDR, whose error correction takes a part of the bandwidth), and within
    these by generation: memory controllers got better at keeping it busy.
    """
    width, rate = device.memory_bus_bits, device.memory_pin_bits_per_s
    if not constants.systems or not width or not rate:
        return constants.stream_share
    nearest = min(constants.systems.values(), key=lambda s: np.hypot(np.log(s.bus_bits / width),
                                                                    np.log(s.pin_bits_per_s / rate)))  # fmt: skip
    return nearest.stream_share


def miss_share(working_set_bytes: np.ndarray, cache_bytes: float) -> np.ndarray:
    """Share [n] of a repeated sweep over `working_set_bytes` that the cache no longer holds; see the module."""
    ratio = cache_bytes / np.maximum(working_set_bytes, 1.0)  # [n]
    return 1.0 / (1.0 + np.minimum(ratio, 1e6) ** CACHE_SHARPNESS)


def cache_bytes(device: DeviceSpec, constants: MemoryConstants) -> float:
    """What the last-level cache keeps."""
    share = constants.partitioned_share if cache_parts(device) > 1 else constants.cache_share
    return share * device.l2_bytes


def cache_parts(device: DeviceSpec) -> int:
    """Partitions of the last-level cache."""
    wide = device.memory_bus_bits is not None and device.memory_bus_bits > WIDE_BUS_BITS
    return 2 if device.architecture in PARTITIONED and wide else 1


def cache_bytes_per_s(device: DeviceSpec, constants: MemoryConstants) -> float:
    """Bandwidth of the last-level cache: every SM takes so many bytes per clock; no less than DRAM's."""
    rate = constants.cache_bytes_per_clock * device.num_sms * device.clock_hz
    return max(rate, sustained_bytes_per_s(device, constants))


def missing_share(
    moved_bytes: np.ndarray, turns: np.ndarray | float, device: DeviceSpec, constants: MemoryConstants
) -> np.ndarray:
    """Share [n] of the bytes that come from DRAM; `turns` [n] as of KernelCall, NaN: in a program."""
    between = np.nan_to_num(turns, nan=FLUSHED, posinf=FLUSHED)
    return miss_share(between * moved_bytes, cache_bytes(device, constants))


def traffic_us(
    moved_bytes: np.ndarray, missing: np.ndarray | float, device: DeviceSpec, constants: MemoryConstants
) -> np.ndarray:
    """Time [n] us to move bytes, a share `missing` [n] of them from DRAM, the rest from the last-level cache."""
    near, far = cache_bytes_per_s(device, constants), sustained_bytes_per_s(device, constants)
    return moved_bytes * US * (missing / far + (1.0 - np.asarray(missing)) / near)


def stream_us(
    moved_bytes: np.ndarray, device: DeviceSpec, constants: MemoryConstants, missing: np.ndarray | float = 1.0
) -> np.ndarray:
    """Device time [n] us of a copy, fill or cast: floor + bytes / bandwidth. Zero bytes cost the floor."""
    return device.launch_floor_us + traffic_us(moved_bytes, missing, device, constants)


def issue_us(elements: np.ndarray, lane_cycles: float, device: DeviceSpec, lanes_per_sm: int = 0) -> np.ndarray:
    """Time [n] us to issue `lane_cycles` per element on so many lanes of an SM, or on all float32 lanes."""
    lanes = device.num_sms * (lanes_per_sm or device.lanes_per_sm or DEFAULT_LANES_PER_SM)
    return elements * lane_cycles / (lanes * device.clock_hz) * US


def elementwise_us(
    op: str, elements: np.ndarray, moved_bytes: np.ndarray, device: DeviceSpec, constants: MemoryConstants,
    missing: np.ndarray | float = 1.0,
) -> np.ndarray:  # fmt: skip
    """Device time [n] us of one elementwise kernel: of an op, or of a key of `index_cycles`."""
    memory = traffic_us(moved_bytes, missing, device, constants)  # [n]
    if op in constants.index_cycles:
        issue = issue_us(elements, constants.index_cycles[op], device, INTEGER_LANES_PER_SM)  # [n]
        start_us = 0.0 if op in VECTORIZED else constants.index_start_us
        return device.launch_floor_us + start_us + np.maximum(memory, issue)
    cycles = constants.lane_cycles.get(op, constants.lane_cycles[OTHER])
    return device.launch_floor_us + np.maximum(memory, issue_us(elements, cycles, device))


def chain_us(
    ops: Sequence[str], elements: np.ndarray, moved_bytes: np.ndarray, device: DeviceSpec, constants: MemoryConstants,
    missing: np.ndarray | float = 1.0,
) -> np.ndarray:  # fmt: skip
    """Device time [n] us of a fused chain of elementwise ops: one floor, every buffer once, the instructions of all.

    Not fused, each op is a call of its own, and each intermediate is written and read (Ansel et al. 2024, PyTorch 2).
    What an op that is not heavy issues (`lane_cycles`) is mostly loading and storing, which a chain does once; each
    further op of a chain is an instruction.
    """
    plain = constants.lane_cycles[OTHER]
    heavy = sum(constants.lane_cycles[op] - plain for op in ops if op in constants.lane_cycles)
    heaviest = sum(constants.index_cycles.get(op, 0.0) for op in ops if op in VECTORIZED)
    issue = issue_us(elements, plain + max(len(ops) - 1, 0) + heavy, device)  # [n]
    issue = issue + issue_us(elements, heaviest, device, INTEGER_LANES_PER_SM)
    memory = traffic_us(moved_bytes, missing, device, constants)  # [n]
    return device.launch_floor_us + np.maximum(memory, issue)


def reduction_us(
    elements: np.ndarray, results: np.ndarray, item_bytes: int, device: DeviceSpec, constants: MemoryConstants,
    turns: np.ndarray | float = np.inf,
) -> np.ndarray:  # fmt: skip
    """Device time [n] us of a sum, mean or maximum: elements read once, results written once.

    Fewer results than SMs are split over blocks that meet in a second pass (ATen's Reduce.cuh, global_reduce), which
    costs another floor.
    """
    moved = (elements + results) * float(item_bytes)  # [n]
    second = np.where(results < device.num_sms, device.launch_floor_us, 0.0)  # [n]
    streams = stream_us(moved, device, constants, missing_share(moved, turns, device, constants))  # [n]
    return streams + constants.index_start_us + second
