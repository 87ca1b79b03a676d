"""How much of the profiler's own cost a correction takes out, and costs fitted on runs recorded with and without it.

What one event of each kind is worth in step time depends on where it lies: a rank that waits for another one hides its
events. So the graph is requested: how much shorter is the step if each event of a kind cost a little less?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from gnnperf.graph import ExecutionGraph
from gnnperf.graph.profiler_cost import ProfilerCost, without_profiler
from research.evaluation.step_times import step_times_us

KINDS = ("op_us", "range_us", "call_us", "step_us")
PROBE = ProfilerCost(op_us=0.2, range_us=0.2, call_us=0.2, step_us=5.0, provenance="finite difference")
ROUNDS, SMALLEST = 30, 1e-4  # of reweighting: least squares to least absolute errors


@dataclass(frozen=True)
class Effect:
    """What the profiler does to one recorded run.

    Attributes:
        run: name of the run; repeats of one run share it.
        without_us: median step without the profiler, as the card says.
        with_us: median period of the recorded steps.
        events: [len(KINDS)] events of each kind per step, as far as they lengthen it.
    """

    run: str
    without_us: float
    with_us: float
    events: np.ndarray


def period_us(graph: ExecutionGraph) -> float:
    """Median period of the scheduled window without its first step, whose begin is not a step's end."""
    periods = step_times_us(graph)
    return float(np.median(periods[1:] if len(periods) > 1 else periods))


def effect(run: str, graph: ExecutionGraph, without_us: float) -> Effect:
    """The effect on a run, from its graph as recorded and its card's median step without the profiler."""
    with_us = period_us(graph)
    probes = PROBE.by_kind()
    events = []
    for kind in KINDS:
        only = ProfilerCost(**{k: probes[k] if k == kind else 0.0 for k in KINDS}, provenance=PROBE.provenance)
        events.append((with_us - period_us(without_profiler(graph, only).graph)) / probes[kind])
    return Effect(run, without_us, with_us, np.maximum(events, 0.0))


def median_cost(costs: Sequence[ProfilerCost]) -> ProfilerCost:
    """The median of each kind over cards of one machine: a single measurement may have been disturbed."""
    table = [cost.by_kind() for cost in costs]
    result = {kind: float(np.median([row[kind] for row in table])) for kind in KINDS}
    return ProfilerCost(**result, provenance=f"median of {len(costs)} measurements")


def fit_cost(effects: Sequence[Effect]) -> ProfilerCost:
    """Costs >= 0 with the least sum of absolute errors, relative to the step without the profiler.

    Absolute, not squared: a run whose few profiled steps were disturbed says little about the profiler. Steps have a
    handful of annotations, too few to tell them from the mark between steps: they cost what ops cost.
    """
    without = np.array([e.without_us for e in effects])
    added = np.array([e.with_us for e in effects]) / without - 1.0  # [num_runs]
    ops, ranges, calls, steps = np.stack([e.events for e in effects], axis=1)  # [num_runs] each, in order of KINDS
    columns = np.stack([ops + ranges, calls, steps], axis=1) / without[:, None]
    op_us, call_us, step_us = _least_absolute(columns, added).tolist()
    provenance = f"fitted on {len(effects)} runs recorded with and without the profiler"
    return ProfilerCost(op_us=op_us, range_us=op_us, call_us=call_us, step_us=step_us, provenance=provenance)


def fit_factor(effects: Sequence[Effect], cost: ProfilerCost) -> float:
    """The factor >= 0 on a cost with the least sum of absolute errors, relative to the step without the profiler.

    Of one run in isolation it is the factor that explains this run: for its own correction, not for judging one.
    """
    without = np.array([e.without_us for e in effects])
    expected = np.array([e.events @ list(cost.by_kind().values()) for e in effects]) / without
    return float(_least_absolute(expected[:, None], np.array([e.with_us for e in effects]) / without - 1.0)[0])


def _least_absolute(columns: np.ndarray, target: np.ndarray) -> np.ndarray:
    """[num_columns] weights >= 0 with the least sum of absolute errors: least squares, reweighted."""
    weight = np.ones(len(target))
    for _ in range(ROUNDS):
        result = _least_squares(columns * weight[:, None], target * weight)
        weight = 1.0 / np.sqrt(np.maximum(np.abs(target - columns @ result), SMALLEST))
    return result


def _least_squares(columns: np.ndarray, target: np.ndarray) -> np.ndarray:
    """[num_columns] weights >= 0 with the least sum of squares: the best of all sets of columns that need no sign."""
    num = columns.shape[1]
    best, least = np.zeros(num), float(target @ target)
    for used in (list(c) for size in range(1, num + 1) for c in combinations(range(num), size)):
        part = np.linalg.lstsq(columns[:, used], target, rcond=None)[0]
        error = float(((target - columns[:, used] @ part) ** 2).sum())
        if (part >= 0).all() and error < least:
            best, least = np.zeros(num), error
            best[used] = part
    return best
