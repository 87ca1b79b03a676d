"""Convolution forward in float32 (NeuSight, 3 x 3 windows at stride 1): no convolution was used to fit anything.

    GNNPERF_DATA_MIRROR=FOLDER python -m benchmarks.convolution

The products' constants that ship were fitted on matrix products, of these GPUs too: what is unseen is the op. The
host's time of a call is that of the shortest rows. Beside the model: products without Winograd's form, and FLOPs over
peak.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from benchmarks._neusight import convolution_rows
from gnnperf.analytic.convolution import (
    ConvolutionPass,
    Convolutions,
    convolution_us,
    lanes_convolution_us,
    result_edge,
)
from gnnperf.analytic.gemm import gemm_us
from gnnperf.analytic.memory_constants import EventGap, default_memory_constants
from gnnperf.analytic.observation import between_events_us
from gnnperf.evaluate.metrics import summarize
from gnnperf.hardware.spec import DeviceSpec

DTYPE, ITEM_BYTES = "float32", 4
SHORTEST, ISSUE_SHARE = 0.02, 0.5
MODEL, DIRECT, ROOFLINE = "model", "without Winograd", "FLOPs / peak"


def calls_of(rows: pd.DataFrame) -> Convolutions:
    """Square images and windows, one group."""
    names = ("batch", "in_channels", "out_channels", "in_size", "kernel", "stride", "padding")
    n, c, k, size, window, stride, padding = (rows[name].to_numpy(float) for name in names)
    out = result_edge(size, window, stride, padding)
    return Convolutions(n, c, k, size, size, window, window, out, out, stride, np.ones(len(rows)))


def answers(rows: pd.DataFrame, device: DeviceSpec) -> dict[str, np.ndarray]:
    """Every answer [n] us for one device's rows."""
    constants = default_memory_constants()
    gap = EventGap(float(rows["latency_us"].quantile(SHORTEST)), ISSUE_SHARE)
    found = {
        name: between_events_us(
            formula(calls_of(rows), ConvolutionPass.FORWARD, ITEM_BYTES, device, constants,
                    lambda sizes: gemm_us(device, DTYPE, sizes)), gap)
        for name, formula in ((MODEL, lanes_convolution_us), (DIRECT, convolution_us))
    }  # fmt: skip
    return {**found, ROOFLINE: rows["flops"].to_numpy(float) / device.flops_per_s[DTYPE] * 1e6}


def main() -> int:
    """Print one line per device and answer."""
    rows, devices = convolution_rows()
    printed = Table("GPU", "answer", "rows", "mean %", "median %", "p90 %", "max %", "bias %")
    for name, part in rows.groupby("device"):
        for answer, predicted in answers(part, devices[str(name)]).items():
            errors = summarize(predicted, part["latency_us"].to_numpy(float))
            shown = (errors.mean_ape, errors.median_ape, errors.p90_ape, errors.max_ape, errors.bias)
            printed.add_row(str(name), answer, str(errors.num_nodes), *(f"{100 * x:.1f}" for x in shown))
    Console(width=110).print(printed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
