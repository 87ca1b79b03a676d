"""Measurements of the same program on another machine, the source: what the network corrects where they are known.

    base of a node that was measured there     measured_us
    ... of one that was not                    analytical_us x mean ratio of its op, else of its kind, else 1

A node's ratio is measured_us / analytical_us there, with analytical models that are fitted on the same runs of both
machines. How far apart these two models are for the node is a feature. Without measurements the base is analytical.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.analytic import AnalyticConstants, fit_constants
from gnnperf.core import InputError
from gnnperf.gnn.data.floors import texts_of
from gnnperf.gnn.data.recordings import read_recordings
from gnnperf.gnn.data.runs import RunGraph, RunStep, node_kinds, read_run, run_of, typical
from gnnperf.graph import ExecutionGraph
from gnnperf.schedule import align

NUM_COLUMNS = 5


@dataclass(frozen=True)
class SourceMeasurements:
    """What a source machine measured of the nodes of a step."""

    measured_us: np.ndarray  # [num_nodes] there, NaN unknown
    model_ratio: np.ndarray  # [num_nodes] analytical latency here / there; 1 where either is unknown

    def padded(self, num_nodes: int) -> SourceMeasurements:
        """The same for a graph with more nodes behind these, of which nothing was measured."""
        more = num_nodes - len(self.measured_us)
        return SourceMeasurements(np.append(self.measured_us, np.full(more, np.nan)),
                                  np.append(self.model_ratio, np.ones(more)))  # fmt: skip


def source_numbers(
    nodes: pd.DataFrame, analytic_base_us: np.ndarray, source: SourceMeasurements | None
) -> tuple[np.ndarray, np.ndarray]:
    """[num_nodes] us that the network corrects, and [num_nodes, NUM_COLUMNS] features source_* (core.WORK_FEATURES).

    [num_nodes] `analytic_base_us` is the base without a source; `source` None: nothing was measured.
    """
    if source is None:
        return analytic_base_us, np.zeros((len(nodes), NUM_COLUMNS))
    known = (np.nan_to_num(source.measured_us) > 0) & (analytic_base_us > 0)  # [num_nodes]
    measured, scale = np.zeros(len(nodes)), np.log(source.model_ratio)
    measured[known] = np.log(source.measured_us[known] / analytic_base_us[known])
    scaled = measured + scale
    kind = pd.Series(node_kinds(nodes).astype(str))
    of_kind = _class_means(kind, scaled, known)
    of_op = _class_means(kind + " " + texts_of(nodes["op_name"]), scaled, known)
    imputed = np.where(np.isnan(of_op), np.nan_to_num(of_kind), of_op)
    columns = np.stack([known, measured, scale, np.nan_to_num(of_op), np.nan_to_num(of_kind)], axis=1)
    return analytic_base_us * np.exp(np.where(known, measured, imputed)), columns


def _class_means(names: pd.Series, log_ratio: np.ndarray, known: np.ndarray) -> np.ndarray:
    """[num_nodes] mean of known ratios of each node's class; NaN where the class has none."""
    return np.asarray(pd.Series(np.where(known, log_ratio, np.nan)).groupby(names).transform("mean"))


@dataclass(frozen=True)
class SourceRuns:
    """Recordings of a source machine."""

    recordings: Mapping[str, str]  # run -> its first complete recording
    read: Callable[[str], RunGraph]  # reads a recording by name

    def step_of(self, run: RunStep) -> RunStep | None:
        """The typical step of the same run on the source machine; None: it was not recorded there."""
        name = self.recordings.get(run_of(run.run))
        return None if name is None else typical(self.read(name))

    def constants(self, train: Sequence[RunStep]) -> AnalyticConstants:
        """Constants of the analytical model, fitted on the source's recordings of these runs.

        Raises InputError: it recorded none of them.
        """
        steps = [step for run in train if (step := self.step_of(run)) is not None]
        if not steps:
            raise InputError("the source machine has no recording of a training run", where="data.source_path",
                             allowed="a data set that recorded the same runs, under the same names")  # fmt: skip
        return fit_constants([step.graph for step in steps], steps[0].cluster.device)


def with_model_ratio(measured_us: np.ndarray, here_us: np.ndarray, there_us: np.ndarray) -> SourceMeasurements:
    """Measurements of the source and the ratio of the analytical predictions here and there; all [num_nodes]."""
    both = (np.nan_to_num(here_us) > 0) & (np.nan_to_num(there_us) > 0)  # [num_nodes]
    return SourceMeasurements(measured_us, np.divide(here_us, there_us, out=np.ones(len(measured_us)), where=both))


def aligned_us(graph: ExecutionGraph, source: RunStep) -> np.ndarray:
    """[num_nodes] latencies of `source` at the same nodes of `graph`; NaN where it has no such node."""
    rows = align(graph, source.graph)  # [num_nodes]
    return np.where(rows >= 0, source.isolated.usual_us[rows], np.nan)


def source_runs(folder: Path, cache_dir: Path) -> SourceRuns:
    """The recordings of a data set folder, the first one of each run; graphs are kept in `cache_dir`."""
    runs = read_recordings(folder)
    names = {run: repeats[min(repeats)].name for run, repeats in runs.items()}
    return SourceRuns(names, lambda name: read_run(folder, name, cache_dir))
