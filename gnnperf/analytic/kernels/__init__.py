"""Latency of one op call on a GPU, by the closed form of its family."""

from gnnperf.analytic.kernels.call import Bound, KernelCall, KernelTimes
from gnnperf.analytic.kernels.dispatch import kernel_times
from gnnperf.analytic.kernels.nodes import compute_nodes_us

__all__ = ["Bound", "KernelCall", "KernelTimes", "compute_nodes_us", "kernel_times"]
