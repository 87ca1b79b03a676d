"""Latency of one op call on a GPU, by the closed form of its family."""

from gnnperf.analytic.kernels.call import Bound, KernelCall, KernelTimes
from gnnperf.analytic.kernels.dispatch import kernel_times

__all__ = ["Bound", "KernelCall", "KernelTimes", "kernel_times"]
