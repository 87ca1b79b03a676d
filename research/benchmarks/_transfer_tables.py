"""Rows that `research.benchmarks.transfer` trains on and judges, and the trivial answers next to the network's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import lightgbm
import numpy as np
import pandas as pd

from gnnperf.gnn import summarize
from research.baselines.trees import FIXED
from research.benchmarks._products import scaled_nearest_us, scaled_neighbor_us
from research.pretraining.encode import EncodedRows
from research.pretraining.forms import CONVOLUTION, PRODUCT, form_names
from research.pretraining.rows import sampled, spec_of

JUDGED_ROWS, POOL_ROWS = 1500, 2000  # of each device
TREES, LEAVES = 300, 31
CALL = ["table", "shapes"]


@dataclass(frozen=True)
class Judged:
    """One device of a fold.

    Attributes:
        device: its name.
        rows: those that are judged.
        pool: other rows of the same device: few of them may be measured, floors see all.
    """

    device: str
    rows: pd.DataFrame
    pool: pd.DataFrame


def judged(rows: pd.DataFrame, judged_rows: int = JUDGED_ROWS) -> list[Judged]:
    """Devices of these rows, a fixed sample of each to judge and another one as its pool."""
    result = []
    for device, part in rows.groupby("device"):
        places = sampled(part, judged_rows + POOL_ROWS, ["device"], seed=1)
        mixed = np.random.default_rng(1).permutation(places)
        test, rest = (part.iloc[np.sort(p)].reset_index(drop=True) for p in (mixed[:judged_rows], mixed[judged_rows:]))
        result.append(Judged(str(device), test, rest))
    return result


def nearest_us(one: Judged, others: pd.DataFrame) -> np.ndarray:
    """[n] the same product on the nearest GPU of the training rows, times the ratio of peaks; NaN: not measured."""
    result, _ = scaled_nearest_us(one.rows, spec_of(one.device), others)
    return result


def nearest_op_us(one: Judged, others: pd.DataFrame) -> np.ndarray:
    """[n] the same call on the nearest GPU, times the ratio of peaks: FLOP/s of products, bandwidth of all else.

    Nearest: smallest distance of log peak, bandwidth and SMs; NaN: not measured there.
    """
    here = _numbers(one.device)
    away = {str(name): float(np.linalg.norm(np.log(_numbers(str(name)) / here))) for name in others["device"].unique()}
    table = str(one.rows["table"].iloc[0])
    having = [name for name in away if ((others["device"] == name) & (others["table"] == table)).any()]
    nearest = min(having, key=away.__getitem__)
    there = others[others["device"] == nearest].drop_duplicates(CALL).set_index(CALL)["latency_us"]
    latency = there.reindex(pd.MultiIndex.from_frame(one.rows[CALL])).to_numpy(float)
    by_flops = np.isin(form_names(one.rows), (PRODUCT, CONVOLUTION))  # [n]
    ratio = _numbers(nearest) / here
    return latency * np.where(by_flops, ratio[0], ratio[1])


def _numbers(device: str) -> np.ndarray:
    """Peak FLOP/s in float32 without matrix units, bandwidth, SMs."""
    result = spec_of(device)
    return np.array([result.flops_per_s["float32"], result.memory_bandwidth_bytes_per_s, result.num_sms])


def neighbor_us(one: Judged) -> np.ndarray:
    """[n] the most similar product in the pool of the same GPU, times the ratio of FLOPs."""
    return scaled_neighbor_us(one.rows, one.pool)


def same_gpu_trees_us(judged_rows: EncodedRows, pool: EncodedRows) -> np.ndarray:
    """[n] trees on the pool of the same GPU: log(label / base) from all features."""
    residual = (pool.log_label - pool.base_us.log()).numpy()
    settings = {**FIXED, "num_leaves": LEAVES, "learning_rate": 0.05, "seed": 0}
    booster = lightgbm.train(settings, lightgbm.Dataset(pool.x.numpy(), residual, params=dict(FIXED)), TREES)
    answer = booster.predict(judged_rows.x.numpy(), num_threads=1)
    return np.asarray(judged_rows.base_us.numpy() * np.exp(answer))


def line(label: str, answers: Mapping[str, np.ndarray], measured_us: np.ndarray) -> None:
    """One printed line per answer: mean, median, p90, maximum of the error, signed bias, in percent."""
    for name, result in answers.items():
        e = summarize(result, measured_us)
        shares = (e.mean_ape, e.median_ape, e.p90_ape, e.max_ape)
        print(f"| {label} | {name} | {e.num_nodes} | {' | '.join(f'{s:.1%}' for s in shares)} | {e.bias:+.1%} |",
              flush=True)  # fmt: skip


def mean_error(result_us: np.ndarray, measured_us: np.ndarray) -> float:
    """Mean absolute percentage error of what was answered."""
    return summarize(result_us, measured_us).mean_ape
