"""From op calls to latencies: the closed form of a call's family, or the plain roofline where none applies."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gnnperf.analytic.attention import attentions_us
from gnnperf.analytic.batch_norm import batch_norms_us
from gnnperf.analytic.convolution.calls import convolutions_us
from gnnperf.analytic.convolution.model import default_convolution_constants
from gnnperf.analytic.embedding.batched_calls import batched_us
from gnnperf.analytic.embedding.calls import lookups_us
from gnnperf.analytic.gemm.calls import products_us
from gnnperf.analytic.gemm.constants import default_gemm_constants
from gnnperf.analytic.kernels.call import Array, Bound, Form, KernelCall, KernelTimes, Setting, column
from gnnperf.analytic.memory_bound.calls import (
    chains_us,
    elementwise_calls_us,
    is_chain,
    lists_us,
    reductions_us,
    streams_us,
)
from gnnperf.analytic.memory_bound.constants import default_memory_constants
from gnnperf.analytic.normalization import rows_us
from gnnperf.analytic.roofline import (
    OTHERS,
    CdnaConstants,
    cdna_kind,
    compute_us,
    default_cdna_constants,
    flops_per_s,
    has_units,
    rate_key_of,
    shares_us,
)
from gnnperf.core import OpFamily
from gnnperf.graph import SPARSE_MATMUL_FORMULAS
from gnnperf.hardware import DeviceSpec


def _first(form: Form, other: Form) -> Form:
    """The predictions of a form, and those of another one where it does not apply."""

    def estimate(calls: Sequence[KernelCall], setting: Setting) -> Array:
        us = form(calls, setting)
        return np.where(np.isnan(us), other(calls, setting), us)

    return estimate


def _or_chains(form: Form) -> Form:
    """The form of a family, but for the kernels that Inductor fused."""

    def estimate(calls: Sequence[KernelCall], setting: Setting) -> Array:
        fused = np.array([is_chain(call) for call in calls], bool)
        result = np.full(len(calls), np.nan)
        for which, of in ((~fused, form), (fused, chains_us)):
            result[which] = of([calls[row] for row in np.flatnonzero(which).tolist()], setting)
        return result

    return estimate


def _in_programs(form: Form) -> Form:
    """The form of a family, with what kernels of programs reach where their generation was measured.

    The op before left operands in the last-level cache as far as it holds them, as a loop over one call does.
    """

    def estimate(calls: Sequence[KernelCall], setting: Setting) -> Array:
        device, memory, us = setting.device, setting.memory, form(calls, setting)
        own = memory.programs.get(device.architecture or "")
        rows = [row for row, call in enumerate(calls) if call.turns is None]
        if own is not None and rows and not device.measured:
            memory = replace(memory, systems={}, stream_share=own.stream_share, index_start_us=own.index_start_us,
                             cache_bytes_per_clock=own.cache_bytes_per_clock)  # fmt: skip
            device = replace(device, launch_floor_us=min(own.start_us, device.launch_floor_us))
            looped = [replace(calls[row], turns=1.0) for row in rows]
            us[rows] = form(looped, replace(setting, device=device, memory=memory))
        return us

    return estimate


FORMS: Mapping[str, Form] = {
    OpFamily.GEMM: products_us,
    OpFamily.CONV: convolutions_us,
    OpFamily.ATTENTION: attentions_us,
    OpFamily.NORM: _first(rows_us, _first(batch_norms_us, streams_us)),  # over rows, channels, or streams (group norms)
    OpFamily.SOFTMAX: rows_us,
    OpFamily.REDUCTION: _in_programs(_or_chains(reductions_us)),
    OpFamily.ELEMENTWISE: _in_programs(_or_chains(elementwise_calls_us)),
    OpFamily.EMBEDDING: _first(batched_us, lookups_us),
    OpFamily.OPTIMIZER: lists_us,
    **dict.fromkeys((OpFamily.INDEXING, OpFamily.LOSS, OpFamily.POOLING), streams_us),
    **dict.fromkeys((OpFamily.COPY, OpFamily.RANDOM), _in_programs(streams_us)),
}
TWO_FOUR_DENSITY = 0.5  # of stored values
OTHER_VENDOR = ("cdna", "AMD")  # architectures, names of devices: the forms' constants were fitted on NVIDIA's GPUs


def kernel_times(calls: Sequence[KernelCall], device: DeviceSpec, roofline_power: float) -> KernelTimes:
    """Latencies of distinct op calls on one device.

    Where a closed form applies, it is used: with a floor for each kernel after the first. Otherwise (unknown family,
    shapes that were not recorded, a dtype without a rate, a CPU) it is the roofline of the whole call. AMD's GPUs have
    a roofline of their own per family (`cdna_us`). A call without work costs its floors, those of its form if shorter.
    """
    roofline = roofline_us(calls, device, roofline_power)  # [n]
    works = np.array([c.flops > 0 or c.moved_bytes > 0 for c in calls], bool)  # [n]
    if has_forms(device):
        formed = forms_us(calls, device)  # [n]
    elif device.kind == "gpu":
        formed = cdna_us(calls, device, default_cdna_constants())
    else:
        formed = np.full(len(calls), np.nan)
    by_form = works & ~np.isnan(formed) & ~np.isnan(roofline)
    more_floors = (column(calls, "num_kernels") - 1) * device.launch_floor_us  # [n]
    latency = np.where(by_form | (~works & (formed < roofline)), formed, roofline) + more_floors
    return KernelTimes(latency, bounds(calls, device, latency), by_form)


def has_forms(device: DeviceSpec) -> bool:
    """Whether the forms' constants hold for the device."""
    names = (device.architecture, device.name, *device.aliases)
    return device.kind == "gpu" and not any(name.startswith(OTHER_VENDOR) for name in names)


