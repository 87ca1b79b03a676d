"""Intervals of step times, from how far steps of unseen runs were off and from what.

    scale of a step = root of the sum over groups of (share of the critical path x error of the group in other runs)^2
    half width of the interval = quantile over runs of |log(measured / predicted)| / scale, times scale

Within a group (host, compute, collective ..) errors are shared: an op that is given too short in one layer is so in all
of them, so they add up along the path. Groups err independently, so their errors add up in squares. What that leaves
out (waits that change which path is critical) is in the quantile, which is of whole steps.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core import NotNegative, Share, Unbounded
from gnnperf.gnn.intervals.nodes import NodeIntervals, attainable, one_sided

LEVEL = 0.9
PRIOR_RUNS = 3.0  # a group's error is held to that of all groups, as if so many more runs had shown it


@dataclass(frozen=True)
class StepMiss:
    """One recorded step and its prediction."""

    run: str  # recordings of one run share it
    log_error: float  # log(measured / predicted) of the step
    share: Mapping[str, float]  # group -> share of the step time that the critical path spends there
    group_error: Mapping[str, float]  # group -> log(measured / predicted) of the sum of its nodes on the path


@dataclass(frozen=True)
class StepIntervals:
    """What steps may miss."""

    level: Share  # share of steps that lie within; what the number of runs supports
    group_error: Mapping[str, NotNegative]  # group -> root mean square of its log error over runs
    other_error: NotNegative  # the same over all groups, for one that was never on a path
    scores: Unbounded  # quantile, over runs, of a step's |log error| in units of its scale
    devices: tuple[str, ...]  # names of the devices of the calibration

    def bounds_us(self, step_time_us: float, share: Mapping[str, float]) -> tuple[float, float]:
        """Lowest and highest step time; `share`: group -> share of it on the critical path."""
        with np.errstate(over="ignore"):  # to infinity, which is no bound
            factor = float(np.exp(self.scores * _scale(share, self.group_error, self.other_error)))
        return step_time_us / factor, step_time_us * factor


def miss_of(run: str, step: tuple[float, float], nodes: pd.DataFrame) -> StepMiss:
    """One step of a run, from its predicted and measured time, us.

    `nodes` has columns group, critical_us, predicted_us (as scheduled) and measured_us.
    """
    predicted_us, measured_us = step
    on_path = nodes[nodes["critical_us"] > 0]
    known = on_path[(on_path["predicted_us"] > 0) & (on_path["measured_us"] > 0)]
    sums = known.groupby("group", sort=True)[["predicted_us", "measured_us"]].sum()
    return StepMiss(
        run, math.log(measured_us / predicted_us), shares_of(on_path, predicted_us),
        {str(g): float(np.log(m / p)) for g, p, m in zip(sums.index, *sums.to_numpy().T, strict=True)},
    )  # fmt: skip


def shares_of(nodes: pd.DataFrame, step_time_us: float) -> dict[str, float]:
    """Group -> share of the step time; columns group and critical_us."""
    sums = nodes.groupby("group", sort=True)["critical_us"].sum()
    return {str(group): float(us / step_time_us) for group, us in sums.items()}


def fit_step_intervals(misses: Sequence[StepMiss], level: float, devices: Sequence[str]) -> StepIntervals:
    """From steps (at least one) of runs that nothing was fitted on, and the devices that they ran on.

    `level` is the share of steps that should lie within.
    """
    squares: dict[str, list[float]] = {}
    for miss in misses:
        for group, error in miss.group_error.items():
            squares.setdefault(group, []).append(error**2)
    every = [square for result in squares.values() for square in result]
    other = math.sqrt(float(np.mean(every))) if every else 1.0
    prior = PRIOR_RUNS * other**2
    group_error = {g: math.sqrt((sum(own) + prior) / (len(own) + PRIOR_RUNS)) for g, own in squares.items()}
    sizes = np.array([abs(m.log_error) / _scale(m.share, group_error, other) for m in misses])  # [num_steps]
    runs = np.array([m.run for m in misses])
    given = attainable(len(set(runs.tolist())), level)
    return StepIntervals(given, group_error, other, one_sided(sizes, runs, given), tuple(sorted(set(devices))))


def _scale(share: Mapping[str, float], group_error: Mapping[str, float], other: float) -> float:
    return math.sqrt(sum((part * group_error.get(group, other)) ** 2 for group, part in share.items()))


@dataclass(frozen=True)
class Intervals:
    """All intervals of a checkpoint: of nodes by source, of steps by mode of prediction."""

    nodes: NodeIntervals
    steps: Mapping[str, StepIntervals]
    unseen_steps: StepIntervals | None = None  # of the hybrid, in programs that training lacks; None: not calibrated
