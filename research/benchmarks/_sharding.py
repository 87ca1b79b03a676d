"""Problems of placing tables as the predictor sees them, and what was measured of their candidates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from gnnperf.analytic import AnalyticPredictor
from gnnperf.generate import Placed, Placement, Split, Table
from gnnperf.gnn.data.runs import cluster_for
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif import Edited
from gnnperf.whatif.findings.measured import calibrated_to_trace
from gnnperf.whatif.reshard import Model, Recorded
from research.evaluation.step_times import step_times_us
from research.recording.sharding_problems import Problem
from research.recording.workloads.mixed_tables import PlacedTable

DATASET = Path("datasets/cpu-sharding")
PASSES = DATASET / "placements.json"
RANKS = 2


@dataclass(frozen=True)
class Measured:
    """Steps of a problem's candidates.

    Attributes:
        passes_us: [num_passes, num_candidates].
    """

    passes_us: np.ndarray

    @property
    def step_us(self) -> np.ndarray:
        """[num_candidates] geometric mean over passes."""
        return np.exp(np.log(self.passes_us).mean(axis=0))

    @property
    def noise(self) -> float:
        """Median relative difference of a candidate between two passes, beyond what all candidates share."""
        given = np.log(self.passes_us)
        apart = np.array([a - b for a, b in combinations(given, 2)])  # [num_pairs, num_candidates]
        return float(np.median(np.abs(apart - np.median(apart, axis=1, keepdims=True))))

    def once(self) -> tuple[np.ndarray, np.ndarray]:
        """[num_passes] of picking the fastest of a pass, judged by the others: regret; whether within the noise."""
        given, regret = np.log(self.passes_us), []
        for number, own in enumerate(given):
            others = np.delete(given, number, axis=0).mean(axis=0)
            regret.append(others[own.argmin()] - others.min())
        return np.expm1(regret), np.array(regret) <= self.noise

    @property
    def spread(self) -> float:
        """Slowest / fastest - 1."""
        return float(self.step_us.max() / self.step_us.min() - 1.0)


def measured() -> dict[str, Measured]:
    """Label of the problem -> what was measured."""
    passes = json.loads(PASSES.read_text())["passes"]
    labels = [one["problem"] for one in passes[0]]
    result = [{one["problem"]: one["step_us"] for one in each} for each in passes]
    return {label: Measured(np.array([each[label] for each in result])) for label in labels}


def tables_of(problem: Problem) -> tuple[Table, ...]:
    """In the words of `plan`."""
    return tuple(
        Table(str(t), one.rows, one.dim, one.pooling, one.skew) for t, one in enumerate(problem.recorded.tables)
    )


def placement_of(tables: Sequence[PlacedTable]) -> Placement:
    """In the words of `plan`."""
    everybody = tuple(range(RANKS))
    return tuple(
        Placed(Split(str(one.sharding)), (one.rank,) if Split(str(one.sharding)) is Split.TABLE else everybody)
        for one in tables
    )


@dataclass(frozen=True)
class Predicted:
    """Predicted steps of a problem's candidates, [num_candidates] each.

    Attributes:
        calibrated_us: measured latencies of the one recording, and the analytical model held to them.
        analytic_us: the analytical model's answers for all ops of the tables, as they are.
    """

    calibrated_us: np.ndarray
    analytic_us: np.ndarray


def given(problem: Problem, graph: ExecutionGraph) -> Predicted:
    """Predictions for every candidate, from one recording of another placement."""
    predictor, before = AnalyticPredictor(), placement_of(problem.recorded.tables)
    predicted_us = predictor.predict(graph, cluster_for(graph, None, None)).latency_us
    recorded = Recorded.read(graph, Model(tables_of(problem), RANKS, problem.recorded.batch), before)
    steps = []
    for tables in problem.candidates:
        edited = recorded.placed(placement_of(tables))
        after_us = predictor.predict(edited.graph, cluster_for(edited.graph, None, None)).latency_us
        steps.append(
            (
                _step_us(calibrated_to_trace(edited, graph, predicted_us, after_us)),
                _step_us(_analytic(edited, after_us)),
            )
        )
    return Predicted(*np.array(steps).T)


def _analytic(edited: Edited, after_us: np.ndarray) -> ExecutionGraph:
    """What the edit touched takes what the analytical model says."""
    latency_us = np.where(edited.touched, after_us, edited.graph.nodes["latency_us"].to_numpy())
    nodes = edited.graph.nodes.assign(latency_us=latency_us)
    return ExecutionGraph(**{**edited.graph.__dict__, "nodes": nodes})


def _step_us(graph: ExecutionGraph) -> float:
    """Median period after the first step of the window."""
    return float(np.median(step_times_us(graph)[1:]))