def cdna_us(calls: Sequence[KernelCall], device: DeviceSpec, constants: CdnaConstants) -> Array:
    """[n] us of the whole call with one floor on an AMD GPU; NaN: neither FLOPs nor bytes are known.

    Rates that were measured on the device are those of its products and copies: what the other kinds reach is relative
    to them.
    """
    result = np.full(len(calls), np.nan)
    kinds = np.array([cdna_kind(call.op_name, call.family, call.dtype) for call in calls], dtype=object)
    kernels = column(calls, "num_kernels")  # [n]
    peak = np.array([device.flops_per_s[rate_key_of(device, call.family, call.dtype)] for call in calls], float)
    bandwidth = device.memory_bandwidth_bytes_per_s
    if device.measured:
        peak = peak / constants.of(OpFamily.GEMM).compute_share
        bandwidth /= constants.of(OpFamily.COPY).bandwidth_share
    for kind in dict.fromkeys(kinds.tolist()):
        rows = np.flatnonzero(kinds == kind)
        flops, moved = column(calls, "flops")[rows], cdna_bytes(calls)[rows]
        power = constants.roofline_power.get(kind, constants.roofline_power[OTHERS])
        result[rows] = shares_us(flops, moved, peak[rows], kernels[rows], constants.of(kind), bandwidth, power)
    return np.maximum(result - (kernels - 1) * device.launch_floor_us, device.launch_floor_us)


def cdna_bytes(calls: Sequence[KernelCall]) -> Array:
    """[n] bytes on an AMD GPU: MIOpen turns convolutions' tensors to channels last and back, 16 bits as if 32."""
    turned = [2 * 4 / call.item_bytes if call.family == OpFamily.CONV else 0.0 for call in calls]
    return column(calls, "moved_bytes") * (1.0 + np.array(turned, float))


def forms_us(calls: Sequence[KernelCall], device: DeviceSpec) -> Array:
    """[n] us of the whole call with one floor; NaN where no closed form applies."""
    setting = Setting(device, default_memory_constants(), default_gemm_constants(), default_convolution_constants())
    result = np.full(len(calls), np.nan)
    families = np.array([str(call.family) for call in calls], dtype=object)
    for family, form in FORMS.items():
        rows = np.flatnonzero(families == str(family))
        if len(rows):
            result[rows] = form([calls[r] for r in rows.tolist()], setting)
    return result


def roofline_us(calls: Sequence[KernelCall], device: DeviceSpec, power: float) -> Array:
    """[n] us of the whole call with one floor; NaN: neither FLOPs nor bytes are known, or no units for the dtype."""
    us = compute_us(column(calls, "flops"), column(calls, "moved_bytes"), _rates(calls, device), device, power)
    return np.where([has_units(device, call.family, call.dtype) for call in calls], us, np.nan)


def bounds(calls: Sequence[KernelCall], device: DeviceSpec, latency_us: Array) -> np.ndarray:
    """[n] Bound: the largest of FLOPs at the sustained rate, bytes at the sustained bandwidth, and the floor."""
    bandwidth = device.memory_bandwidth_bytes_per_s * device.sustained_bandwidth_share
    compute = np.nan_to_num(column(calls, "flops") / _rates(calls, device) * 1e6)  # [n] us
    memory = np.nan_to_num(column(calls, "moved_bytes") / bandwidth * 1e6)  # [n] us
    launch = column(calls, "num_kernels") * device.launch_floor_us  # [n] us
    largest = np.argmax(np.stack([launch, memory, compute]), axis=0)  # [n] the first of equals
    result = np.array([Bound.LAUNCH, Bound.MEMORY, Bound.COMPUTE], dtype=object)[largest]  # [n]
    result[np.isnan(latency_us)] = None
    return result


def _rates(calls: Sequence[KernelCall], device: DeviceSpec) -> Array:
    """[n] sustained FLOP/s; of 2:4 products those of stored values: units without the pattern multiply zeros, too."""
    two_four = np.array([call.op_name in SPARSE_MATMUL_FORMULAS for call in calls], bool)
    rates = np.array([flops_per_s(device, call.family, call.dtype) for call in calls], float)
    return np.where(two_four, rates * device.sparse_matrix_speedup * TWO_FOUR_DENSITY, rates)
