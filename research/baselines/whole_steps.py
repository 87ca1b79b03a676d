"""Trivial predictions of whole steps: a constant, the nearest run, a ridge on what is known before a run."""

from dataclasses import dataclass

import numpy as np

from gnnperf.gnn.data.prepare import PreparedData, Step
from gnnperf.graph import ExecutionGraph
from research.baselines.judge import WholeSteps

RIDGE = 1.0  # weight of the penalty, against columns of spread 1
SUMMED = ("flops", "bytes", "message_bytes")
COUNTED = ("compute", "host", "collective")


def configuration(step: Step) -> np.ndarray:
    """[8] what a step's graph states before it runs; see `totals`."""
    placement = step.graph.placement
    rate = placement.bandwidth_bytes_per_s if placement else None
    return totals(step.graph, rate or step.cluster.intra.bandwidth_bytes_per_s)


def totals(graph: ExecutionGraph, link_bytes_per_s: float) -> np.ndarray:
    """[8] logs: FLOPs, bytes, message bytes, ops, host segments, collectives per step and rank; ranks; link's rate."""
    nodes, ranks = graph.nodes, len(graph.ranks)
    types = nodes["node_type"].astype(str).to_numpy()
    sums = [float(np.nansum(nodes[name].to_numpy(np.float64))) for name in SUMMED]
    counts = [float((types == kind).sum()) for kind in COUNTED]
    parts = len(graph.steps) * ranks
    return np.array([*np.log1p(np.array([*sums, *counts]) / parts), np.log(ranks), np.log(link_bytes_per_s)])


@dataclass(frozen=True)
class MedianStep:
    """The median of the training steps, whatever is requested."""

    def fit(self, data: PreparedData, seed: int) -> "SameStep":
        return SameStep(float(np.median([step.step_us for step in data.steps["train"]])))


@dataclass(frozen=True)
class SameStep(WholeSteps):
    """One prediction for all."""

    answer_us: float  # it

    def step_us(self, step: Step) -> float:
        return self.answer_us


@dataclass(frozen=True)
class NearestStep:
    """The step time of the training run whose configuration is nearest."""

    def fit(self, data: PreparedData, seed: int) -> "NearestOf":
        return NearestOf(_known(data))


@dataclass(frozen=True)
class Known:
    """Configurations in columns of mean 0 and spread 1, and their steps."""

    # center, spread: [8] of the raw columns
    center: np.ndarray
    spread: np.ndarray
    columns: np.ndarray  # [num_runs, 8]
    log_step_us: np.ndarray  # [num_runs]

    def of(self, step: Step) -> np.ndarray:
        """[8] a step's columns."""
        return (configuration(step) - self.center) / self.spread


@dataclass(frozen=True)
class NearestOf(WholeSteps):
    """Attributes: known: what it copies from."""

    known: Known

    def step_us(self, step: Step) -> float:
        """By sum of distances over the columns."""
        nearest = int(np.abs(self.known.columns - self.known.of(step)).sum(axis=1).argmin())
        return float(np.exp(self.known.log_step_us[nearest]))


@dataclass(frozen=True)
class RidgeStep:
    """Log step time linear in the configuration's columns (Hoerl and Kennard 1970)."""

    def fit(self, data: PreparedData, seed: int) -> "Linear":
        """[8] weights: (X'X + RIDGE I)^-1 X'(y - mean)."""
        known = _known(data)
        x, y = known.columns, known.log_step_us
        weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ (y - y.mean()))
        return Linear(known, weights, float(y.mean()))


@dataclass(frozen=True)
class Linear(WholeSteps):
    """A plane over configurations."""

    known: Known  # how columns are scaled
    weights: np.ndarray  # [8]
    mean: float  # log us

    def step_us(self, step: Step) -> float:
        return float(np.exp(self.mean + self.known.of(step) @ self.weights))


def _known(data: PreparedData) -> Known:
    raw = np.stack([configuration(step) for step in data.steps["train"]])  # [num_runs, 8]
    center, spread = raw.mean(axis=0), raw.std(axis=0)
    spread = np.where(spread > 1e-9, spread, 1.0)  # a column that states nothing in training states nothing later
    logs = np.log(np.array([step.step_us for step in data.steps["train"]]))
    return Known(center, spread, (raw - center) / spread, logs)
