"""A few measured calls of a GPU, whose generation is left out of the closed forms, correct the forms for its others.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks.few_measured

The op tables of `generations`: bfloat16 products, and single ops in float32, which contain the wait for the launch.
MEASURED of POOL rows correct other rows as `measured=` of predict.py does (gnnperf.predict.similar), means over SEEDS,
which choose the rows. *x factor*: times the mean factor of the same rows.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gnnperf.gnn import ErrorSummary, summarize
from gnnperf.predict.similar import call_numbers, choose, corrections
from research.benchmarks._frame import parser_of, print_head, print_row, run_main
from research.benchmarks.generations import DTYPES, KIND, left_out, tables

POOL, MEASURED, SEEDS = 2000, (10, 16, 64, 256), (0, 1, 2)  # POOL of each device and kind, and as many that are judged
HEAD = ("kind", "GPU", "no rows", *(f"{n} rows" for n in MEASURED), *(f"{n} rows x factor" for n in MEASURED),
        "64 rows: median", "p90", "largest", "bias")  # fmt: skip


def errors(part: pd.DataFrame) -> tuple[list[float], list[float]]:
    """Of rows of one device and kind: mean errors in the order of HEAD, and what follows there."""
    calls, base_us = part.rename(columns={"moved_bytes": "bytes", "shapes": "input_dims"}), part["base_us"].to_numpy()
    numbers = call_numbers(calls, base_us)  # [n, 7]
    off = np.log(part["latency_us"].to_numpy(float) / part["read_us"].to_numpy(float))  # [n]
    pool, rest = np.split(np.random.default_rng(0).permutation(len(part)), [min(POOL, len(part) // 2)])
    corrected, scaled = list[ErrorSummary](), list[ErrorSummary]()
    for count in MEASURED:
        chosen = [pool[choose(numbers[pool], count, seed)] for seed in SEEDS]
        given = [corrections(numbers[rows], off[rows], numbers[rest]) for rows in chosen]
        for result, logs in ((corrected, given), (scaled, [np.full(len(rest), off[rows].mean()) for rows in chosen])):
            ratios = np.exp(np.concatenate(logs) - np.tile(off[rest], len(SEEDS)))  # predicted over measured
            result.append(summarize(ratios, np.ones(len(ratios))))
    more, plain = corrected[MEASURED.index(64)], summarize(np.exp(-off[rest]), np.ones(len(rest)))
    means = [float(one.mean_ape) for one in (plain, *corrected, *scaled)]
    return means, [more.median_ape, more.p90_ape, more.max_ape, more.bias]


def main(arguments: Sequence[str]) -> None:
    """Print a line for every kind and device, and their means."""
    parser_of(__doc__).parse_args(arguments)
    print_head(*HEAD)
    every: dict[str, list[list[float]]] = {}
    for campaign in tables():
        for _, chosen in left_out(campaign, 2 * POOL):
            for (kind, device), part in chosen.groupby([KIND, "device"]):
                means, more = errors(part)
                every.setdefault(f"{kind}, {DTYPES[campaign]}", []).append(means)
                print_row(f"{kind}, {DTYPES[campaign]}", str(device), *(f"{100 * one:.1f}" for one in (*means, *more)))
    for name, lines in every.items():
        print_row(name, f"mean of {len(lines)}", *(f"{100 * one:.1f}" for one in np.mean(lines, axis=0)), *[""] * 4)


if __name__ == "__main__":
    run_main(main)
