"""Latencies of a step's nodes -> its step time, of the kind that the step's label is, as `predict` schedules it."""

from __future__ import annotations

import numpy as np

from gnnperf.data.prepare import Step
from gnnperf.prediction import Alone
from gnnperf.schedule import Schedule, schedule, schedule_with_contention
from gnnperf.schedule.step_visits import NUM_UNROLLED
from gnnperf.schema import WORK_TYPES


def filled_us(step: Step, latency_us: np.ndarray) -> np.ndarray:
    """[num_nodes] latencies; a node without one (NaN) takes its base, device and link nodes take 0."""
    base = np.zeros(len(step.nodes))  # [num_nodes]
    for node_type in map(str, WORK_TYPES):
        store = step.data[node_type]
        base[store.node_id.numpy()] = store.base_us.numpy()
    return np.where(np.isnan(latency_us), base, latency_us)


def step_time_us(step: Step, latency_us: np.ndarray) -> float:
    """Step time from latencies [num_nodes] that hold beside other work; NaN takes the base's.

    Raises:
        InputError: a latency is infinite.
    """
    scheduled = schedule(step.graph, filled_us(step, latency_us), step.base.lag_us, num_unrolled=_copies(step))
    return _time_us(scheduled)


def contended_step_time_us(step: Step, latency_us: np.ndarray, alone: Alone) -> float:
    """The same where latencies of `alone.nodes` are of the op alone: they are stretched while work overlaps.

    Raises:
        InputError: a latency is infinite.
    """
    known = filled_us(step, latency_us)  # [num_nodes]
    found = schedule_with_contention(step.graph, known, step.base.lag_us, alone, num_unrolled=_copies(step))
    return _time_us(found.schedule)


def _copies(step: Step) -> int:
    """Four where the label is a period, one where it is a makespan."""
    return NUM_UNROLLED if step.graph.steps[0].period_us is not None else 1


def _time_us(scheduled: Schedule) -> float:
    """A schedule of several copies has a period, one of a single copy has none."""
    return scheduled.makespan_us if scheduled.period_us is None else scheduled.period_us
