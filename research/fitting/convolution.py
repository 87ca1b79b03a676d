"""Fit ConvolutionConstants on op tables of eager calls between events, whose host got slower from size to size.

Rows have the columns of `research.tables` for convolutions, `calls_before` among them: sizes that the same process had
called before. They were called in random order, so that what grows with that number is the host's and not the op's:

    observed = first call + growth x calls before + fastest algorithm

    GNNPERF_DATA_MIRROR=FOLDER python -m research.fitting.convolution [OUT.yaml]

writes conf/analytic/convolution.yaml, from NeuSight's convolutions (MIT) on every device of the catalog, with the
constants of gemms and streams that ship. To judge the model, fit them again without the chip that it is judged on.
"""

from collections.abc import Mapping
from dataclasses import fields

import numpy as np
import pandas as pd

from gnnperf.analytic.convolution import model
from gnnperf.analytic.convolution.calls import lanes_algorithms
from gnnperf.analytic.gemm.constants import Members, default_gemm_constants
from gnnperf.analytic.kernels.call import Setting
from gnnperf.analytic.memory_bound.constants import MemoryConstants, default_memory_constants
from gnnperf.hardware import DeviceSpec
from research.benchmarks._op_tables import convolution_rows, sample
from research.fitting.files import requested_file, write_constants
from research.fitting.logs import fit_logs, softened

PROVENANCE = (
    "fitted by research/fitting/convolution.py on the convolutions of sitar-lab/NeuSight (MIT; float32 forward, "
    "3 x 3 windows at stride 1, torch 2.1, {devices}). Do not judge the model on those devices with these constants."
)
DIGITS = 4  # significant, in the file
DTYPE = "float32"
ROWS_PER_DEVICE = 1000  # enough for a handful of constants
DISTURBED = 0.1  # |log error| from which a row pulls no harder
FACTORS = 4
START = model.ConvolutionConstants(
    fused_factor=1.0, weight_factor=4.0, unfused_factor=1.0, transform_factor=1.0, call_us=50.0, growth_us=0.1
)
NUMBERS = tuple(f.name for f in fields(model.ConvolutionConstants) if f.name != "provenance")
SIZES = ("batch", "in_channels", "out_channels", "in_size", "kernel", "stride", "padding")


def result_edge(edge: np.ndarray, window: np.ndarray, stride: np.ndarray, padding: np.ndarray) -> np.ndarray:
    """P or Q [calls] = floor((H + 2 padding - R) / stride) + 1 (torch.nn.Conv2d)."""
    return np.floor((edge + 2 * padding - window) / stride) + 1


def calls_of(rows: pd.DataFrame) -> model.Convolutions:
    """Rows of a table: square images and windows, one group."""
    n, c, k, size, window, stride, padding = (rows[name].to_numpy(float) for name in SIZES)
    out = result_edge(size, window, stride, padding)
    return model.Convolutions(n, c, k, size, size, window, window, out, out, stride, np.ones(len(rows)))


def forward_algorithms(rows: pd.DataFrame, setting: Setting) -> model.Algorithms:
    """Of rows of one device."""
    return lanes_algorithms(calls_of(rows), model.ConvolutionPass.FORWARD, DTYPE, setting)


def fit_convolution_constants(
    rows: pd.DataFrame,
    devices: Mapping[str, DeviceSpec],
    gemm: Mapping[str, Members],
    memory: MemoryConstants,
    provenance: str,
) -> model.ConvolutionConstants:
    """Constants from every row given; every device weighs the same."""
    some = sample(rows, ROWS_PER_DEVICE)
    parts = [(forward_algorithms(part, Setting(devices[str(name)], memory, gemm, START)), part)
             for name, part in some.groupby("device")]  # fmt: skip

    def residuals(values: np.ndarray) -> np.ndarray:
        hosts = values[FACTORS:].reshape(-1, 2)  # [devices, 2] call_us, growth_us
        off = [log_error(ways, part, built(values[:FACTORS], host, provenance))
               for (ways, part), host in zip(parts, hosts, strict=True)]  # fmt: skip
        return softened(np.concatenate(off), DISTURBED)

    factors = [START.fused_factor, START.weight_factor, START.unfused_factor, START.transform_factor]
    values = fit_logs(residuals, np.array([*factors, *[START.call_us, START.growth_us] * len(parts)]))
    typical = np.exp(np.log(values[FACTORS:].reshape(-1, 2)).mean(axis=0))  # [2]
    return built(values[:FACTORS], typical, provenance)


def built(factors: np.ndarray, host: np.ndarray, provenance: str) -> model.ConvolutionConstants:
    """Constants of four factors and of a host [2]: call_us, growth_us."""
    numbers = dict(zip(NUMBERS, [*factors.tolist(), *host.tolist()], strict=True))
    return model.ConvolutionConstants(**numbers, provenance=provenance)


def log_error(ways: model.Algorithms, rows: pd.DataFrame, constants: model.ConvolutionConstants) -> np.ndarray:
    """[n] log(predicted / measured) of rows of one device, on a host as slow as these constants say."""
    before = np.nan_to_num(rows["calls_before"].to_numpy(float))  # [n] unknown: as a first call
    wait = np.where(rows["launch_included"], constants.call_us + constants.growth_us * before, 0.0)  # [n]
    return np.asarray(np.log(ways.fastest_us(constants) + wait) - np.log(rows["latency_us"].to_numpy(float)))


def main() -> None:
    """Fit and write."""
    out = requested_file(model.CONVOLUTION_FILE)
    rows, devices = convolution_rows()
    sentences = PROVENANCE.format(devices=", ".join(sorted(devices)))
    result = fit_convolution_constants(rows, devices, default_gemm_constants(), default_memory_constants(), sentences)
    write_constants(out, result, DIGITS)
    print(out.read_text())


if __name__ == "__main__":
    main()
