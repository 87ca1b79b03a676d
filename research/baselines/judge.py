"""Learner + data -> Cell: fitted on train and val, judged on the runs held out, every row by the same labels."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Protocol

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType, Segment, code_of
from gnnperf.gnn import PreparedData, Step, node_kinds, run_of
from gnnperf.gnn.data.cache import content_digest
from gnnperf.gnn.data.step_time import IsolatedPrediction, contended_step_time_us, filled_us, in_place
from gnnperf.gnn.evaluation.metrics import is_measured
from gnnperf.schedule import align
from research.evaluation.records import NODE_COLUMNS, STEP_COLUMNS, EvaluationRecord, Origin

# what learns, and what makes step times of what was learned
_LEARNING_CODE = ("gnn/models", "gnn/training", "gnn/data", "schedule", "hardware")


def learning_code() -> str:
    """Hash of the code behind a prediction; what the data depend on is in the data's fingerprint."""
    return content_digest(code_of(*_LEARNING_CODE), code_of("", package=Path(__file__).parent))[:16]


class Estimate(Protocol):
    """Predicts latencies of a step's nodes and its step time, or the step time only."""

    def latency_us(self, step: Step) -> np.ndarray | None:
        """[num_nodes] latencies, NaN where it has none; None: it predicts whole steps only."""
        ...

    def step_us(self, step: Step) -> float:
        """Step time, of the kind of `step.step_us`."""
        ...

    def both(self, step: Step) -> tuple[np.ndarray | None, float]:
        """`latency_us` and `step_us`."""
        return self.latency_us(step), self.step_us(step)


class IsolatedEstimate(Estimate):
    """An Estimate of what each node takes by itself."""

    def isolated(self, step: Step) -> IsolatedPrediction:
        """[num_nodes] latencies by themselves; NaN where there is no prediction."""
        raise NotImplementedError

    def latency_us(self, step: Step) -> np.ndarray:
        """[num_nodes] next to other work; NaN where there is no prediction."""
        return in_place(step, self.isolated(step))[0]

    def step_us(self, step: Step) -> float:
        return contended_step_time_us(step, self.isolated(step).scheduled_us)

    def both(self, step: Step) -> tuple[np.ndarray, float]:
        """`latency_us` and `step_us`, of one schedule."""
        return in_place(step, self.isolated(step))


class WholeSteps(Estimate):
    """An Estimate of steps, without latencies of nodes."""

    def latency_us(self, step: Step) -> None:
        return


class Learner(Protocol):
    """Is fitted on the parts train and val, never on test. Its repr states everything that it was given."""

    def fit(self, data: PreparedData, seed: int) -> Estimate:
        """The same data and seed give the same predictions; a learner without chance ignores the seed."""
        ...


@dataclass(frozen=True)
class Judged:
    """One recording's prediction."""

    name: str  # of the recording, and the predicting one if that is another
    step: Step  # what was measured
    latency_us: np.ndarray | None  # [num_nodes] judged; NaN is left out; None: whole steps only
    own: np.ndarray  # [num_nodes] bool, nodes that the row covered itself
    step_us: float  # the prediction for the step


@dataclass(frozen=True)
class Fit:
    """A learner that was fitted."""

    estimate: Estimate  # what it became
    given: str  # all that the learner was given
    seed: int | None  # of the fit; None: nothing in it is chance
    fit_s: float  # seconds that fitting took


def fitted(learner: Learner, data: PreparedData, seed: int | None) -> Fit:
    begin = time.perf_counter()
    estimate = learner.fit(data, seed or 0)
    return Fit(estimate, repr(learner), seed, time.perf_counter() - begin)


def fitted_record(learner: Learner, data: PreparedData, origin: Origin) -> EvaluationRecord:
    """Fit, then judge on `origin.part`."""
    _steps(data, origin)  # before it is fitted for nothing
    return judged_record(fitted(learner, data, origin.seed), data, origin)


