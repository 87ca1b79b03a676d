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
from research.pretraining.few_rows import Asked, choose_rows, learn_from
from research.pretraining.forms import FormConstants
from research.pretraining.kept_forms import kept_forms
from research.pretraining.observation import Observation, fit_observation

SEEDS = (0, 1, 2)  # of the choice of rows, and of the groups that are left out among them
POOL_ROWS = 1000  # of a chip and kind: what can be measured


@dataclass(frozen=True)
class Forms:
    """What answers before a row is measured: closed forms and waits of other chips."""

    vocabulary: Vocabulary
    constants: FormConstants
    observation: Observation

    def asked(self, rows: pd.DataFrame) -> Asked:
        """Rows of research.pretraining.rows.usable, without a network."""
        nothing = torch.zeros(len(rows), dtype=torch.float64)
        return Asked(rows, encode(rows, self.vocabulary, self.constants, self.observation), nothing)


def forms_of(others: pd.DataFrame, kept: Path) -> Forms:
    """Fitted on rows of other chips."""
    constants = kept_forms(others, kept)
    words = words_of(others.drop_duplicates(["source", "op", "dtype"]))  # no network reads them
    return Forms(words, constants, fit_observation(others, constants))


def with_rows(asked: Asked, pool: Asked, forms: Forms, count: int, seed: int) -> np.ndarray:
    """[n] us after `count` rows of the pool were measured."""
    few = pool.part(choose_rows(pool.encoded, count, seed))
    return np.asarray(np.exp(learn_from(few, pool.encoded, forms.constants, seed).log_us(asked)))


def judge(one: Judged, op: str, forms: Forms, counts: Sequence[int]) -> dict[str, list[float]]:
    """Print every answer for one kind of op on one chip; answer -> mean errors of its seeds."""
    truth = one.rows["latency_us"].to_numpy(float)
    asked, pool = forms.asked(one.rows), forms.asked(one.pool.iloc[:POOL_ROWS])
    told = {"0 rows": [np.exp(asked.log_us())]}
    told |= {f"{count} rows": [with_rows(asked, pool, forms, count, seed) for seed in SEEDS] for count in counts}
    told["same GPU, trees"] = [same_gpu_trees_us(asked.encoded, pool.encoded)]
    for name, answers in told.items():
        for seed, us in enumerate(answers):
            line(f"{one.device}, {op}", {name if len(answers) == 1 else f"{name}, seed {seed}": us}, truth)
    return {name: [mean_error(us, truth) for us in answers] for name, answers in told.items()}


def print_curves(found: Mapping[tuple[str, str], Mapping[str, list[float]]]) -> None:
    """(chip, kind) -> errors: means over chips, the worst chip, and lines that rows made worse than no rows."""
    print("\n| op | " + " | ".join(names := list(next(iter(found.values())))) + " | worse than 0 rows |")
    print("|---|" + "---|" * (len(names) + 1))
    for op in dict.fromkeys(kind for _, kind in found):
        own = [errors for (_, kind), errors in found.items() if kind == op]
        cells = [f"{np.mean([np.mean(e[n]) for e in own]):.1%} ({max(np.mean(e[n]) for e in own):.1%})" for n in names]
        trials = [(error, e["0 rows"][0]) for e in own for n in names if n[0] in "123456789" for error in e[n]]
        worse = sum(error > zero for error, zero in trials)
        print(f"| {op} | {' | '.join(cells)} | {worse} of {len(trials)} |", flush=True)


def few(
    chips: Mapping[str, tuple[pd.DataFrame, pd.DataFrame]],
    kept: Path,
    parts: Callable[[pd.DataFrame], list[tuple[str, Judged]]],
    counts: Sequence[int],
) -> None:
    """Print all lines, then the curves.

    Args:
        chips: chip -> rows of the others that are fitted on, and its own.
        kept: where fitted constants are kept.
        parts: rows of a chip -> kinds of op and what is judged of each.
        counts: of rows that are measured.
    """
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for others, own in chips.values():
        forms = forms_of(others, kept)
        for op, one in parts(own):
            found[one.device, op] = judge(one, op, forms, counts)
    print_curves(found)
