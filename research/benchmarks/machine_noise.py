"""How steady is this machine with nothing else running? The recorder's probe, over and over, against its best.

python -m research.benchmarks.machine_noise [SECONDS]      default: 60
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np

from research.recording.probe import probe_us

CORES = 2  # of those this process may use
WITHIN = 0.03  # what a recipe accepts


def main() -> None:
    """Print quantiles per core, and how often all cores were steady at once."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    result, deadline = [probe_us(cores)], time.monotonic() + seconds
    while time.monotonic() < deadline:
        result.append(probe_us(cores))
    slower = np.array(result) / np.min(result, axis=0) - 1  # [num_probes, num_cores]
    print(f"{len(result)} probes in {seconds:g} s, best {np.min(result):.0f} us")
    print("| core | median | p75 | p90 | max | within 3 % of its best |")
    print("|---|---|---|---|---|---|")
    for core, column in zip(cores, slower.T, strict=True):
        quantiles = " | ".join(f"+{q:.1%}" for q in np.quantile(column, [0.5, 0.75, 0.9, 1.0]))
        print(f"| {core} | {quantiles} | {np.mean(column <= WITHIN):.0%} |")
    print(f"all cores within 3 % of their best: {np.mean((slower <= WITHIN).all(axis=1)):.0%} of the probes")


if __name__ == "__main__":
    main()
