"""Matrix products by formula: on GPUs of a generation that no constant was fitted on, and on unseen weight shapes.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks.gemm [unseen] [devices]

Fits and judges; without arguments, all. Tables of aiconfigurator (gemm: bfloat16, the kernel by itself;
gemm float8, float8_block, float4: with the kernel that quantizes) and float32 of NeuSight (bmm, linear: with the wait
for the launch).

unseen: all GPUs of one generation are left out together. devices: one GPU at a time, its siblings stay, fitted as the
shipped constants are. Next to the model the trivial predictions on the same rows. "own launch" is the model with the
one number that is the host's, the wait for the launch, read off the unseen machine.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from gnnperf.analytic.gemm.constants import Members
from gnnperf.gnn import summarize
from research.benchmarks._frame import print_head, print_row, run_main
from research.benchmarks._op_tables import TABLES, product_rows, roofline_us, sample, scaled_nearest_us
from research.benchmarks._public_runs import mirror
from research.fitting.gemm import BY_KERNELS, FAMILY, Measured, fit_for_others, fit_generations, measured, predicted_us
from research.tables import spec_of

TRAINING_ROWS = 300  # of each GPU, to judge another generation
JUDGED_ROWS = 4000  # of each GPU
CHUNK = 4000
FASTEST = 0.02  # quantile of latencies that is taken for the wait for the launch
Estimates = Mapping[str, np.ndarray]


def main(requested: Iterable[str]) -> None:
    rows = product_rows(mirror())
    parts = {"unseen": unseen, "devices": devices}
    for name in requested or parts:
        parts[name](rows)


def unseen(rows: pd.DataFrame) -> None:
    """One generation left out at a time."""
    _header("Unseen generation", ("own launch", "nearest x peak", "roofline"))
    every: list[list[float]] = []
    for table in TABLES:
        here = rows[rows["table"] == table]
        means = []
        names = sorted(map(str, here["generation"].unique()))
        for generation in names if len(names) > 1 else ():
            others = here[here["generation"] != generation]
            constants = fit_for_others(sample(others, TRAINING_ROWS))
            for name, part in here[here["generation"] == generation].groupby("device"):
                judged, nearest = _with_nearest(part, str(name), others)
                fastest_us = float(judged["latency_us"].quantile(FASTEST))
                launch = tuple(replace(member, launch_us=fastest_us) for member in constants)
                estimates = {"model": _predicted_us(judged, constants), "own launch": _predicted_us(judged, launch),
                             "nearest": nearest, "roofline": roofline_us(judged, spec_of(str(name)))}  # fmt: skip
                means.append(_print(f"{table} | {name} ({generation})", judged, estimates))
        if means:
            _print_mean(table, means)
        every += means
    _print_mean("all", every)


def devices(rows: pd.DataFrame) -> None:
    """One GPU left out at a time, on matrix units: the constants of its generation come from its siblings."""
    _header("Unseen GPU", ("nearest x peak", "roofline"))
    for table in (table for table in TABLES if FAMILY[table] not in BY_KERNELS):
        here, means = rows[rows["table"] == table], []
        names = sorted(here["device"].unique())
        for name in names if len(names) > 1 else ():
            others, part = here[here["device"] != name], here[here["device"] == name]
            judged, nearest = _with_nearest(part, str(name), others)
            estimates = {"model": _predicted_us(judged, fit_generations(others)), "nearest": nearest,
                       "roofline": roofline_us(judged, spec_of(str(name)))}  # fmt: skip
            sibling = part["generation"].iloc[0] in others["generation"].unique()
            means.append(_print(f"{table} | {name} ({'sibling' if sibling else 'no sibling'})", judged, estimates))
        if means:
            _print_mean(table, means)


def _with_nearest(part: pd.DataFrame, name: str, others: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows whose shape the nearest GPU has, too: every prediction is judged on the same rows."""
    judged = sample(part, JUDGED_ROWS)
    nearest, _ = scaled_nearest_us(judged, spec_of(name), others)
    known = ~np.isnan(nearest)
    return judged[known], nearest[known]


def _predicted_us(rows: pd.DataFrame, constants: Members) -> np.ndarray:
    """[rows] us, some thousand rows at a time: a row has one number per tile and split."""
    parts: list[Measured] = [measured(rows.iloc[at : at + CHUNK]) for at in range(0, len(rows), CHUNK)]
    return np.concatenate([predicted_us(part, constants) for part in parts])


def _header(title: str, trivial: Iterable[str]) -> None:
    names = ("table", "GPU", "rows", "mean", "median", "p90", "max", "bias", *(f"{t}: mean" for t in trivial))
    print(f"\n{title}\n")
    print_head(*names)


def _print(label: str, judged: pd.DataFrame, estimates: Estimates) -> list[float]:
    """One line; the mean errors of all predictions."""
    truth = judged["latency_us"].to_numpy()
    errors = {name: summarize(result, truth) for name, result in estimates.items()}
    model, *trivial = errors.values()
    shares = (model.mean_ape, model.median_ape, model.p90_ape, model.max_ape)
    records = [f"{len(judged)}", *(f"{s:.1%}" for s in shares), f"{model.bias:+.1%}",
             *(f"{t.mean_ape:.1%}" for t in trivial)]  # fmt: skip
    print_row(label, *records)
    return [e.mean_ape for e in errors.values()]


def _print_mean(table: str, means: list[list[float]]) -> None:
    """One line over GPUs, every GPU counting the same."""
    model, *trivial = np.mean(means, axis=0)
    records = " | ".join(f"{t:.1%}" for t in trivial)
    print(f"| {table} | mean of {len(means)} lines | | {model:.1%} | | | | | {records} |", flush=True)


if __name__ == "__main__":
    run_main(main)