def judged_record(fit: Fit, data: PreparedData, origin: Origin) -> EvaluationRecord:
    """Judge on `origin.part`; nodes without a prediction take the base's, as in the schedule."""
    return _record(origin, fit.fit_s, [_predicted(fit.estimate, step) for step in _steps(data, origin)])


def is_repeated(data: PreparedData, part: str) -> bool:
    """Whether some run of the part is there more than once."""
    runs = [run_of(step.run) for step in data.steps[part]]
    return len(set(runs)) < len(runs)


def repeat_record(data: PreparedData, origin: Origin) -> EvaluationRecord:
    """The noise floor in the same figures: every recording predicted by every other one of its run.

    Nodes that the other recording lacks are left out, as in evaluation.noise_floor.
    """
    by_run: dict[str, list[Step]] = {}
    for step in _steps(data, origin):
        by_run.setdefault(run_of(step.run), []).append(step)
    judged = []
    for step, other in (pair for repeats in by_run.values() for pair in permutations(repeats, 2)):
        matched = align(step.graph, other.graph)
        latency_us = np.where(matched >= 0, other.nodes["latency_us"].to_numpy(np.float64)[matched], np.nan)
        name = f"{step.run} by {other.run}"
        judged.append(Judged(name, step, latency_us, np.isfinite(latency_us), other.step_us))
    if not judged:
        raise InputError("no run was recorded twice", where=f"part {origin.part} of {origin.split}")
    return _record(origin, 0.0, judged)


def _predicted(estimate: Estimate, step: Step) -> Judged:
    own_us, step_us = estimate.both(step)
    if own_us is None:
        return Judged(step.run, step, None, np.zeros(0, dtype=bool), step_us)
    return Judged(step.run, step, filled_us(step, own_us), np.isfinite(own_us), step_us)


def _steps(data: PreparedData, origin: Origin) -> Sequence[Step]:
    steps = data.steps[origin.part]
    if not steps:
        raise InputError("has no runs to judge on", where=f"part {origin.part} of {origin.split}")
    return steps


def _record(origin: Origin, fit_s: float, judged: Sequence[Judged]) -> EvaluationRecord:
    steps = [(j.name, run_of(j.step.run), j.step.workload, j.step_us, j.step.step_us) for j in judged]
    labeled = [_labeled(j.step) for j in judged]
    own = [j.own[rows] for j, rows in zip(judged, labeled, strict=True) if j.latency_us is not None]
    coverage = float(np.concatenate(own).mean()) if own else float("nan")
    return EvaluationRecord(
        origin, fit_s, coverage, pd.DataFrame(steps, columns=list(STEP_COLUMNS)), _nodes(judged, labeled)
    )


def _labeled(step: Step) -> np.ndarray:
    """Rows of nodes with a label; arriving at a collective takes no time by definition (evaluation.noise_floor)."""
    measured = is_measured(step.nodes["latency_us"].to_numpy(np.float64))  # [num_nodes]
    return np.flatnonzero(measured & (node_kinds(step.nodes) != f"{NodeType.COMM} {Segment.ARRIVE}"))


def _nodes(judged: Sequence[Judged], labeled: Sequence[np.ndarray]) -> pd.DataFrame | None:
    places = enumerate(zip(judged, labeled, strict=True))
    tables = []  # NODE_COLUMNS of the labeled nodes that have a prediction
    for place, (one, of_step) in places:
        if one.latency_us is not None:
            rows, kinds = of_step[~np.isnan(one.latency_us[of_step])], node_kinds(one.step.nodes)
            measured_us = one.step.nodes["latency_us"].to_numpy(np.float64)[rows]  # [n]
            columns = (np.full(len(rows), place, np.int32), kinds[rows], one.latency_us[rows].astype(np.float32),
                       measured_us.astype(np.float32))  # fmt: skip
            tables.append(pd.DataFrame(dict(zip(NODE_COLUMNS, columns, strict=True))))
    return pd.concat(tables, ignore_index=True).astype({"kind": "category"}) if tables else None
