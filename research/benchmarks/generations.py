"""A GPU generation left out of the constants: how far are closed forms off, and do intervals hold?

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks.generations [gemm] [ops] [--out DIR] [--write]

Op tables of several GPUs (gemm: bfloat16 products; ops: single ops in float32), one generation left out of everything
that is fitted. Intervals come from errors on other generations that were left out together with it. Constants are
kept in DIR. --write: bounds that ship (conf/analytic/unseen_gpu.yaml), from all generations of the tables requested.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from rich.table import Table

from gnnperf.gnn import LEVEL
from gnnperf.gnn.evaluation.metrics import absolute_percentage_error, gmae
from gnnperf.gnn.intervals.devices import FILE, expected_bounds, fit_device_intervals, save_device_intervals
from gnnperf.gnn.intervals.nodes import two_sided
from gnnperf.hardware import conf_dir
from research.benchmarks._frame import right_aligned, run_main, show
from research.benchmarks._generation_answers import GEMM, GROUP, KIND, LEFT, OPS, answers
from research.fitting.rows import GENERATION

OUT = Path("outputs/generations")
CAMPAIGNS = {"gemm": GEMM, "ops": OPS}
PROVENANCE = (
    "what closed forms missed on rows of public op tables (aiconfigurator, Apache-2.0; NeuSight, MIT), each generation "
    "predicted by constants that were fitted without it; by research/benchmarks/generations.py on {devices}"
)
Metric = Callable[[np.ndarray, np.ndarray], float]


@dataclass(frozen=True)
class Judged:
    """One generation, left out."""

    generation: str
    test: pd.DataFrame
    seen: pd.DataFrame
    inner: pd.DataFrame


def main(arguments: Sequence[str]) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m research.benchmarks.generations", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(CAMPAIGNS))
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR")
    parser.add_argument("--write", action="store_true")
    requested = parser.parse_args(arguments)
    if unknown := [name for name in requested.tables if name not in CAMPAIGNS]:
        parser.error(f"no table {unknown[0]!r}, allowed: {', '.join(CAMPAIGNS)}")
    given = {CAMPAIGNS[name]: answers(CAMPAIGNS[name], requested.out) for name in requested.tables or CAMPAIGNS}
    for name in requested.tables or CAMPAIGNS:
        report(CAMPAIGNS[name], given[CAMPAIGNS[name]])
    if requested.write:
        write(pd.concat([given[CAMPAIGNS[name]] for name in requested.tables or CAMPAIGNS], ignore_index=True))


def write(given: pd.DataFrame) -> None:
    """Bounds of the closed forms, each generation given by what was fitted without it."""
    rows = given[~given["seen"] & (given[LEFT].map(len) == 1)]
    scores = np.log(rows["measured"] / rows["analytic"])
    result = fit_device_intervals(rows[[GENERATION, "family", "dtype"]].assign(score=scores), LEVEL)
    save_device_intervals(result, PROVENANCE.format(devices=", ".join(sorted(set(rows["device"])))),
                          conf_dir("analytic") / FILE)  # fmt: skip


def report(campaign: str, given: pd.DataFrame) -> None:
    """Both tables of one campaign."""
    generations = sorted(given[GENERATION].unique())
    every = [_judged(given, one) for one in generations]
    show(errors_table(campaign, every), intervals_table(campaign, every), width=150)


def errors_table(campaign: str, every: Sequence[Judged]) -> Table:
    """Errors by generation."""
    shown = right_aligned(f"{campaign}: error of a call, GPU generation left out", "rows", "GMAE %", "mean %")
    parts = [(one.generation, one.test) for one in every]
    pooled = pd.concat([one.test for one in every], ignore_index=True)
    kinds = [(f"all: {kind}", rows) for kind, rows in pooled.groupby(KIND)]
    for name, rows in [*parts, *(kinds if len(kinds) > 1 else []), ("all", pooled)]:
        predicted, measured = rows["analytic"].to_numpy(), rows["measured"].to_numpy()
        shown.add_row(name, str(len(rows)), *(f"{100 * metric(predicted, measured):.1f}" for metric in METRICS))
    return shown


def intervals_table(campaign: str, every: Sequence[Judged]) -> Table:
    """Bounds from generations left out with the judged one; trivial bounds: from errors on GPUs that trained."""
    title = f"{campaign}: intervals of {LEVEL:.0%}, generation left out: within %, high/low (median, p90)"
    shown = right_aligned(title, "within %", "high/low", "p90", "trained GPUs: within %", "high/low")
    pooled: list[tuple[np.ndarray, np.ndarray]] = []
    for one in every:
        within, width = _held(one.test, *_bounds(one.inner, one.test, expected_bounds))
        trivial, its_width = _held(
            one.test, *_bounds(one.seen, one.test, lambda scores, _, level: two_sided(scores, level))
        )
        pooled.append((within, width))
        shown.add_row(
            one.generation, *_widths(within, width), f"{100 * trivial.mean():.1f}", f"{np.median(its_width):.2f}"
        )
    shown.add_row("all", *_widths(*(np.concatenate(part) for part in zip(*pooled, strict=True))), "", "")
    return shown


def _bounds(
    known: pd.DataFrame, requested: pd.DataFrame, fit: Callable[[np.ndarray, np.ndarray, float], tuple[float, float]]
) -> tuple[np.ndarray, np.ndarray]:
    """[n] lower and upper log(measured / predicted) of the requested rows, fitted by group on known ones."""
    low, high = np.full(len(requested), -np.inf), np.full(len(requested), np.inf)
    for group, rows in requested.groupby(GROUP).indices.items():
        own = known[known[GROUP] == group]
        low[rows], high[rows] = fit(own["score"].to_numpy(), own[GENERATION].to_numpy(str), LEVEL)
    return low, high


def _held(rows: pd.DataFrame, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    score = rows["score"].to_numpy()
    return (score >= low) & (score <= high), np.exp(high - low)


def _widths(within: np.ndarray, width: np.ndarray) -> tuple[str, str, str]:
    median, high = np.quantile(width, [0.5, 0.9]).tolist()
    return f"{100 * within.mean():.1f}", f"{median:.2f}", f"{high:.2f}"


def _judged(given: pd.DataFrame, generation: str) -> Judged:
    single = given[given[LEFT].map(lambda left: left == (generation,))]
    pairs = given[given[LEFT].map(lambda left: len(left) == 2 and generation in left)]
    away = pairs[~pairs["seen"] & (pairs[GENERATION] != generation)]
    return Judged(generation, _scored(single[~single["seen"]]), _scored(single[single["seen"]]), _scored(away))


def _mean_ape(predicted_us: np.ndarray, measured_us: np.ndarray) -> float:
    return float(absolute_percentage_error(predicted_us, measured_us).mean())


METRICS: tuple[Metric, ...] = (gmae, _mean_ape)


def _scored(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(score=np.log(rows["measured"] / rows["analytic"])).reset_index(drop=True)


if __name__ == "__main__":
    run_main(main)
