"""A few rows of a new GPU, for each kind of single op in float32: curves of error against rows.

Zero-shot is the closed forms', whose constants no row of the chip had a part in: networks add nothing to them on these
ops (`research.benchmarks.transfer ops`). What rows change is chosen among themselves (research.pretraining.few_rows).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd
import torch

from gnnperf.gnn import summarize
from gnnperf.gnn.data.vocabulary import Vocabulary
from research.baselines.trees import FIXED
from research.benchmarks._op_tables import scaled_nearest_us, scaled_neighbor_us
from research.pretraining.encode import EncodedRows, encode, words_of
from research.pretraining.few_rows import Requested, choose_rows, learn_from
from research.pretraining.forms import CONVOLUTION, PRODUCT, FormConstants, form_names, retained_forms
from research.pretraining.observation import Observation, fit_observation
from research.pretraining.rows import sampled, spec_of

JUDGED_ROWS, POOL_ROWS = 1500, 2000  # of each device
TREES, LEAVES = 300, 31
CALL = ["table", "shapes"]


@dataclass(frozen=True)
class Judged:
    """One device of a fold."""

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


SEEDS = (0, 1, 2)  # of the choice of rows, and of the groups that are left out among them
FEW_POOL_ROWS = 1000  # of a chip and kind: what can be measured


@dataclass(frozen=True)
class Forms:
    """What answers before a row is measured: closed forms and waits of other chips."""

    vocabulary: Vocabulary
    constants: FormConstants
    observation: Observation

    def requested(self, rows: pd.DataFrame) -> Requested:
        """Rows of research.pretraining.rows.usable, without a network."""
        nothing = torch.zeros(len(rows), dtype=torch.float64)
        return Requested(rows, encode(rows, self.vocabulary, self.constants, self.observation), nothing)


def forms_of(others: pd.DataFrame, retained: Path) -> Forms:
    """Fitted on rows of other chips."""
    constants = retained_forms(others, retained)
    words = words_of(others.drop_duplicates(["source", "op", "dtype"]))  # no network reads them
    return Forms(words, constants, fit_observation(others, constants))


def with_rows(requested: Requested, pool: Requested, forms: Forms, count: int, seed: int) -> np.ndarray:
    """[n] us after `count` rows of the pool were measured."""
    few = pool.part(choose_rows(pool.encoded, count, seed))
    return np.asarray(np.exp(learn_from(few, pool.encoded, forms.constants, seed).log_us(requested)))


def judge(one: Judged, op: str, forms: Forms, counts: Sequence[int]) -> dict[str, list[float]]:
    """Print every answer for one kind of op on one chip; answer -> mean errors of its seeds."""
    truth = one.rows["latency_us"].to_numpy(float)
    requested, pool = forms.requested(one.rows), forms.requested(one.pool.iloc[:FEW_POOL_ROWS])
    given = {"0 rows": [np.exp(requested.log_us())]}
    given |= {f"{count} rows": [with_rows(requested, pool, forms, count, seed) for seed in SEEDS] for count in counts}
    given["same GPU, trees"] = [same_gpu_trees_us(requested.encoded, pool.encoded)]
    for name, answers in given.items():
        for seed, us in enumerate(answers):
            line(f"{one.device}, {op}", {name if len(answers) == 1 else f"{name}, seed {seed}": us}, truth)
    return {name: [mean_error(us, truth) for us in answers] for name, answers in given.items()}


def print_curves(result: Mapping[tuple[str, str], Mapping[str, list[float]]]) -> None:
    """(chip, kind) -> errors: means over chips, the worst chip, and lines that rows made worse than no rows."""
    print("\n| op | " + " | ".join(names := list(next(iter(result.values())))) + " | worse than 0 rows |")
    print("|---|" + "---|" * (len(names) + 1))
    for op in dict.fromkeys(kind for _, kind in result):
        own = [errors for (_, kind), errors in result.items() if kind == op]
        records = [
            f"{np.mean([np.mean(e[n]) for e in own]):.1%} ({max(np.mean(e[n]) for e in own):.1%})" for n in names
        ]
        trials = [(error, e["0 rows"][0]) for e in own for n in names if n[0] in "123456789" for error in e[n]]
        worse = sum(error > zero for error, zero in trials)
        print(f"| {op} | {' | '.join(records)} | {worse} of {len(trials)} |", flush=True)


def few(
    chips: Mapping[str, tuple[pd.DataFrame, pd.DataFrame]],
    retained: Path,
    parts: Callable[[pd.DataFrame], list[tuple[str, Judged]]],
    counts: Sequence[int],
) -> None:
    """Print all lines, then the curves."""
    result: dict[tuple[str, str], dict[str, list[float]]] = {}
    for others, own in chips.values():
        forms = forms_of(others, retained)
        for op, one in parts(own):
            result[one.device, op] = judge(one, op, forms, counts)
    print_curves(result)
