"""Rows of an op table -> latency, bound, or the reason why there is no prediction."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from gnnperf.analytic.constants import default_constants
from gnnperf.analytic.kernels.call import KernelCall
from gnnperf.analytic.kernels.dispatch import kernel_times
from gnnperf.analytic.kernels.nodes import op_times
from gnnperf.analytic.op_tables.gradients import gradient_calls
from gnnperf.analytic.op_tables.read_tables import OP, OpRow
from gnnperf.analytic.op_tables.signatures import recorded_call
from gnnperf.analytic.roofline import has_units
from gnnperf.core import OpFamily, each
from gnnperf.graph import DTYPE_BYTES, SPARSE_MATMUL_FORMULAS, UnknownCost
from gnnperf.hardware import DeviceSpec


class Reason(StrEnum):
    """Why a row has no prediction."""

    NOT_AN_OP = "a collective or a cost of the host, not an op"
    NO_FORMULA = "no cost formula for this op"
    VIEW = "a view or a wrapper: it touches no memory, or ops that it calls do the work"
    SHAPES = "its shapes and arguments do not tell its cost"
    DTYPE = "a dtype whose elements have no known size"
    SPARSE_ON_CPU = "no prices of products with sparse operands on CPUs"
    UNITS = "the device has no units for products in this dtype"
    GRADIENT = "no formula for its gradient, or shapes that do not tell it"


@dataclass(frozen=True)
class Estimate:
    """The prediction of one row: latency_us and bound, or else the reason."""

    latency_us: float | None = None  # of the device, without the launch; backward: all gradients together
    bound: str | None = None  # compute, memory or launch; of several calls, that of the longest
    reason: str | None = None  # why there is no prediction


def estimate_rows(rows: Sequence[OpRow], device: DeviceSpec) -> tuple[Estimate, ...]:
    """One prediction per row."""
    requested = [_calls(row, device) for row in each(rows, "reading calls", "rows")]
    calls = [call for result in requested if not isinstance(result, Reason) for call in result]
    gpu = device.kind == "gpu"
    times = kernel_times(calls, device, default_constants().roofline_power) if gpu else op_times(calls, device)
    estimates, place = [], 0
    for result in requested:
        if isinstance(result, Reason):
            estimates.append(Estimate(reason=str(result)))
            continue
        us = times.latency_us[place : place + len(result)]
        estimates.append(Estimate(float(us.sum()), str(times.bound[place + int(np.argmax(us))])))
        place += len(result)
    return tuple(estimates)


def _calls(row: OpRow, device: DeviceSpec) -> list[KernelCall] | Reason:
    if row.kind != OP:
        return Reason.NOT_AN_OP
    if not set(row.dtypes) <= DTYPE_BYTES.keys():
        return Reason.DTYPE
    if device.kind == "cpu" and row.op in SPARSE_MATMUL_FORMULAS:
        return Reason.SPARSE_ON_CPU
    try:
        result = gradient_calls(row) if row.direction == "backward" else [recorded_call(row)]
    except (UnknownCost, IndexError):  # fewer shapes or dimensions than the op has
        return Reason.GRADIENT
    families = {call.family for call in result}
    if row.direction != "backward" and families & {OpFamily.VIEW, OpFamily.UNKNOWN, OpFamily.COLLECTIVE}:
        return Reason.VIEW if OpFamily.VIEW in families else Reason.NO_FORMULA
    if any(math.isnan(call.flops) and math.isnan(call.moved_bytes) for call in result):
        return Reason.SHAPES
    return result if all(has_units(device, call.family, call.dtype) for call in result) else Reason.UNITS
