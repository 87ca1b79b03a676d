"""Batch norm: a block per channel, so few channels leave most of a GPU idle; group norm: a block per group.

channel 0   block 0 |load|load|load|...|        each load waits for memory: one iteration of all threads of the block
channel 1   block 1 |load|load|load|...|        takes a latency, whatever the bandwidth
...                                             blocks run at once as far as SMs hold them, then in waves

cuDNN (float32, float16): one kernel that reads its tensors twice and writes once. torch's own kernels (bfloat16, and
where cuDNN is off): statistics, then an elementwise kernel of a block per channel and sample; backward is one kernel.
They divide for each element, so issuing bounds them before memory: H100 and H200 take as long.
Evaluation uses running statistics, so it has the elementwise kernel and not the first one: fewer kernels per call.
Group norm (group_norm_kernel.cu): statistics of a block per sample and group, then an elementwise kernel with broadcast
operands. Backward sums with a block per sample and channel, and threads walk samples for a channel's scale.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gnnperf.analytic.constants_file import shipped
from gnnperf.analytic.kernels.call import Array, KernelCall, Setting, sized
from gnnperf.analytic.memory_bound.calls import BROADCAST, SCAN_ROW
from gnnperf.analytic.memory_bound.streams import elementwise_us
from gnnperf.analytic.roofline import soft_maximum
from gnnperf.core import AboveZero
from gnnperf.graph import UnknownCost
from gnnperf.hardware import DeviceSpec

BATCH_NORM_FILE = "batch_norm.yaml"
BLOCKS_PER_SM = 4.0  # of 512 threads
FLOAT32_BYTES = 4.0
WALKED, SPLIT = 128, 32  # group_norm_kernel.cu: from more samples on, rows of a block's threads share them
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


default_batch_norm_constants = shipped(BATCH_NORM_FILE, BatchNormConstants)


def batch_norms_us(calls: Sequence[KernelCall], setting: Setting) -> Array:
    """[n] us of whole calls with one floor; NaN: another op, or shapes not recorded."""
    sizes, constants = sized(calls, _sizes, 4), default_batch_norm_constants()
    us = [(_group_us if "group_norm" in call.op_name else _batch_us)(call, row, setting, constants)
          for call, row in zip(calls, sizes.tolist(), strict=True)]  # fmt: skip
    return np.array(us, dtype=np.float64)


def _sizes(call: KernelCall) -> tuple[float, ...]:
    """Elements, samples, channels, elements of scale and shift. Raises UnknownCost: no channels."""
    first, *others = call.parsed().tensors[:3]
    if first is None or len(first.shape) < 2 or not first.numel:
        raise UnknownCost
    return (float(first.numel), *map(float, first.shape[:2]), float(sum(t.numel for t in others if t is not None)))


def _batch_us(call: KernelCall, sizes: list[float], setting: Setting, constants: BatchNormConstants) -> float:
    kernel, (elements, samples, channels, _) = constants.kernels.get(call.plain_name), sizes
    if kernel is None or np.isnan(elements):
        return np.nan
    device, item, each = setting.device, call.item_bytes, elements / channels
    is_torchs = call.plain_name == "aten::native_batch_norm"
    result = apply_us(each, channels, samples, item, device, constants.apply) if is_torchs else 0.0
    if not is_torchs or call.num_kernels >= TRAINING_KERNELS:
        result += channel_us(each, channels, item, device, kernel, constants.overlap_power)
    return device.launch_floor_us + result


def _group_us(call: KernelCall, sizes: list[float], setting: Setting, constants: BatchNormConstants) -> float:
    device, item, (elements, samples, channels, small) = setting.device, call.item_bytes, sizes
    backward = call.op_name == "aten::native_group_norm_backward"
    groups = (call.moved_bytes / item - 3.0 * elements - small) / 2.0  # of all samples
    known = groups >= samples and groups % samples == 0.0 and channels % (groups / samples) == 0.0
    if not backward and not (call.op_name == "aten::native_group_norm" and known):
        return np.nan  # or the number of groups was not recorded, or scale and shift have another dtype
    moved_bytes = np.array([(3.0 if backward else 2.0) * elements * item])
    result = float(elementwise_us(BROADCAST, np.array([elements]), moved_bytes, device, setting.memory)[0])
    if not backward:
        kernel = constants.kernels["aten::native_batch_norm"]
        return result + channel_us(elements / groups, groups, item, device, kernel, constants.overlap_power)
    walked = samples if samples <= WALKED else np.ceil(samples / SPLIT)
    sums_us = apply_us(elements / channels, channels, samples, item, device, constants.apply)
    return float(result + sums_us + walked * setting.memory.clocks[SCAN_ROW] / device.clock_hz * US)


def channel_us(
    elements: float, channels: float, item_bytes: int, device: DeviceSpec, kernel: ChannelKernel, power: float
) -> float:
    """us of a kernel with a block per channel: (latency^p + memory^p)^(1/p), without a floor."""
    moved = kernel.tensors * elements * channels
    waves = np.ceil(channels / (device.num_sms * BLOCKS_PER_SM))
    block_us = elements * FLOAT32_BYTES * kernel.tensors / (kernel.block_bytes_per_clock * device.clock_hz) * US
    memory_us = moved * item_bytes / (device.memory_bandwidth_bytes_per_s * kernel.bandwidth_share) * US
    issue_us = moved * FLOAT32_BYTES / (kernel.bytes_per_clock * device.num_sms * device.clock_hz) * US
    return float(soft_maximum(np.array([waves * block_us]), np.array([max(memory_us, issue_us)]), power)[0])


def apply_us(
    elements: float, channels: float, samples: float, item_bytes: int, device: DeviceSpec, kernel: ApplyKernel
) -> float:
    """us of torch's elementwise kernel: its bytes, or its blocks (one per channel and sample) where they are small."""
    moved = kernel.tensors * elements * channels
    memory_us = moved * item_bytes / device.memory_bandwidth_bytes_per_s * US
    issue_us = moved * FLOAT32_BYTES / (kernel.bytes_per_clock * device.num_sms * device.clock_hz) * US
    return max(memory_us, issue_us, channels * samples * kernel.block_us_per_sm / device.num_sms)
