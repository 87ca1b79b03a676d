"""Prices of embedding lookups from an op table that `gnnperf calibrate` wrote.

Sizes of caches are fitted as well, on a grid: a virtual machine's share of its socket's cache is written nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.analytic.embedding.model import (
    LINE_BYTES,
    TERMS,
    Caches,
    LookupCoefficients,
    Lookups,
    lookup_counts,
    lookup_us,
)
from gnnperf.analytic.least_squares import fit_logs, softened
from gnnperf.core import InputError

OP = "aten::embedding_bag"
FORWARD, BACKWARD, SPARSE_BACKWARD = "forward", "backward", "sparse backward"
WAYS = (FORWARD, BACKWARD, SPARSE_BACKWARD)
MIB = 2.0**20
NEAR_BYTES = tuple(MIB * size for size in (0.25, 1.0, 4.0))
LAST_BYTES = tuple(MIB * size for size in (4.0, 8.0, 16.0, 32.0, 64.0))
START = LookupCoefficients(
    call=5.0, cold=50.0, row=5e-3, element=2e-4, bag=5e-3, near_line=2e-3, last_row=2e-2, last_line=5e-3, page=1e-2,
    sort=5e-3, result_byte=5e-5, gradient_byte=5e-5, far_byte=1e-4, fresh_page=0.5,
)  # fmt: skip
SMALLEST_COUNT = 1e-9  # a term that no row has keeps its starting price
DISTURBED = 0.1  # log residuals beyond that count linearly


@dataclass(frozen=True)
class LookupModel:
    """Fitted prices and caches of one way (a value of WAYS)."""

    caches: Caches
    coefficients: LookupCoefficients
    dense_backward: bool

    def predict_us(self, calls: Lookups) -> np.ndarray:
        """[k]."""
        return lookup_us(calls, self.caches, self.coefficients, self.dense_backward)


def lookup_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of embedding bags with sizes as numbers: way, rows, dim, lookups, bags, skew, tables, warm, launch_included.

    And latency_us with noise_share, half the width of its interval relative to it.
    """
    result = table[table["op"] == OP]
    if result.empty:
        raise InputError(f"has no rows of {OP}", where="op table", remedy="write one with `gnnperf calibrate`")
    shapes = [json.loads(text) for text in result["shapes"]]
    sparse = np.array([bool(json.loads(text).get("sparse")) for text in result["arguments"]])
    noise = (result["latency_high_us"] - result["latency_low_us"]) / 2 / result["latency_us"]
    backward = (result["direction"] == BACKWARD).to_numpy()
    return pd.DataFrame({
        "way": np.where(backward, np.where(sparse, SPARSE_BACKWARD, BACKWARD), FORWARD),
        "rows": [float(s[0][0]) for s in shapes], "dim": [float(s[0][1]) for s in shapes],
        "lookups": [float(s[1][0]) for s in shapes], "bags": [float(s[2][0]) for s in shapes],
        "skew": result["skew"].to_numpy(float), "tables": result["tables"].to_numpy(float),
        "warm": (result["cache"] == "warm").to_numpy(), "launch_included": result["launch_included"].to_numpy(bool),
        "latency_us": result["latency_us"].to_numpy(float), "noise_share": noise.to_numpy(float),
    })  # fmt: skip


def calls_of(rows: pd.DataFrame) -> Lookups:
    """The calls of rows that `lookup_rows` made."""
    sizes = {name: rows[name].to_numpy(float) for name in ("rows", "dim", "lookups", "bags", "skew", "tables")}
    return Lookups(**sizes, warm=rows["warm"].to_numpy(bool))  # type: ignore[arg-type]  # item_bytes is not among them


def fit_lookups(rows: pd.DataFrame, way: str, line_bytes: int = LINE_BYTES["cpu"]) -> LookupModel:
    """The model of one way that fits its rows best, over all pairs of cache sizes."""
    calls, measured = calls_of(rows), np.log(rows["latency_us"].to_numpy(float))
    best: LookupModel | None = None
    least = np.inf
    for near in NEAR_BYTES:
        for last in LAST_BYTES:
            caches = Caches(near, last, line_bytes)
            coefficients, error = _fit_coefficients(lookup_counts(calls, caches, way == BACKWARD), measured)
            if error < least:
                best, least = LookupModel(caches, coefficients, way == BACKWARD), error
    assert best is not None  # the grid is not empty
    return best


def _fit_coefficients(
    counts: Mapping[str, np.ndarray], measured_log_us: np.ndarray
) -> tuple[LookupCoefficients, float]:
    """(prices, mean absolute residual in logs)."""
    matrix = np.stack([counts[term] for term in TERMS], axis=1)  # [n, terms]
    start = np.array([getattr(START, term) for term in TERMS])

    def residuals(coefficients: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(matrix @ coefficients, SMALLEST_COUNT)) - measured_log_us

    result = fit_logs(lambda coefficients: softened(residuals(coefficients), DISTURBED), start)
    return LookupCoefficients(*map(float, result)), float(np.abs(residuals(result)).mean())
