"""Closed forms on a GPU generation that nothing was fitted on: errors, and whether intervals hold.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks.generations [--ops] [--out DIR] [--write]

Op tables of several GPUs (bfloat16 products; --ops: single ops in float32), one generation left out of every fit.
Bounds come from the errors on the other generations. --write: bounds that ship (conf/analytic/unseen_gpu.yaml), of the
products.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.gnn import LEVEL
from gnnperf.gnn.intervals.devices import FILE, fit_device_intervals, save_device_intervals
from gnnperf.hardware import conf_dir
from research.benchmarks._frame import parser_of, print_head, print_row, run_main
from research.benchmarks._generations import DTYPES, FAMILIES, GEMM, KIND, OPS, tables
from research.benchmarks.gpu_ratios import HEAD, judged
from research.fitting.forms import base_us, retained_forms
from research.fitting.observation import fit_observation
from research.fitting.rows import GENERATION, sampled

OUT = Path("outputs/generations")
TRAIN_ROWS, OTHER_ROWS, JUDGED_ROWS = {GEMM: 1000, OPS: 300}, 200, 600  # of each device and kind
PROVENANCE = (
    "what closed forms missed on rows of public op tables (aiconfigurator, Apache-2.0; NeuSight, MIT), each generation "
    "predicted by constants that were fitted without it; by research/benchmarks/generations.py on {devices}"
)


def main(arguments: Sequence[str]) -> None:
    """Print errors, coverage and width per generation; write the bounds if requested."""
    parser = parser_of(__doc__)
    parser.add_argument("--ops", action="store_true", help="single ops in float32 in place of products")
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="folder of the fitted constants")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(arguments)
    if given.ops and given.write:
        parser.error("--write ships bounds of products: leave out --ops")
    given.out.mkdir(parents=True, exist_ok=True)
    scores = pd.concat(scores_of(OPS if given.ops else GEMM, given.out), ignore_index=True)
    print_head(*HEAD)
    for row in judged(scores):
        print_row(*row)
    if given.write:
        devices = ", ".join(sorted(set(scores["device"])))
        result = fit_device_intervals(scores, LEVEL)
        save_device_intervals(result, PROVENANCE.format(devices=devices), conf_dir("analytic") / FILE)


def scores_of(campaign: str, keep: Path) -> Iterator[pd.DataFrame]:
    """Columns generation, device, family, dtype, score (log(measured / predicted)); one table per generation."""
    rows, train_rows = tables()[campaign], TRAIN_ROWS[campaign]
    for generation in sorted(rows[GENERATION].unique()):
        out = (rows[GENERATION] == generation).to_numpy()
        others, own = rows[~out].reset_index(drop=True), rows[out].reset_index(drop=True)
        known = others.iloc[sampled(others, train_rows + OTHER_ROWS, ["device", KIND], seed=0)]
        train = np.random.default_rng(0).random(len(known)) >= OTHER_ROWS / (train_rows + OTHER_ROWS)  # [n]
        chosen = own.iloc[sampled(own, JUDGED_ROWS, ["device", KIND], seed=1)].reset_index(drop=True)
        fitted_on = known[train].reset_index(drop=True)
        constants = retained_forms(fitted_on, keep)
        read_us = fit_observation(fitted_on, constants).of(chosen).read_us(base_us(chosen, constants))
        yield pd.DataFrame({
            GENERATION: generation, "device": chosen["device"].astype(str), "family": chosen[KIND].map(FAMILIES),
            "dtype": DTYPES[campaign], "score": np.log(chosen["latency_us"] / read_us),
        })  # fmt: skip


if __name__ == "__main__":
    run_main(main)
