"""Node latencies that nothing was learned for: the analytical model, one constant per op, a copied run."""

from dataclasses import dataclass

import numpy as np

from gnnperf.gnn.data.prepare import PreparedData, Step
from gnnperf.gnn.data.step_time import IsolatedPrediction, filled_us, step_time_us
from gnnperf.gnn.evaluation.trivial import NearestRun, OpMedians, fit_nearest_run, fit_op_medians
from research.baselines.judge import Estimate, IsolatedEstimate


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
