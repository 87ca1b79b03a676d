"""Measurements of the same program on another machine, the source: what the network corrects where they are known.

    base of a node that was measured there     measured_us x speed factor (data.speed_factors)
    ... of one that was not                    analytical_us x mean ratio of its op, else of its kind, else 1

A node's ratio is measured_us x speed factor / analytical_us. Without measurements the base is analytical. Factors are
fitted on runs that both machines recorded; those of such a run come from the other ones (cross-fitting), so that the
network learns what they miss in a new run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType
from gnnperf.gnn.data.floors import texts_of
from gnnperf.gnn.data.recordings import read_recordings
from gnnperf.gnn.data.runs import RunGraph, RunStep, node_kinds, occurrences, read_run, run_of, without_contention
from gnnperf.gnn.data.speed_factors import MeasuredTwice, SpeedFactors, fit_speed_factors
from gnnperf.graph import ExecutionGraph
from gnnperf.schedule import align

MOST_FITS = 10  # of speed factors without some of the runs


def source_base_us(nodes: pd.DataFrame, analytic_base_us: np.ndarray, moved_us: np.ndarray) -> np.ndarray:
    """[num_nodes] us that the network corrects.

    `analytic_base_us` [num_nodes] is the base without a source, `moved_us` [num_nodes] what the source measured times
    the speed factor, NaN unknown.
    """
    known = (np.nan_to_num(moved_us) > 0) & (analytic_base_us > 0)  # [num_nodes]
    ratio = np.zeros(len(nodes))
    ratio[known] = np.log(moved_us[known] / analytic_base_us[known])
    kind = pd.Series(node_kinds(nodes).astype(str))
    of_op = _class_means(kind + " " + texts_of(nodes["op_name"]), ratio, known)
    imputed = np.where(np.isnan(of_op), np.nan_to_num(_class_means(kind, ratio, known)), of_op)
    return analytic_base_us * np.exp(np.where(known, ratio, imputed))


def _class_means(names: pd.Series, log_ratio: np.ndarray, known: np.ndarray) -> np.ndarray:
    """[num_nodes] mean of known ratios of each node's class; NaN where the class has none."""
    result: np.ndarray = pd.Series(np.where(known, log_ratio, np.nan)).groupby(names).transform("mean").to_numpy()
    return result


@dataclass(frozen=True)
class SourceRuns:
    """Recordings of a source machine."""

    recordings: Mapping[str, str]  # run -> its first complete recording
    read: Callable[[str], RunGraph]  # reads a recording by name

    def measured_us(self, run: RunStep) -> np.ndarray:
        """[num_nodes] latencies of the run's nodes on the source machine; NaN: not recorded there."""
        name = self.recordings.get(run_of(run.run))
        return np.full(run.graph.num_nodes, np.nan) if name is None else aligned_us(run.graph, self.read(name))


@dataclass(frozen=True)
class MovedRuns:
    """A source machine and how much longer this one takes."""

    source: SourceRuns
    factors: SpeedFactors  # of new runs
    own: Mapping[str, SpeedFactors]  # run that factors are fitted on -> those of other runs

    def moved_us(self, run: RunStep) -> np.ndarray:
        """[num_nodes] what the source machine measured, times speed factors; NaN unknown."""
        factors = self.own.get(run_of(run.run), self.factors)
        return factors.moved_us(run.graph.nodes, self.source.measured_us(run))


def moved_runs(source: SourceRuns, runs: Sequence[RunStep]) -> MovedRuns:
    """Speed factors from training and validation runs.

    Raises:
        InputError: the source recorded none of them.
    """
    steps = {}
    for run in runs:
        measured_us = source.measured_us(run)
        learned = (run.graph.nodes["node_type"] != NodeType.COMM).to_numpy()  # which rank leaves first is chance
        if np.isfinite(measured_us).any():
            here_us = np.where(learned, run.isolated.usual_us, np.nan)
            steps[run_of(run.run)] = MeasuredTwice(run.graph.nodes, here_us, measured_us)
    if not steps:
        raise InputError("the source machine has no recording of a training run", where="data.source_path",
                         allowed="a data set that recorded the same runs, under the same names")  # fmt: skip
    names, own = list(steps), dict[str, SpeedFactors]()
    for first in range(min(MOST_FITS, len(names))):
        left_out = names[first::MOST_FITS]
        factors = fit_speed_factors([step for name, step in steps.items() if name not in left_out])
        own |= dict.fromkeys(left_out, factors)
    return MovedRuns(source, fit_speed_factors(list(steps.values())), own)


def aligned_us(graph: ExecutionGraph, source: RunGraph) -> np.ndarray:
    """[num_nodes] latencies of `source` at the same nodes of `graph`, without stalls; NaN where it has no such node."""
    steps = occurrences(source.graph.for_predictors())
    latency_us, rows = steps.lower_quartile(without_contention(source)[0]), align(graph, steps.last)
    return np.where(rows >= 0, latency_us[rows], np.nan)


def source_runs(folder: Path, cache_dir: Path) -> SourceRuns:
    """The recordings of a data set folder, the first one of each run; graphs are kept in `cache_dir`."""
    runs = read_recordings(folder)
    names = {run: repeats[min(repeats)].name for run, repeats in runs.items()}
    return SourceRuns(names, partial(read_run, folder, cache_dir=cache_dir))
