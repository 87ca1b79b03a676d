"""Batch norm: a block per channel, so few channels leave most of a GPU idle.

channel 0   block 0 |load|load|load|...|        each load waits for memory: one iteration of all threads of the block
channel 1   block 1 |load|load|load|...|        takes a latency, whatever the bandwidth
...                                             blocks run at once as far as SMs hold them, then in waves

cuDNN (float32, float16): one kernel that reads its tensors twice and writes once. torch's own kernels (bfloat16, and
where cuDNN is off): statistics, then an elementwise kernel of a block per channel and sample; backward is one kernel.
They divide for each element, so issuing bounds them before memory: H100 and H200 take as long.
Evaluation uses running statistics, so it has the elementwise kernel and not the first one: fewer kernels per call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from gnnperf.analytic.constants_file import AboveZero, read_constants
from gnnperf.analytic.kernels.call import Array, KernelCall, Setting
from gnnperf.analytic.roofline import soft_maximum
from gnnperf.graph import UnknownCost
from gnnperf.hardware import DeviceSpec, conf_dir

BATCH_NORM_FILE = "batch_norm.yaml"
BLOCKS_PER_SM = 4.0  # of 512 threads
FLOAT32_BYTES = 4.0
TRAINING_KERNELS = 3  # of torch's forward: statistics, their update, elementwise
US = 1e6


@dataclass(frozen=True)
class ChannelKernel:
    """A kernel with a block per channel."""

    tensors: AboveZero  # how often the activation's bytes are moved
    block_bytes_per_clock: AboveZero  # of float32; of narrower types less: loads are counted, not bytes
    bandwidth_share: AboveZero  # of the device's bandwidth, that many channels reach
    bytes_per_clock: AboveZero  # that an SM moves for many channels, of float32


@dataclass(frozen=True)
class ApplyKernel:
    """torch's elementwise kernel of the forward, a block per channel and sample."""

    tensors: AboveZero  # how often the activation's bytes are moved
    bytes_per_clock: AboveZero  # that an SM moves in large blocks, of float32
    block_us_per_sm: AboveZero  # what a block takes of an SM, however little it does


@dataclass(frozen=True)
class BatchNormConstants:
    """Content of conf/analytic/batch_norm.yaml."""

    kernels: Mapping[str, ChannelKernel]  # op -> its kernel over channels
    apply: ApplyKernel
    overlap_power: AboveZero  # how latency and bandwidth bound each other, as in the roofline
    provenance: str


@cache
def default_batch_norm_constants() -> BatchNormConstants:
    """The constants that ship."""
    return read_constants(conf_dir("analytic") / BATCH_NORM_FILE, BatchNormConstants)


def batch_norms_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us of whole calls with one floor; NaN: another op, or shapes not recorded."""
    constants = default_batch_norm_constants()
    return np.array([_call_us(call, setting.device, constants) for call in calls], dtype=np.float64)


def _call_us(call: KernelCall, device: DeviceSpec, constants: BatchNormConstants) -> float:
    kernel = constants.kernels.get(call.plain_name)
    try:
        shape = call.parsed().tensor(0).shape if kernel is not None else ()
    except UnknownCost:
        return np.nan
    if kernel is None or len(shape) < 2 or 0 in shape:
        return np.nan
    samples, channels = float(shape[0]), float(shape[1])
    elements = float(np.prod(shape[2:])) * samples  # of a channel
    is_torchs = call.plain_name == "aten::native_batch_norm"
    result = apply_us(elements, channels, samples, call.item_bytes, device, constants.apply) if is_torchs else 0.0
    if not is_torchs or call.num_kernels >= TRAINING_KERNELS:
        result += channel_us(elements, channels, call.item_bytes, device, kernel, constants.overlap_power)
    return device.launch_floor_us + result


def channel_us(
    elements: float, channels: float, item_bytes: int, device: DeviceSpec, kernel: ChannelKernel, power: float
) -> float:
    """us of a kernel with a block per channel: (latency^p + memory^p)^(1/p), without a floor."""
    moved = kernel.tensors * elements * channels
    waves = np.ceil(channels / (device.num_sms * BLOCKS_PER_SM))
    block_us = elements * FLOAT32_BYTES * kernel.tensors / (kernel.block_bytes_per_clock * device.clock_hz) * US
    memory_us = moved * item_bytes / (device.memory_bandwidth_bytes_per_s * kernel.bandwidth_share) * US
    many_us = max(memory_us, _issue_us(moved, kernel.bytes_per_clock, device))
    return float(soft_maximum(np.array([waves * block_us]), np.array([many_us]), power)[0])


def apply_us(
    elements: float, channels: float, samples: float, item_bytes: int, device: DeviceSpec, kernel: ApplyKernel
) -> float:
    """us of torch's elementwise kernel: its bytes, or its blocks (one per channel and sample) where they are small."""
    moved = kernel.tensors * elements * channels
    memory_us = moved * item_bytes / device.memory_bandwidth_bytes_per_s * US
    blocks_us = channels * samples * kernel.block_us_per_sm / device.num_sms
    return max(memory_us, blocks_us, _issue_us(moved, kernel.bytes_per_clock, device))


def _issue_us(moved: float, bytes_per_clock: float, device: DeviceSpec) -> float:
    return moved * FLOAT32_BYTES / (bytes_per_clock * device.num_sms * device.clock_hz) * US
