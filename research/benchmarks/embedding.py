"""Embedding bags on tables and skews that no price was fitted on.

    python -m research.benchmarks embedding                                 the table that ships, datasets/cpu-lookups
    python -m research.benchmarks.embedding calibrated/mine/ops.parquet     your own, from `gnnperf calibrate`

Every row is predicted by prices that saw neither its table (rows, dim, number of tables) nor its skew. Next to it the
trivial answers: bytes over bandwidth with a floor, both fitted on the same rows, and the measured time of the row whose
sizes are nearest. Noise is what the table itself says: half the width of a row's interval, the median over rows.
Where a table has both, the device's own times are judged, not those that include the launch.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from gnnperf.analytic.embedding.model import LINE_BYTES
from gnnperf.analytic.least_squares import fit_logs
from gnnperf.gnn import summarize
from research.fitting.embedding import WAYS, calls_of, fit_lookups, lookup_rows

TABLE_KEY = ["rows", "dim", "tables"]
TABLE_FOLDS = 4
SHIPPED = Path("datasets/cpu-lookups/ops.parquet")
MODEL, BYTES, NEAREST = "model", "floor + bytes / bandwidth", "nearest row"
SIZES = ["rows", "dim", "lookups", "bags", "skew", "tables"]


def folds(rows: pd.DataFrame) -> pd.Series:
    """[n] fold of each row's table: tables in the order of their size, dealt out in turn."""
    return rows.groupby(TABLE_KEY).ngroup() % TABLE_FOLDS


def held_out(rows: pd.DataFrame, way: str, line_bytes: int) -> pd.DataFrame:
    """Rows of one way with a column per answer, us."""
    fold = folds(rows)
    answers = pd.DataFrame(np.nan, rows.index, [MODEL, BYTES, NEAREST])
    for group in sorted(fold.unique()):
        for skew in sorted(rows["skew"].unique()):
            test = (fold == group) & (rows["skew"] == skew)
            seen = rows[(fold != group) & (rows["skew"] != skew)]
            if test.any() and len(seen):
                answers.loc[test, MODEL] = fit_lookups(seen, way, line_bytes).predict_us(calls_of(rows[test]))
                answers.loc[test, BYTES] = by_bytes_us(seen, rows[test])
                answers.loc[test, NEAREST] = nearest_us(seen, rows[test])
    return pd.concat([rows, answers], axis=1)


def moved_bytes(rows: pd.DataFrame) -> np.ndarray:
    """[n] rows read and results written; what a roofline knows."""
    result = (rows["lookups"] + rows["bags"]) * rows["dim"] * 4 + rows["lookups"] * 8
    return result.to_numpy(float) + np.where(rows["way"] == "backward", rows["rows"] * rows["dim"] * 4, 0.0)


def by_bytes_us(seen: pd.DataFrame, requested: pd.DataFrame) -> np.ndarray:
    """[n] floor + us per byte, fitted for each state of the cache."""
    result = np.full(len(requested), np.nan)
    for warm in (True, False):
        there, here = seen[seen["warm"] == warm], (requested["warm"] == warm).to_numpy()
        floor, slope = _line(moved_bytes(there), np.log(there["latency_us"].to_numpy(float)))
        result[here] = floor + slope * moved_bytes(requested[here])
    return result


def _line(moved: np.ndarray, log_us: np.ndarray) -> np.ndarray:
    return fit_logs(lambda v: np.log(v[0] + v[1] * moved) - log_us, np.array([10.0, 1e-4]))


def nearest_us(seen: pd.DataFrame, requested: pd.DataFrame) -> np.ndarray:
    """[n] the time of the row with the same state of the cache whose sizes are nearest in ratio."""
    there, here = (np.log(part[SIZES].to_numpy(float)) for part in (seen, requested))
    apart = np.abs(here[:, None, :] - there[None, :, :]).sum(axis=2)  # [n, seen]
    apart += 1e3 * (requested["warm"].to_numpy()[:, None] != seen["warm"].to_numpy()[None, :])
    return seen["latency_us"].to_numpy(float)[apart.argmin(axis=1)]


def main() -> int:
    """Print one line per direction, state of the cache and answer."""
    table = pd.read_parquet(Path(sys.argv[1]) if len(sys.argv) > 1 else SHIPPED)
    line_bytes = LINE_BYTES["gpu" if table["cuda_version"].notna().any() else "cpu"]
    rows = lookup_rows(table)
    rows = rows[rows["launch_included"] == rows["launch_included"].min()].reset_index(drop=True)
    result = pd.concat([held_out(part.reset_index(drop=True), way, line_bytes) for way in WAYS
                       if len(part := rows[rows["way"] == way])], ignore_index=True)  # fmt: skip
    printed = Table("direction", "cache", "answer", "rows", "mean %", "median %", "p90 %", "max %", "bias %", "noise %")
    for way in (*WAYS, "all"):
        for cache in ("warm", "flushed"):
            part = result[(result["warm"] == (cache == "warm")) & ((result["way"] == way) | (way == "all"))]
            for answer in (MODEL, BYTES, NEAREST):
                errors = summarize(part[answer].to_numpy(float), part["latency_us"].to_numpy(float))
                shown = (errors.mean_ape, errors.median_ape, errors.p90_ape, errors.max_ape, errors.bias)
                printed.add_row(way, cache, answer, str(errors.num_nodes), *(f"{100 * x:.1f}" for x in shown),
                                f"{100 * part['noise_share'].median():.0f}")  # fmt: skip
    Console(width=130).print(printed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
