"""A GPU generation that no one trained on: does the network improve on closed forms, and do intervals hold?

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks.generations [gemm] [ops] [--out DIR] [--write]

Op tables of several GPUs (gemm: bfloat16 products; ops: single ops in float32), one generation left out of everything
that is fitted. How answers are bounded is chosen by leaving one more of the other generations out;
the generation itself is judged once. Answers are kept in DIR. --write: bounds that ship
(conf/analytic/unseen_gpu.yaml), of closed forms, from all generations of the tables requested.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.table import Table

from gnnperf.core import InputError
from gnnperf.gnn import LEVEL
from gnnperf.gnn.evaluation.metrics import absolute_percentage_error, gmae
from gnnperf.gnn.intervals.devices import FILE, fit_device_intervals, save_device_intervals
from gnnperf.hardware import conf_dir
from research.benchmarks._console_tables import right_aligned
from research.benchmarks._generation_answers import GEMM, KIND, LEFT, OPS, answers
from research.benchmarks._generation_intervals import WAYS, bounds
from research.pretraining.rows import GENERATION

OUT = Path("outputs/generations")
CAMPAIGNS = {"gemm": GEMM, "ops": OPS}
PROVENANCE = (
    "what closed forms missed on rows of public op tables (aiconfigurator, Apache-2.0; NeuSight, MIT), each generation "
    "told by constants that were fitted without it; by research/benchmarks/generations.py on {devices}"
)
MOST_FLAGGED, LEAST_WITHIN = 0.2, 0.8
UNBOUNDED = ("weighted",)
Metric = Callable[[np.ndarray, np.ndarray], float]


@dataclass(frozen=True)
class Judged:
    """One generation, left out.

    Attributes:
        generation: its name.
        test: its rows.
        seen: rows of GPUs that trained, given by the same network.
        inner: rows of each other generation that was left out with it.
        inner_seen: generation -> rows of the GPUs that trained then.
    """

    generation: str
    test: pd.DataFrame
    seen: pd.DataFrame
    inner: pd.DataFrame
    inner_seen: dict[str, pd.DataFrame]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m research.benchmarks.generations", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(CAMPAIGNS))
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR")
    parser.add_argument("--write", action="store_true")
    requested = parser.parse_args(arguments)
    if unknown := [name for name in requested.tables if name not in CAMPAIGNS]:
        parser.error(f"no table {unknown[0]!r}, allowed: {', '.join(CAMPAIGNS)}")
    torch.set_num_threads(1)
    try:
        given = {CAMPAIGNS[name]: answers(CAMPAIGNS[name], requested.out) for name in requested.tables or CAMPAIGNS}
        for name in requested.tables or CAMPAIGNS:
            report(CAMPAIGNS[name], given[CAMPAIGNS[name]])
        if requested.write:
            write(pd.concat([given[CAMPAIGNS[name]] for name in requested.tables or CAMPAIGNS], ignore_index=True))
    except InputError as error:
        print(f"generations: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def write(given: pd.DataFrame) -> None:
    """Bounds of the closed forms, each generation given by what was fitted without it."""
    rows = given[~given["seen"] & (given[LEFT].map(len) == 1)]
    scores = np.log(rows["measured"] / rows["analytic"])
    result = fit_device_intervals(rows[[GENERATION, "family", "dtype"]].assign(score=scores), LEVEL)
    save_device_intervals(result, PROVENANCE.format(devices=", ".join(sorted(set(rows["device"])))),
                          conf_dir("analytic") / FILE)  # fmt: skip


def report(campaign: str, given: pd.DataFrame) -> None:
    """Both tables of one campaign."""
    console = Console(width=150)
    generations = sorted(given[GENERATION].unique())
    every = [_judged(given, one) for one in generations]
    console.print(errors_table(campaign, every))
    console.print(choice_table(every))
    console.print(intervals_table(campaign, every))


def errors_table(campaign: str, every: Sequence[Judged]) -> Table:
    """Per-node error by generation."""
    who = "gnn, analytic"
    names = ("rows", f"GMAE %: {who}", f"mean %: {who}", "gnn / analytic: GMAE", "mean")
    shown = right_aligned(f"{campaign}: per-node error, GPU generation left out", *names)
    parts = [(one.generation, one.test) for one in every]
    pooled = pd.concat([one.test for one in every], ignore_index=True)
    kinds = [(f"all: {kind}", rows) for kind, rows in pooled.groupby(KIND)]
    for name, rows in [*parts, *(kinds if len(kinds) > 1 else []), ("all", pooled)]:
        given = (", ".join(f"{100 * error:.1f}" for error in _errors(rows, metric).values()) for metric in METRICS)
        shown.add_row(name, str(len(rows)), *given, *(f"{_ratio(rows, metric):.3f}" for metric in METRICS))
    return shown


@dataclass(frozen=True)
class Held:
    """What a way does on generations left out with the one that is judged.

    Attributes:
        within: share of rows, mean over generations.
        worst: of the generation with the fewest.
        width: median high/low, mean over generations.
        flagged: share of rows without bounds, likewise.
    """

    within: float
    worst: float
    width: float
    flagged: float


def choice_table(every: Sequence[Judged]) -> Table:
    """What each way does on generations left out with the one that is judged."""
    shown = right_aligned(f"intervals of {LEVEL:.0%} on other generations left out: within % (worst), median high/low",
                     *(one.generation for one in every))  # fmt: skip
    for way in WAYS:
        result = [_inner(one, way) for one in every]
        shown.add_row(way, *(f"{100 * h.within:.1f} ({100 * h.worst:.1f}), {h.width:.2f}" for h in result))
    return shown


def intervals_table(campaign: str, every: Sequence[Judged]) -> Table:
    """The chosen way, and next to it the others, on the generation."""
    title = f"{campaign}: intervals of {LEVEL:.0%}, generation left out: within %, median high/low"
    shown = right_aligned(title, "chosen", "flagged %", "within %", "high/low", "p90", *WAYS)
    pooled: list[tuple[np.ndarray, np.ndarray]] = []
    for one in every:
        chosen = choose({way: _inner(one, way) for way in WAYS})
        result = {way: _held(one.test, *bounds(way, one.seen, one.inner, one.test)) for way in WAYS}
        pooled.append(result[chosen])
        shown.add_row(one.generation, chosen, *_predicted(*result[chosen]),
                      *(f"{100 * w.mean():.1f}, {np.median(h):.2f}" for w, h in result.values()))  # fmt: skip
    shown.add_row("all, as chosen", "", *_predicted(*(np.concatenate(part) for part in zip(*pooled, strict=True))))
    return shown


def _predicted(within: np.ndarray, width: np.ndarray) -> tuple[str, str, str, str]:
    """Of rows with bounds; flagged: those without."""
    has = np.isfinite(width)
    median, high = np.quantile(width[has], [0.5, 0.9]).tolist()
    return f"{100 * (~has).mean():.1f}", f"{100 * within[has].mean():.1f}", f"{median:.2f}", f"{high:.2f}"


def choose(result: Mapping[str, Held]) -> str:
    """The narrowest that holds; if none does, that which holds best in the worst case.

    Weights by likelihood are left out: a row that no seen row is like has no bounds, and on a new GPU that may be most.
    """
    answering = {way: held for way, held in result.items() if way not in UNBOUNDED and held.flagged <= MOST_FLAGGED}
    holding = [way for way, held in answering.items() if held.within >= LEVEL and held.worst >= LEAST_WITHIN]
    if holding:
        return min(holding, key=lambda way: answering[way].width)
    return max(answering, key=lambda way: answering[way].worst)


def _judged(given: pd.DataFrame, generation: str) -> Judged:
    single = given[given[LEFT].map(lambda left: left == (generation,))]
    pairs = given[given[LEFT].map(lambda left: len(left) == 2 and generation in left)]
    away = pairs[~pairs["seen"] & (pairs[GENERATION] != generation)]
    inner_seen = {
        str(other): _scored(pairs[pairs["seen"] & pairs[LEFT].map(lambda left, other=other: other in left)])
        for other in away[GENERATION].unique()
    }
    return Judged(
        generation, _scored(single[~single["seen"]]), _scored(single[single["seen"]]), _scored(away), inner_seen
    )


def _mean_ape(predicted_us: np.ndarray, measured_us: np.ndarray) -> float:
    return float(absolute_percentage_error(predicted_us, measured_us).mean())


METRICS: tuple[Metric, ...] = (gmae, _mean_ape)


def _errors(rows: pd.DataFrame, metric: Metric) -> dict[str, float]:
    return {who: metric(rows[who].to_numpy(), rows["measured"].to_numpy()) for who in ("gnn", "analytic")}


def _ratio(rows: pd.DataFrame, metric: Metric = gmae) -> float:
    given = _errors(rows, metric)
    return given["gnn"] / given["analytic"]


def _scored(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(score=np.log(rows["measured"] / rows["gnn"])).reset_index(drop=True)


def _inner(one: Judged, way: str) -> Held:
    """Each other generation judged by what is left; all count the same."""
    result = []
    for other, rows in one.inner.groupby(GENERATION):
        rest = one.inner[one.inner[GENERATION] != other]
        within, width = _held(rows, *bounds(way, one.inner_seen[str(other)], rest, rows.reset_index(drop=True)))
        result.append((within.mean(), np.median(width), np.isinf(width).mean()))
    within, width, flagged = np.array(result).T
    return Held(within.mean(), within.min(), width.mean(), flagged.mean())


def _held(rows: pd.DataFrame, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    score = rows["score"].to_numpy()
    return (score >= low) & (score <= high), np.exp(high - low)


if __name__ == "__main__":
    sys.exit(main())
