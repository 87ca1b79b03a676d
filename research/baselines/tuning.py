"""Settings of learned rows, found by FLAML with the same number of trials for every row.

The search sees training and validation runs, never the test part. It draws from a seed of its own, so that all seeds of
a row train with the same settings, and runs once per data set and row: what it found is kept in a file.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gnnperf.core import InputError, require
from gnnperf.gnn.data.content import content_digest
from gnnperf.gnn.data.prepare import PreparedData
from research.baselines.judge import Answer

Settings = Mapping[str, float]
SEARCH_SEED = 0
INSTALL = "pip install --editable './research[baselines]'"


@dataclass(frozen=True)
class Fitted:
    """One fit.

    Attributes:
        answer: what it answers.
        val_error: on the validation runs; what the search makes small.
    """

    answer: Answer
    val_error: float


class Bench(Protocol):
    """Data made ready once, for many fits."""

    def fit(self, settings: Settings, seed: int) -> Fitted:
        """Train with these settings."""
        ...


@dataclass(frozen=True)
class Range:
    """One setting.

    Attributes:
        low, high: its bounds, both allowed.
        whole: whether it is a whole number.
    """

    low: float
    high: float
    whole: bool = False


class Tunable(Protocol):
    """A learner with settings."""

    @property
    def name(self) -> str:
        """Names the file that settings are kept in."""
        ...

    @property
    def start(self) -> Settings:
        """Where the search starts: the first trial."""
        ...

    @property
    def space(self) -> Mapping[str, Range]:
        """Every setting that is searched, on a logarithmic scale."""
        ...

    def bench(self, data: PreparedData) -> Bench:
        """Make the training and validation runs ready."""
        ...


@dataclass(frozen=True)
class Tuned:
    """A learner: searches settings once, then trains with them.

    Attributes:
        tunable: what is trained.
        trials: fits that the search may take; 1: the settings it starts from.
        store: folder where found settings are kept.
    """

    tunable: Tunable
    trials: int = 12
    store: Path = field(default=Path("outputs/tuning"), repr=False)

    def __post_init__(self) -> None:
        require(self.trials >= 1, "trials", self.trials, "a whole number >= 1")

    def fit(self, data: PreparedData, seed: int) -> Answer:
        """Train with the settings found for this data.

        Raises:
            InputError: FLAML or the learner's library is not installed, or no trial gave a finite error.
        """
        bench = self.tunable.bench(data)
        return bench.fit(self.settings(data, bench), seed).answer

    def settings(self, data: PreparedData, bench: Bench) -> Settings:
        """Those kept for this data and budget; else found, and kept."""
        if self.trials == 1:
            return self.tunable.start
        given = (self.trials, sorted(self.tunable.start.items()), sorted(self.tunable.space.items()))
        path = self.store / f"{self.tunable.name}_{content_digest(data.training_fingerprint, *given)}.json"
        if path.is_file():
            return _read(path)
        result = search(bench, self.tunable.space, self.tunable.start, self.trials, SEARCH_SEED)
        _write(path, result)
        return result


def search(bench: Bench, space: Mapping[str, Range], start: Settings, trials: int, seed: int) -> Settings:
    """The best of `trials` settings by validation error, `start` being the first (CFO: Wu, Wang and Huang 2021, AAAI).

    CFO walks in random directions from the best so far and takes longer or shorter steps. Every trial counts the same,
    whatever it takes: measured times would make the search depend on the machine.
    """
    tried: list[tuple[float, Settings]] = []

    def trial(drawn: dict[str, float]) -> dict[str, float]:
        settings = {k: int(v) if space[k].whole else float(v) for k, v in drawn.items()}
        error = bench.fit({**start, **settings}, seed).val_error
        tried.append((error, {**start, **settings}))
        return {"error": error if np.isfinite(error) else 1e9}

    _run_cfo(trial, space, {k: start[k] for k in space}, trials, seed)
    finite = [one for one in tried if np.isfinite(one[0])]
    if not finite:
        raise InputError(f"none of {trials} trials gave a finite error", where="tuning", remedy="check the labels")
    return min(finite, key=lambda one: one[0])[1]  # the first of equals


def _run_cfo(
    trial: Callable[[dict[str, float]], dict[str, float]],
    space: Mapping[str, Range],
    start: Settings,
    trials: int,
    seed: int,
) -> None:
    tune, cfo = _flaml()
    domains = {k: (tune.lograndint(int(r.low), int(r.high) + 1) if r.whole else tune.loguniform(r.low, r.high))
               for k, r in space.items()}  # fmt: skip
    walk = cfo(metric="error", mode="min", space=domains, points_to_evaluate=[dict(start)], num_samples=trials,
               seed=seed, cost_attr=None)  # fmt: skip
    state = np.random.get_state()  # noqa: NPY002, FLAML draws from numpy's global generator
    np.random.seed(seed)  # noqa: NPY002
    try:
        tune.run(trial, search_alg=walk, metric="error", mode="min", num_samples=trials, verbose=0)
    finally:
        np.random.set_state(state)  # noqa: NPY002


def _flaml() -> tuple[Any, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice to install what is not used here
            from flaml import CFO, tune
    except ImportError as error:
        raise InputError("flaml is not installed", where="tuning", remedy=INSTALL) from error
    return tune, CFO


def _read(path: Path) -> Settings:
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError("not JSON", where=str(path), remedy="delete it; the search runs again") from error
    return {str(k): v for k, v in result.items()}


def _write(path: Path, settings: Settings) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    compared = path.with_suffix(f".{os.getpid()}.tmp")
    compared.write_text(json.dumps(dict(settings), indent=1) + "\n", encoding="utf-8")
    os.replace(compared, path)
