"""Fit what overlapping work takes from each other, and write conf/analytic/contention.yaml.

    python -m research.fitting.contention [OUT.yaml]

CPU: bytes that one core moves per second, from recordings of the split `run`, part train, whose ranks have a core
each: of the grid, the rate with the least sum of |measured - predicted| extra time.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.analytic.contention_constants import ContentionConstants, CpuContention
from gnnperf.hardware import conf_dir
from research.fitting.contention_pairs import (
    MIN_CPU_US,
    Compared,
    compared,
    cpu_recordings,
    split_of,
)
from research.fitting.files import write_constants

DIGITS = 6  # significant, in the file
RATES = np.geomspace(1e8, 1e10, 201)  # bytes/s; neighbors differ by 2.3 %
PROVENANCE = (
    "python -m research.fitting.contention. gloo of datasets/cpu-gloo, split run, part train, ranks with a core each."
)


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
    constants = ContentionConstants(cpu_constants(), PROVENANCE)
    print(constants.cpu)
    write_constants(out, constants, DIGITS)


if __name__ == "__main__":
    main()
