"""Op tables of other GPUs answer for a GPU that training never saw; then with a few of its own rows.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks.transfer [gemm] [ops] [few]

gemm: bfloat16 products (aiconfigurator), one generation left out. ops: NeuSight's single ops, one chip left out. Closed
forms, waits, words, scales and network are all fitted without what is left out. What the network sees, and which share
of its corrections is kept, is chosen by leaving one more generation out of the training rows (gemm; ops take the choice
that gemm made for all its generations, so that no row of theirs has a part in it). With rows: 16, 64, 256 of the new
GPU, chosen by k-means; what they change is chosen among themselves. few: the same of NeuSight's single ops.

where: closed forms of gemm by itself, by what bounds a product.

dtype, software: products on GPUs that trained, in a dtype that did not (float8 after bfloat16), and as measured with
another software (vidur's and estimate-train-time's after aiconfigurator's). One seed.

Next to it: the closed forms only; the same product on the nearest GPU times the ratio of peaks; and, from 2,000 other
rows of the same GPU, the most similar product times the ratio of FLOPs, and trees: what interpolation can reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.gnn.training.pretrain_config import PretrainConfig
from research.benchmarks._frame import run_main
from research.benchmarks._public_runs import mirror
from research.benchmarks._transfer import (
    Judged,
    judged,
    line,
    mean_error,
    nearest_op_us,
    nearest_us,
    neighbor_us,
    same_gpu_trees_us,
)
from research.benchmarks._transfer import few as print_few
from research.pretraining.encode import EncodedRows
from research.pretraining.few_rows import Requested, choose_rows, learn_from
from research.pretraining.fit import VIEWS, OpModel, fit, prepare
from research.pretraining.forms import retained_forms
from research.pretraining.rows import CHIP, GENERATION, sampled, usable
from research.tables import OpTable, read_aiconfigurator, read_neusight

SEEDS = (0, 1, 2)
KEPT = Path("outputs/transfer")
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
FEW = (16, 64, 256)
INNER_ROWS, OPS_ROWS = 500, 400  # judged of each device; of each device and kind of op
OPS_TRAINING_ROWS = 150  # of each device and table
CONFIG = PretrainConfig()
Way = tuple[str, float]  # view, share
HEADER = "| GPU left out | answer | rows | mean | median | p90 | max | bias |\n|---|---|---|---|---|---|---|---|"


def main(requested: Iterable[str]) -> None:
    """Print the tables."""
    for name in requested or PARTS:
        PARTS[name]()


def gemm() -> None:
    """bfloat16 products, one generation left out."""
    rows, inner = _gemm_rows(), _gemm_inner()
    print("\nInner loop: mean error over pairs of generations left out (view, share of corrections kept)")
    for way in dict.fromkeys(way for result in inner.values() for way in result):
        print(f"  {way[0]}, {way[1]:g}: {np.mean([result[way] for result in inner.values()]):.2%}")
    print(f"\nbfloat16 products, one generation left out; seeds {SEEDS}\n\n{HEADER}")
    for generation in sorted(rows[GENERATION].unique()):
        way = best_way([result for (left, _), result in inner.items() if left == generation])
        print(f"| {generation}: chosen {way[0]}, {way[1]:g} |")
        others = rows[rows[GENERATION] != generation].reset_index(drop=True)
        models = trained(others, way)
        for one in judged(rows[rows[GENERATION] == generation]):
            _judge(one, models, others)


@cache
def _gemm_rows() -> pd.DataFrame:
    return _read(read_aiconfigurator(mirror()))


@cache
def _ops_rows() -> pd.DataFrame:
    return _read(read_neusight(mirror()))


@cache
def _gemm_inner() -> dict[tuple[str, str], dict[Way, float]]:
    return inner_errors(_gemm_rows())


def inner_errors(rows: pd.DataFrame) -> dict[tuple[str, str], dict[Way, float]]:
    """(left out, left out with it) -> way -> mean error on the second's devices, from what neither had a part in."""
    result: dict[tuple[str, str], dict[Way, float]] = {}
    for pair in combinations(sorted(rows[GENERATION].unique()), 2):
        others = rows[~rows[GENERATION].isin(pair)].reset_index(drop=True)
        prepared = prepare(others, retained_forms(others, KEPT), CONFIG)
        models = {view: fit(prepared, dropped, CONFIG, SEEDS[0]) for view, dropped in VIEWS.items()}
        for outer, inner in (pair, pair[::-1]):
            parts = judged(rows[rows[GENERATION] == inner], INNER_ROWS)
            errors = [_errors(models, part) for part in parts]
            result[outer, inner] = {way: float(np.mean([e[way] for e in errors])) for way in errors[0]}
    return result


def best_way(errors: Iterable[Mapping[Way, float]]) -> Way:
    """The least mean error; of equals the first."""
    every = list(errors)
    return min(every[0], key=lambda way: float(np.mean([result[way] for result in every])))


def trained(others: pd.DataFrame, way: Way) -> list[OpModel]:
    """One model per seed."""
    prepared = prepare(others, retained_forms(others, KEPT), CONFIG)
    return [fit(prepared, VIEWS[way[0]], CONFIG, seed).with_share(way[1]) for seed in SEEDS]


