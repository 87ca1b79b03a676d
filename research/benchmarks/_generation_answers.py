"""Rows of op tables given by networks that saw nothing of their generation, for `research.benchmarks.generations`.

Every generation is left out once (it is judged), and every pair of generations (what is chosen for one of them is
chosen on the other). Answers are kept by fold, so that a run that was killed goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import gnnperf
from gnnperf.gnn.intervals.devices import group_names
from gnnperf.gnn.training.pretrain_config import PretrainConfig
from research.benchmarks._public_runs import mirror
from research.pretraining.fit import BY_SIZE, VIEWS, fit, prepare
from research.pretraining.forms import retained_forms
from research.pretraining.rows import GENERATION, sampled, usable
from research.tables import read_aiconfigurator, read_neusight

CONFIG = PretrainConfig()
SEEDS = (0, 1, 2)
GEMM, OPS = "bfloat16 products", "single ops in float32"
TRAIN_ROWS, OTHER_ROWS, JUDGED_ROWS = {GEMM: 1000, OPS: 300}, 200, 600  # of each device and kind
KINDS = {"gemm": "product", "linear": "linear", "bmm": "bmm", "conv": "convolution", "softmax": "softmax",
         "ln": "layer norm", "add": "elementwise", "gelu": "elementwise"}  # fmt: skip
KIND, LEFT, GROUP = "kind", "left", "group"
CODE = ("core/schema/*", "hardware/*", "analytic/**/*", "graph/cost/*", "graph/tables", "gnn/data/*",
        "gnn/models/*")  # fmt: skip
SOURCES = (
    *(f"gnnperf/{part}.py" for part in CODE),
    *(f"research/{part}/*.py" for part in ("pretraining", "fitting", "tables")),
)


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
        generation trained), measured, analytic, gnn (us, as the method reads them; gnn: geometric mean over networks
        of SEEDS).
    """
    every = folds(tables()[campaign], TRAIN_ROWS[campaign])
    result = [
        _retained(fold, keep).assign(**{LEFT: pd.Series([fold.left] * len(fold.requested), dtype=object)})
        for fold in every
    ]
    given = pd.concat(result, ignore_index=True)
    family = np.array([FAMILIES[kind] for kind in given[KIND]], dtype=object)
    dtype = np.full(len(given), DTYPES[campaign], dtype=object)
    return given.assign(**{"family": family, "dtype": dtype, GROUP: group_names(family, dtype)})


def _retained(fold: Fold, keep: Path) -> pd.DataFrame:
    sums = [(len(part), float(part["latency_us"].sum())) for part in (fold.train, fold.requested)]
    key = hashlib.sha256(repr((_code(), fold.left, sums, CONFIG, SEEDS)).encode()).hexdigest()
    path = keep / f"answers-{key[:16]}.parquet"
    if not path.is_file():
        _predicted(fold, keep).to_parquet(path)
    return pd.read_parquet(path)


@cache
def _code() -> str:
    """Hash of what such answers depend on."""
    checkout = Path(gnnperf.__file__).parents[1]
    digest = hashlib.sha256(torch.__version__.encode())
    for source in sorted(path for part in SOURCES for path in checkout.glob(part)):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _predicted(fold: Fold, keep: Path) -> pd.DataFrame:
    prepared = prepare(fold.train, retained_forms(fold.train, keep), CONFIG)
    models = [fit(prepared, VIEWS[BY_SIZE], CONFIG, seed) for seed in SEEDS]
    requested, seen = models[0].encode(fold.requested), ~fold.requested[GENERATION].isin(fold.left).to_numpy()
    return pd.DataFrame({
        "device": fold.requested["device"].astype(str), GENERATION: fold.requested[GENERATION].astype(str),
        KIND: fold.requested[KIND].astype(str), "seen": seen, "measured": fold.requested["latency_us"].to_numpy(float),
        "analytic": np.exp(models[0].with_share(0.0).log_us(requested)),
        "gnn": np.exp(np.mean([model.log_us(requested) for model in models], axis=0)),
    })  # fmt: skip
