"""The fit of embedding bags."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from gnnperf.analytic.embedding.model import Caches, Lookups, lookup_us
from gnnperf.core.errors import InputError
from research.fitting.embedding import BACKWARD, FORWARD, START, calls_of, fit_lookups, lookup_rows


def made_table() -> pd.DataFrame:
    """An op table as the model says it is, with some prices of its own."""
    rng = np.random.default_rng(0)
    chosen = [np.array(axis)[rng.integers(0, len(axis), 150)] for axis in
              ([1000, 50_000, 10**6], [8, 64], [128, 2048, 16384], [128], [1.0, 2.0, 4.0], [1, 4])]  # fmt: skip
    r, d, n, b, s, t = (axis.astype(float) for axis in chosen)
    calls = Lookups(r, d, n, b, s, t, warm=rng.random(150) < 0.5)
    us = lookup_us(calls, Caches(2.0**20, 2.0**24), replace(START, call=12.0, last_row=0.1))
    shapes = [json.dumps([[int(i), int(j)], [int(k)], [int(m)]]) for i, j, k, m in zip(r, d, n, b, strict=True)]
    return pd.DataFrame({
        "op": "aten::embedding_bag", "shapes": shapes, "arguments": json.dumps({"sparse": False}), "direction": FORWARD,
        "skew": calls.skew, "tables": calls.tables, "cache": np.where(calls.warm, "warm", "flushed"),
        "launch_included": True, "latency_us": us, "latency_low_us": us, "latency_high_us": us,
    })  # fmt: skip


def test_the_fit_finds_coefficients_and_caches() -> None:
    rows = lookup_rows(made_table())
    fitted = fit_lookups(rows, FORWARD)
    assert (fitted.caches.near_bytes, fitted.caches.last_bytes) == (2.0**20, 2.0**24)
    assert fitted.coefficients.call == pytest.approx(12.0, rel=0.05)
    assert fitted.predict_us(calls_of(rows)) == pytest.approx(rows["latency_us"].to_numpy(), rel=0.05)


def test_ways_are_reported_apart_and_a_table_without_bags_is_refused() -> None:
    table = made_table().head(2).assign(direction=["forward", "backward"])
    assert lookup_rows(table)["way"].tolist() == [FORWARD, BACKWARD]
    with pytest.raises(InputError, match="embedding_bag"):
        lookup_rows(table.assign(op="aten::mm"))
