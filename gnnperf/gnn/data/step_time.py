"""Latencies of a step's nodes -> its step time, of the kind that the step's label is, as `predict` schedules it."""

from dataclasses import dataclass

import numpy as np

from gnnperf.core import NodeType
from gnnperf.gnn.data.prepare import Step
from gnnperf.graph import Isolated
from gnnperf.hardware import Contention
from gnnperf.schedule import NUM_UNROLLED, schedule, schedule_with_contention


@dataclass(frozen=True)
class IsolatedPrediction:
    """A model's latencies of a step's nodes, each by itself; all [num_nodes]. In a schedule NaN takes the base's."""

    usual_us: np.ndarray  # what a node usually takes
    scheduled_us: np.ndarray  # what a schedule adds up


def filled_us(step: Step, latency_us: np.ndarray) -> np.ndarray:
    """[num_nodes] latencies; a node without one (NaN) takes its base, device and link nodes take 0."""
    return np.where(np.isnan(latency_us), np.nan_to_num(step.stored("base_us")), latency_us)


def step_time_us(step: Step, latency_us: np.ndarray) -> float:
    """Step time from latencies [num_nodes] that hold next to other work; NaN takes the base's."""
    filled = filled_us(step, latency_us)
    return schedule(step.graph, filled, step.base.lag_us, num_unrolled=_copies(step)).step_time_us


def contended_step_time_us(step: Step, isolated_us: np.ndarray) -> float:
    """The same from latencies [num_nodes] of isolated ops: they are stretched while work overlaps."""
    return _contended(step, filled_us(step, isolated_us))[1]


def in_place(step: Step, estimate: IsolatedPrediction) -> tuple[np.ndarray, float]:
    """[num_nodes] usual latencies next to other work, stretched as the scheduled ones; the step time of that schedule.

    NaN stays.
    """
    scheduled_us = filled_us(step, estimate.scheduled_us)  # [num_nodes]
    served_us, step_us = _contended(step, scheduled_us)
    stretch = np.divide(served_us, scheduled_us, out=np.ones(len(served_us)), where=scheduled_us > 0)
    moves = (step.nodes["node_type"] == NodeType.COLLECTIVE).to_numpy()
    return estimate.usual_us * _contention(step).usual_stretch(moves, estimate.usual_us, stretch), step_us


def _contended(step: Step, isolated_us: np.ndarray) -> tuple[np.ndarray, float]:
    """Latencies as served, and the step time."""
    isolated = Isolated(np.ones(step.graph.num_nodes, dtype=bool), _contention(step))
    result = schedule_with_contention(step.graph, isolated_us, step.base.lag_us, isolated, num_unrolled=_copies(step))
    return result.latency_us, result.schedule.step_time_us


def _contention(step: Step) -> Contention:
    assert step.base.isolated is not None, "the base has isolated latencies"
    return step.base.isolated.contention


def _copies(step: Step) -> int:
    """Four where the label is a period, one where it is a makespan."""
    return NUM_UNROLLED if step.graph.steps[0].period_us is not None else 1
