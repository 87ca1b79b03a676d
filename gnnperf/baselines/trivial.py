"""Answers with node latencies that nothing was learned for: the analytical model, one constant per op, a copied run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnperf.data.prepare import PreparedData, Step
from gnnperf.data.step_time import contended_step_time_us, filled_us, step_time_us
from gnnperf.evaluate.baselines import NearestRun, OpMedians, fit_nearest_run, fit_op_medians


@dataclass(frozen=True)
class Analytic:
    """The analytical model, its constants fitted with the data: latencies of ops alone, a step in which they share.

    The latencies that `predict.py mode=analytic` prints are stretched where work overlaps; per node they are further
    from the measured ones than those of ops alone, so the better of its two answers stands here.
    """

    def fit(self, data: PreparedData, seed: int) -> Analytic:
        """Nothing to fit."""
        return self

    def latency_us(self, step: Step) -> np.ndarray:
        """[num_nodes]; NaN where it has no answer."""
        return step.base.latency_us

    def step_us(self, step: Step) -> float:
        """Scheduled, with contention."""
        return contended_step_time_us(step, step.base.latency_us)


@dataclass(frozen=True)
class Base:
    """The analytical answer of each op alone, else the typed floor: what residuals multiply."""

    def fit(self, data: PreparedData, seed: int) -> Base:
        """Nothing to fit."""
        return self

    def latency_us(self, step: Step) -> np.ndarray:
        """[num_nodes]."""
        return filled_us(step, np.full(len(step.nodes), np.nan))

    def step_us(self, step: Step) -> float:
        """Scheduled, with contention."""
        return contended_step_time_us(step, self.latency_us(step))


@dataclass(frozen=True)
class OpConstant:
    """One constant per node type, segment and op: the median of the training runs."""

    def fit(self, data: PreparedData, seed: int) -> Copied:
        """The medians."""
        return Copied(fit_op_medians([step.nodes for step in data.steps["train"]]))


@dataclass(frozen=True)
class NearestNodes:
    """The measured latencies of the training run that shares most work; what it lacks, one constant per op."""

    def fit(self, data: PreparedData, seed: int) -> Copied:
        """The runs' latencies by content."""
        return Copied(fit_nearest_run({step.run: [step.nodes] for step in data.steps["train"]}))


@dataclass(frozen=True)
class Copied:
    """Latencies looked up in the node table.

    Attributes:
        source: where.
    """

    source: OpMedians | NearestRun

    def latency_us(self, step: Step) -> np.ndarray:
        """[num_nodes]; NaN where the training runs have nothing alike."""
        return self.source.predict(step.nodes)

    def step_us(self, step: Step) -> float:
        """Scheduled."""
        return step_time_us(step, self.latency_us(step))
