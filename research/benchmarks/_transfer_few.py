"""A few rows of a new GPU, for each kind of single op in float32: curves of error against rows.

Zero-shot is the closed forms', whose constants no row of the chip had a part in: networks add nothing to them on these
ops (`research.benchmarks.transfer ops`). What rows change is chosen among themselves (research.pretraining.few_rows).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from gnnperf.gnn.data.vocabulary import Vocabulary
from research.benchmarks._transfer_tables import Judged, line, mean_error, same_gpu_trees_us
from research.pretraining.encode import encode, words_of
from research.pretraining.few_rows import Requested, choose_rows, learn_from
from research.pretraining.forms import FormConstants
from research.pretraining.observation import Observation, fit_observation
from research.pretraining.retained_forms import retained_forms

SEEDS = (0, 1, 2)  # of the choice of rows, and of the groups that are left out among them
POOL_ROWS = 1000  # of a chip and kind: what can be measured


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
    requested, pool = forms.requested(one.rows), forms.requested(one.pool.iloc[:POOL_ROWS])
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
