"""NeuSight's tables of memory-bound ops, and the devices they were measured on."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.analytic.gemm.model import rate_key
from gnnperf.hardware import DeviceSpec, match_device
from research.benchmarks._public_runs import mirror
from research.tables import joined, read_aiconfigurator, read_neusight, spec_of

TABLES = ("gemm", "bmm", "linear", "gemm float8", "gemm float8_block", "gemm float4")
GEMM_DTYPES = ("bfloat16", "fp8", "fp8_block", "nvfp4")  # of aiconfigurator
SHAPE = ["batch", "m", "n", "k"]
SEED = 0


def product_rows(mirror: Path) -> pd.DataFrame:
    """All products of aiconfigurator and NeuSight on devices of the catalog; prints what is left out."""
    table = joined([read_aiconfigurator(mirror, GEMM_DTYPES), read_neusight(mirror)])
    rows = table.rows[table.rows["table"].isin(TABLES)]
    for reason, count in table.dropped.items():
        print(f"left out: {reason}: {count}")
    for name in sorted({name for name in rows["device"].unique() if match_device(name) is None}):
        print(f"skipped: {name}, which conf/hardware does not know")
        rows = rows[rows["device"] != name]
    architecture = {name: spec_of(name).architecture for name in rows["device"].unique()}
    return rows.assign(generation=rows["device"].map(architecture))


def sample(rows: pd.DataFrame, per_device: int) -> pd.DataFrame:
    """At most so many rows of each device, the same in every run."""
    mixed = rows.sample(frac=1.0, random_state=SEED)
    return mixed[mixed.groupby("device").cumcount() < per_device].sort_index()


def peak_flops_per_s(device: DeviceSpec, dtype: str) -> float:
    """Data-sheet rate: with matrix units, except for float32 (TF32 was off)."""
    return device.flops_per_s[rate_key(device, dtype)]


def roofline_us(rows: pd.DataFrame, device: DeviceSpec) -> np.ndarray:
    """max(FLOPs / peak, bytes / bandwidth), nothing derated (Williams, Waterman, Patterson 2009)."""
    compute = rows["flops"].to_numpy() / peak_flops_per_s(device, str(rows["dtype"].iloc[0]))
    memory = rows["moved_bytes"].to_numpy() / device.memory_bandwidth_bytes_per_s
    return np.maximum(compute, memory) * 1e6


def scaled_nearest_us(rows: pd.DataFrame, device: DeviceSpec, others: pd.DataFrame) -> tuple[np.ndarray, str]:
    """[rows] us of the shape on the nearest other GPU, times its peak over this one's; NaN: not measured; its name.

    Nearest: smallest distance of log peak, bandwidth and SMs.
    """
    dtype = str(rows["dtype"].iloc[0])

    def place(result: DeviceSpec) -> np.ndarray:
        return np.log([peak_flops_per_s(result, dtype), result.memory_bandwidth_bytes_per_s, result.num_sms])

    away = {name: float(np.linalg.norm(place(spec_of(name)) - place(device))) for name in others["device"].unique()}
    nearest = min(away, key=away.__getitem__)
    known = others[others["device"] == nearest].set_index(SHAPE)["latency_us"]
    there = known[~known.index.duplicated()].reindex(pd.MultiIndex.from_frame(rows[SHAPE])).to_numpy()
    return there * peak_flops_per_s(spec_of(nearest), dtype) / peak_flops_per_s(device, dtype), nearest


CONVOLUTION_TABLE = "conv"
MATRIX_TABLES = ("bmm", "linear", CONVOLUTION_TABLE)


def memory_rows() -> tuple[pd.DataFrame, dict[str, DeviceSpec]]:
    """Rows of the memory-bound tables, and device name -> specification; devices without one are named and left out."""
    rows = read_neusight(mirror()).rows
    return _known(rows[~rows["table"].isin(MATRIX_TABLES)])


def convolution_rows() -> tuple[pd.DataFrame, dict[str, DeviceSpec]]:
    """The same of convolutions."""
    rows = read_neusight(mirror()).rows
    return _known(rows[rows["table"] == CONVOLUTION_TABLE])


def _known(rows: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, DeviceSpec]]:
    if rows.empty:
        sys.exit("no tables of sitar-lab/NeuSight: set GNNPERF_DATA_MIRROR to a folder that holds them")
    result = {str(name): match_device(str(name)) for name in rows["device"].unique()}
    known = {name: device for name, device in result.items() if device is not None}
    for name in sorted(result.keys() - known.keys()):
        print(f"{name}: not in the catalog, left out")
    return rows[rows["device"].isin(known)].reset_index(drop=True), known