def ops() -> None:
    """NeuSight's single ops, one chip left out."""
    rows = _ops_rows()
    way = best_way(_gemm_inner().values())
    print(f"\nsingle ops in float32, one chip left out; seeds {SEEDS}; {way[0]}, {way[1]:g}\n\n{HEADER}")
    for chip in sorted(rows[CHIP].unique()):
        others = rows[rows[CHIP] != chip].reset_index(drop=True)
        models = trained(_some(others), way)
        for op, one in _judged_ops(rows[rows[CHIP] == chip]):
            _judge_op(one, op, models, others)


def few() -> None:
    """NeuSight's single ops, one chip left out, then a few of its rows."""
    rows = _ops_rows()
    chips = {}
    for chip in sorted(rows[CHIP].unique()):
        others = rows[rows[CHIP] != chip].reset_index(drop=True)
        chips[chip] = _some(others), rows[rows[CHIP] == chip]
    print(f"\nsingle ops in float32, one chip left out, with a few of its rows\n\n{HEADER}")
    print_few(chips, KEPT, _judged_ops, FEW)


def _some(others: pd.DataFrame) -> pd.DataFrame:
    places = sampled(others, OPS_TRAINING_ROWS, ["device", "table"], seed=0)
    return others.iloc[places].reset_index(drop=True)


def _judged_ops(own: pd.DataFrame) -> list[tuple[str, Judged]]:
    """Kinds of op, and what is judged of each."""
    return [(str(op), one) for op, part in own.groupby(_kinds(own)) for one in judged(part, OPS_ROWS)]


def _judge_op(one: Judged, op: str, models: list[OpModel], others: pd.DataFrame) -> None:
    """Every answer for the ops of one kind on one device."""
    truth, encoded, pool = one.rows["latency_us"].to_numpy(), models[0].encode(one.rows), models[0].encode(one.pool)
    tables = one.rows.groupby("table").indices.values()
    nearest = np.full(len(truth), np.nan)
    for places in tables:
        nearest[places] = nearest_op_us(replace(one, rows=one.rows.iloc[places]), others)
    line(f"{one.device}, {op}", {
        "nearest GPU x peak": nearest,
        "closed forms": np.exp(models[0].with_share(0.0).log_us(encoded)),
        **{f"network, seed {seed}": np.exp(m.log_us(encoded)) for seed, m in zip(SEEDS, models, strict=True)},
        "same GPU, trees": same_gpu_trees_us(encoded, pool),
    }, truth)  # fmt: skip


def _judge(one: Judged, models: list[OpModel], others: pd.DataFrame) -> None:
    """Every answer for one device."""
    truth, encoded, pool = one.rows["latency_us"].to_numpy(), models[0].encode(one.rows), models[0].encode(one.pool)
    line(one.device, {
        "nearest GPU x peak": nearest_us(one, others),
        "closed forms": np.exp(models[0].with_share(0.0).log_us(encoded)),
        **{f"network, seed {seed}": np.exp(m.log_us(encoded)) for seed, m in zip(SEEDS, models, strict=True)},
    }, truth)  # fmt: skip
    for count in FEW:
        line(one.device, {f"{count} rows, seed {seed}": _with_rows(model, one, encoded, pool, count, seed)
                          for seed, model in zip(SEEDS, models, strict=True)}, truth)  # fmt: skip
    line(one.device, {"same GPU, similar product": neighbor_us(one),
                      "same GPU, trees": same_gpu_trees_us(encoded, pool)}, truth)  # fmt: skip


def _with_rows(model: OpModel, one: Judged, rows: EncodedRows, pool: EncodedRows, count: int, seed: int) -> np.ndarray:
    """[n] us after `count` rows of the pool were measured."""
    measured = Requested(one.pool, pool, model.residual(pool)).part(choose_rows(pool, count, seed))
    result = learn_from(measured, pool, model.prepared.constants, seed)
    return np.asarray(np.exp(result.log_us(Requested(one.rows, rows, model.residual(rows)))))


def _errors(models: Mapping[str, OpModel], part: Judged) -> dict[Way, float]:
    """Way -> mean error on one device; all of these models stand on the same base."""
    encoded, truth = next(iter(models.values())).encode(part.rows), part.rows["latency_us"].to_numpy()
    residual = {view: model.residual(encoded) for view, model in models.items()}
    return {
        (view, share): mean_error(np.exp(encoded.log_us(share * residual[view]).numpy()), truth)
        for view in models for share in SHARES
    }  # fmt: skip


def _kinds(rows: pd.DataFrame) -> pd.Series:
    names = {"bmm": "bmm", "linear": "linear", "conv": "convolution", "softmax": "softmax", "ln": "layer norm"}
    return rows["table"].map(names).fillna("elementwise").rename("op")


def _read(table: OpTable) -> pd.DataFrame:
    result = usable(table)
    for reason, count in result.dropped.items():
        print(f"left out: {reason}: {count}")
    return result.rows


PARTS: Mapping[str, Callable[[], None]] = {"gemm": gemm, "ops": ops, "few": few}


if __name__ == "__main__":
    run_main(main)
