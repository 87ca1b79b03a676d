"""The rows of the comparison that are not the network, by name; and those of nodes that nothing was learned for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from gnnperf.core import InputError
from gnnperf.gnn import LearnerConfig, LearnerKind, PreparedData, Step
from gnnperf.gnn.data.step_time import IsolatedPrediction, filled_us, step_time_us
from gnnperf.gnn.evaluation.trivial import NearestRun, OpMedians, fit_nearest_run, fit_op_medians
from research.baselines.judge import Estimate, Fit, IsolatedEstimate, Learner, fitted
from research.baselines.trees import WHOLE_NUMBERS, Trees, trees_with_hops
from research.baselines.whole_steps import MedianStep, NearestStep, RidgeStep


@dataclass(frozen=True)
class Analytic(IsolatedEstimate):
    """The analytical model, its constants fitted with the data, as `predict.py mode=analytic` predicts."""

    def fit(self, data: PreparedData, seed: int) -> "Analytic":
        return self

    def isolated(self, step: Step) -> IsolatedPrediction:
        return IsolatedPrediction(step.base.latency_us, step.base.latency_us)


@dataclass(frozen=True)
class Base(IsolatedEstimate):
    """The analytical prediction of each op by itself, else the typed floor: what residuals multiply."""

    def fit(self, data: PreparedData, seed: int) -> "Base":
        return self

    def isolated(self, step: Step) -> IsolatedPrediction:
        base_us = filled_us(step, np.full(len(step.nodes), np.nan))
        return IsolatedPrediction(base_us, base_us)


@dataclass(frozen=True)
class OpConstant:
    """One constant per node type, segment and op: the median of the training runs."""

    def fit(self, data: PreparedData, seed: int) -> "Copied":
        return Copied(fit_op_medians([step.nodes for step in data.steps["train"]]))


@dataclass(frozen=True)
class NearestNodes:
    """The measured latencies of the training run that shares most work; what it lacks, one constant per op."""

    def fit(self, data: PreparedData, seed: int) -> "Copied":
        return Copied(fit_nearest_run({step.run: step.nodes for step in data.steps["train"]}))


@dataclass(frozen=True)
class Copied(Estimate):
    """Latencies looked up in the node table."""

    source: OpMedians | NearestRun  # where

    def latency_us(self, step: Step) -> np.ndarray:
        """[num_nodes]; NaN where the training runs have nothing alike."""
        return self.source.predict(step.nodes)

    def step_us(self, step: Step) -> float:
        return step_time_us(step, self.latency_us(step))


# one prediction, whatever the seed; what does not beat them has not earned its place
TRIVIAL: Mapping[str, Learner] = {
    "analytic": Analytic(),
    "base": Base(),
    "op-constant": OpConstant(),
    "nearest-run": NearestNodes(),
    "median-step": MedianStep(),
    "nearest-step": NearestStep(),
    "ridge-step": RidgeStep(),
}


def requested_fits(config: LearnerConfig, row: str, data: PreparedData, seed: int) -> dict[str, Fit]:
    """Row -> the learner that a configuration names, fitted; nothing where it names the trivial predictions only."""
    if config.kind is LearnerKind.trivial:
        return {}
    return {row: fitted(simpler(config), data, seed)}


def simpler(config: LearnerConfig) -> Trees:
    """The learner that a configuration asks for; not the network, and not the trivial predictions.

    Raises InputError: there is no such setting.
    """
    match config.kind:
        case LearnerKind.trees:
            learner = Trees()
        case LearnerKind.trees_hops:
            learner = trees_with_hops()
        case LearnerKind.network | LearnerKind.trivial:
            raise AssertionError(f"{config.kind} is not fitted here")
    settings = dict(learner.settings)
    for name, value in config.settings.items():
        if name not in settings:
            raise InputError(f"no setting {name!r}", where="learner.settings", allowed=", ".join(sorted(settings)))
        settings[name] = int(value) if name in WHOLE_NUMBERS else value
    return replace(learner, settings=settings)
