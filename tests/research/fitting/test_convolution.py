"""The fit of convolutions."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from round_device import CONSTANTS
from round_device import DEVICE as ROUND

from gnnperf.analytic.convolution.model import ConvolutionConstants
from gnnperf.analytic.gemm.constants import default_gemm_constants
from gnnperf.analytic.kernels.call import Setting
from research.fitting.convolution import fit_convolution_constants, forward_algorithms, log_error

DEVICE = replace(ROUND, memory_bandwidth_bytes_per_s=1e11)  # transforms count
TRUE = ConvolutionConstants(0.8, 6.0, 1.3, 0.9, 40.0, 0.2, "made up")


def _rows() -> pd.DataFrame:
    """As the formula with TRUE's factors states, on a host of TRUE's pace and on one of four times that."""
    rng = np.random.default_rng(0)
    most = {"batch": 64, "in_channels": 600, "out_channels": 600, "in_size": 40}
    sizes = {name: rng.integers(3, edge, 200).astype(float) for name, edge in most.items()}
    how = {"kernel": 3.0, "stride": 1.0, "padding": 1.0, "launch_included": True}
    rows = pd.DataFrame({**sizes, **how, "calls_before": np.arange(200.0) * 20})
    kernel = forward_algorithms(rows, Setting(DEVICE, CONSTANTS, default_gemm_constants(), TRUE)).fastest_us(TRUE)
    hosts = {device: kernel + machine_scale * (TRUE.call_us + TRUE.growth_us * rows["calls_before"])
             for device, machine_scale in (("one", 1.0), ("other", 4.0))}  # fmt: skip
    return pd.concat([rows.assign(device=device, latency_us=us) for device, us in hosts.items()], ignore_index=True)


def test_the_fit_finds_the_kernels_and_the_typical_host() -> None:
    rows, gemm = _rows(), default_gemm_constants()
    result = fit_convolution_constants(rows, {"one": DEVICE, "other": DEVICE}, gemm, CONSTANTS, "here")
    ways = forward_algorithms(rows, Setting(DEVICE, CONSTANTS, gemm, TRUE))
    assert ways.fastest_us(result) == pytest.approx(ways.fastest_us(TRUE), rel=0.05)
    assert result.growth_us == pytest.approx(2.0 * TRUE.growth_us, rel=0.05)  # between a pace of 1 and one of 4
    assert result.provenance == "here"


def test_errors_are_of_the_sum_of_host_and_kernel() -> None:
    rows = _rows()
    one = rows[rows["device"] == "one"]
    ways = forward_algorithms(one, Setting(DEVICE, CONSTANTS, default_gemm_constants(), TRUE))
    assert log_error(ways, one, TRUE) == pytest.approx(np.zeros(200), abs=1e-12)
    isolated = one.assign(launch_included=False, calls_before=np.nan, latency_us=ways.fastest_us(TRUE))
    # The device's own time has no wait.
    assert log_error(ways, isolated, TRUE) == pytest.approx(np.zeros(200), abs=1e-12)
