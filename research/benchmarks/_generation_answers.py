"""Closed forms on rows of op tables whose generation no constant was fitted on, for `research.benchmarks.generations`.

Every generation is left out once (it is judged), and every pair of generations (bounds for one of them come from the
other). Fitted constants are kept by fold, so that a run that was killed goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.gnn.intervals.devices import group_names
from research.benchmarks._public_runs import mirror
from research.fitting.forms import base_us, retained_forms
from research.fitting.observation import fit_observation
from research.fitting.rows import GENERATION, sampled, usable
from research.tables import read_aiconfigurator, read_neusight

GEMM, OPS = "bfloat16 products", "single ops in float32"
TRAIN_ROWS, OTHER_ROWS, JUDGED_ROWS = {GEMM: 1000, OPS: 300}, 200, 600  # of each device and kind
KINDS = {"gemm": "product", "linear": "linear", "bmm": "bmm", "conv": "convolution", "softmax": "softmax",
         "ln": "layer norm", "add": "elementwise", "gelu": "elementwise"}  # fmt: skip
KIND, LEFT, GROUP = "kind", "left", "group"


@dataclass(frozen=True)
class Fold:
    """Generations that are left out, and rows."""

    left: tuple[str, ...]
    train: pd.DataFrame
    requested: pd.DataFrame


FAMILIES = {"product": "gemm", "linear": "gemm", "bmm": "gemm", "convolution": "conv", "softmax": "softmax",
            "layer norm": "norm", "elementwise": "elementwise"}  # fmt: skip
DTYPES = {GEMM: "bfloat16", OPS: "float32"}


@cache
def tables() -> Mapping[str, pd.DataFrame]:
    """Rows with a kind, by campaign."""
    read = {GEMM: usable(read_aiconfigurator(mirror())).rows, OPS: usable(read_neusight(mirror())).rows}
    return {name: rows.assign(**{KIND: rows["table"].map(KINDS)}).dropna(subset=[KIND]) for name, rows in read.items()}


def folds(rows: pd.DataFrame, train_rows: int) -> Iterator[Fold]:
    """Every generation, and every pair of them, left out; so many rows of each device and kind train."""
    every = sorted(rows[GENERATION].unique())
    for left in [*((one,) for one in every), *combinations(every, 2)]:
        out = rows[GENERATION].isin(left)
        others, judged = rows[~out].reset_index(drop=True), rows[out].reset_index(drop=True)
        known = others.iloc[sampled(others, train_rows + OTHER_ROWS, ["device", KIND], seed=0)]
        apart = np.random.default_rng(0).random(len(known)) < OTHER_ROWS / (train_rows + OTHER_ROWS)  # [n]
        some = judged.iloc[sampled(judged, JUDGED_ROWS, ["device", KIND], seed=1)]
        yield Fold(left, known[~apart].reset_index(drop=True), pd.concat([some, known[apart]], ignore_index=True))


def answers(campaign: str, keep: Path) -> pd.DataFrame:
    """All folds' answers.

    Returns:
        Columns left (tuple), device, generation, kind, family, dtype, group (of both), seen (bool, whether the
        generation was fitted on), measured, analytic (us, as the method reads them).
    """
    every = folds(tables()[campaign], TRAIN_ROWS[campaign])
    result = [
        _predicted(fold, keep).assign(**{LEFT: pd.Series([fold.left] * len(fold.requested), dtype=object)})
        for fold in every
    ]
    given = pd.concat(result, ignore_index=True)
    family = np.array([FAMILIES[kind] for kind in given[KIND]], dtype=object)
    dtype = np.full(len(given), DTYPES[campaign], dtype=object)
    return given.assign(**{"family": family, "dtype": dtype, GROUP: group_names(family, dtype)})


def _predicted(fold: Fold, keep: Path) -> pd.DataFrame:
    constants, rows = retained_forms(fold.train, keep), fold.requested
    read_us = fit_observation(fold.train, constants).of(rows).read_us(base_us(rows, constants))
    return pd.DataFrame({
        "device": rows["device"].astype(str), GENERATION: rows[GENERATION].astype(str), KIND: rows[KIND].astype(str),
        "seen": ~rows[GENERATION].isin(fold.left).to_numpy(), "measured": rows["latency_us"].to_numpy(float),
        "analytic": read_us,
    })  # fmt: skip
