"""What the way of fitting matrix products was chosen by: one generation left out, and another one inside of the rest.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks.gemm_choice

For every generation that `python -m research.benchmarks gemm` leaves out, each of the others is left out once more and
judged by
fits on what is left; the first plays no part. Mean errors over what was judged, for fits of all generations together
and of each apart, by weight of the expectations; and where no device has a base clock.

Below, how far the FLOP/s of neighboring shapes (every size within a tenth) lie apart: what no smooth formula tells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd

from gnnperf.analytic.gemm.constants import Members
from research.benchmarks._products import SEED, SHAPE, TABLES, product_rows, sample
from research.benchmarks._public_runs import mirror
from research.fitting.gemm import Measured, fit_apart, fit_together, measured, predicted_us

TRAINING_ROWS, JUDGED_ROWS = 200, 500  # of each GPU
CONFIDENCES = (0.02, 0.04, 0.06, 0.09)
LONG_FLOPS, NEAR, NEIGHBORS = 2e9, 0.1, 1500
See = Callable[[pd.DataFrame], Measured]
Fit = Callable[[pd.DataFrame, See], Members]


def main() -> None:
    """Print one line per way of fitting."""
    rows = product_rows(mirror())
    ways: list[tuple[str, Fit, See]] = [
        ("together, 0.06, no base clock", partial(_together, 0.06), _without_base_clock)
    ]
    for confidence in CONFIDENCES:
        ways.append((f"together, {confidence}", partial(_together, confidence), measured))
        ways.append((f"apart, {confidence}", partial(_apart, confidence), measured))
    print(f"\n| fit, weight of expectations | {' | '.join(TABLES)} |\n|{'---|' * (1 + len(TABLES))}")
    for label, fit, see in ways:
        means = [_inner(rows[rows["table"] == table], fit, see) for table in TABLES]
        print(f"| {label} | {' | '.join(f'{mean:.1%}' for mean in means)} |", flush=True)
    print("\n| table, GPU | pairs | mean distance | p90 |\n|---|---|---|---|")
    for (table, name), part in rows[rows["flops"] > LONG_FLOPS].groupby(["table", "device"]):
        away = _neighbor_distances(part)
        print(f"| {table}, {name} | {len(away)} | {away.mean():.1%} | {np.quantile(away, 0.9):.1%} |", flush=True)


def _neighbor_distances(rows: pd.DataFrame) -> np.ndarray:
    """[pairs] relative distance of the FLOP/s of sampled products from those of the most similar shape."""
    sizes, rate = np.log(rows[SHAPE].to_numpy()), (rows["flops"] / rows["latency_us"]).to_numpy()
    result = []
    for at in np.random.default_rng(SEED).choice(len(rows), min(NEIGHBORS, len(rows)), replace=False):
        away = np.abs(sizes - sizes[at]).max(axis=1)  # [rows]
        away[at] = np.inf
        if away.min() < NEAR:
            result.append(abs(rate[away.argmin()] / rate[at] - 1))
    return np.array(result)


def _without_base_clock(rows: pd.DataFrame) -> Measured:
    data = measured(rows)
    unknown = np.full(len(rows), np.inf)
    return replace(data, numbers=replace(data.numbers, boost_over_base=unknown))


def _together(confidence: float, rows: pd.DataFrame, see: See) -> Members:
    return fit_together(see(rows), confidence=confidence)


def _apart(confidence: float, rows: pd.DataFrame, see: See) -> Members:
    return fit_apart([see(part) for _, part in rows.groupby("generation")], confidence=confidence)


def _inner(rows: pd.DataFrame, fit: Fit, see: See) -> float:
    """Mean error over what two generations fewer say about each of the two; every generation counts the same."""
    generations = sorted(rows["generation"].unique())
    errors = []
    for left_out in combinations(generations, 2):
        members = fit(sample(rows[~rows["generation"].isin(left_out)], TRAINING_ROWS), see)
        errors += [_error(rows[rows["generation"] == generation], members, see) for generation in left_out]
    return float(np.mean(errors))


def _error(rows: pd.DataFrame, members: Members, see: See) -> float:
    parts = [part for _, part in sample(rows, JUDGED_ROWS).groupby("device")]
    return float(np.mean([_mean_error(see(part), members) for part in parts]))


def _mean_error(data: Measured, members: Members) -> float:
    return float(np.abs(predicted_us(data, members) / data.latency_us - 1).mean())


if __name__ == "__main__":
    main()
