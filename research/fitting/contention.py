"""Fit what overlapping work takes from each other, and write conf/analytic/contention.yaml.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.fitting.contention [OUT.yaml]

GPU: medians over ops, shapes and kernels that occur by itself and next to a collective's kernel in one public run;
    each run
is judged by the median of the others, next to the answer 1. A slowdown that does not judge better than 1 stays 1.
CPU: bytes that one core moves per second, from recordings of the split `run`, part train, whose ranks have a core
each: of the grid, the rate with the least sum of |measured - predicted| extra time.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.analytic.contention_constants import ContentionConstants, CpuContention, GpuContention
from gnnperf.hardware import conf_dir
from research.fitting.contention_pairs import (
    MIN_CPU_US,
    Compared,
    compared,
    cpu_recordings,
    gpu_runs,
    kernel_ratios,
    split_of,
    transfer_ratios,
)
from research.fitting.files import write_constants

DIGITS = 6  # significant, in the file
MIN_GROUPS = 10  # of at least two runs: fewer are no evidence
RATES = np.geomspace(1e8, 1e10, 201)  # bytes/s; neighbors differ by 2.3 %
PROVENANCE = (
    "python -m research.fitting.contention. gpu: public Kineto traces (HolisticTraceAnalysis MIT, TraceLens "
    "MIT, param "
    "MIT, TorchRec BSD-3, Megatron-LM), same op, shape and kernel alone and beside a collective's kernel; 1.0 where "
    "the median of other runs judges a run no better than 1.0, or no two runs have such pairs. cpu: gloo of "
    "datasets/cpu-gloo, split run, part train, ranks with a core each."
)


def gpu_constants() -> GpuContention:
    """Print the ratios by run, and fit."""
    kernels, transfers = [], []
    for run, gpu, graph in gpu_runs():
        kernels.append(kernel_ratios(graph).assign(run=run, gpu=gpu))
        transfers.append(transfer_ratios(graph).assign(run=run, gpu=gpu))
    result = pd.concat(kernels, ignore_index=True)
    both = pd.concat(transfers, ignore_index=True)
    return GpuContention(
        compute_slowdown=judged("compute-bound kernels", result[result["compute_bound"]]),
        memory_slowdown=judged("memory-bound kernels", result[~result["compute_bound"]]),
        transfer_slowdown=judged("transfers", both),
    )


def judged(what: str, result: pd.DataFrame) -> float:
    """The median ratio, if the median of other runs judges runs better than 1 does; else 1."""
    print(f"\n{what}: {len(result)} groups")
    for (gpu, run), group in result.groupby(["gpu", "run"]):
        quantiles = " / ".join(f"{q:.2f}" for q in group["ratio"].quantile([0.1, 0.5, 0.9]))
        print(f"  {gpu}, {run}: {len(group)} groups, p10 / median / p90 {quantiles}")
    ours, ones = [], []
    for run, group in result.groupby("run"):
        others = result.loc[result["run"] != run, "ratio"]
        if len(others) >= MIN_GROUPS:
            ours += np.abs(np.log(group["ratio"] / max(others.median(), 1.0))).tolist()
            ones += np.abs(np.log(group["ratio"])).tolist()
    if not ours:
        print("  nothing to judge by: 1.0")
        return 1.0
    print(f"  left-out runs, mean |log ratio|: constant {np.mean(ours):.3f}, 1.0 {np.mean(ones):.3f}")
    better = np.mean(ours) < np.mean(ones) and len(result) >= MIN_GROUPS
    return round(float(max(result["ratio"].median(), 1.0)), 3) if better else 1.0


def cpu_constants() -> CpuContention:
    """Print what each link's samples say, and fit."""
    part, samples = split_of("run"), []
    for recording, graph in cpu_recordings():
        if part.get(recording.name) == "train" and recording.world_size == 2:
            samples.append(extra(compared(graph, MIN_CPU_US)).assign(link=recording.link, run=recording.name))
    result = pd.concat(samples, ignore_index=True)
    loopback = result["link"] == "loopback"
    for link, group in result.groupby("link"):
        print(f"{link}: {group['node'].nunique()} nodes, core moves {fitted_rate(group) / 1e6:.0f} MB/s")
    return CpuContention(round(fitted_rate(result[loopback]), -6), round(fitted_rate(result[~loopback]), -6))


def extra(result: Compared) -> pd.DataFrame:
    """One row per node and transfer: the extra time of the node, and what the transfer moved next to it."""
    node, transfer = result.moving[:2].astype(np.int64)
    nodes = result.graph.nodes
    latency, size = nodes["latency_us"].to_numpy(), np.nan_to_num(nodes["message_bytes"].to_numpy())
    rows = pd.DataFrame({
        "node": node, "extra_us": latency[node] - result.isolated_us[node], "overlap_us": result.moving[2],
        "bytes_per_us": size[transfer] / latency[transfer],
    })  # fmt: skip
    return rows[result.known[node]]


def fitted_rate(result: pd.DataFrame) -> float:
    """Bytes/s of a core with the least sum of absolute errors of a node's extra time."""
    number = result.groupby(["run", "node"]).ngroup().to_numpy()
    extra_us = result.groupby(["run", "node"])["extra_us"].first().to_numpy()
    moved, overlap = result["bytes_per_us"].to_numpy(), result["overlap_us"].to_numpy()

    def error(rate: float) -> float:
        given = np.bincount(number, np.minimum(moved * 1e6 / rate, 1.0) * overlap)
        return float(np.abs(extra_us - given).sum())

    return float(min(RATES, key=error))


def main() -> None:
    """Fit and write."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else conf_dir("analytic") / "contention.yaml"
    constants = ContentionConstants(gpu_constants(), cpu_constants(), PROVENANCE)
    print(constants.gpu, constants.cpu)
    write_constants(out, constants, DIGITS)


if __name__ == "__main__":
    main()
