"""The figures of a row of the comparison: errors of nodes and of steps, with intervals over runs and seeds.

Every error is |predicted / measured - 1|. A node that a row has no answer for holds the base's answer, as in the
schedule; `coverage` says how often it had one. Figures pool all seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gnnperf.gnn.evaluation.metrics import APE_FLOOR, absolute_percentage_error
from research.evaluation.records import EvaluationRecord
from research.evaluation.run_sums import RunSums, node_gmae, node_gmae_by_time, step_geomean

REPEAT = "another-recording"  # the row of the noise floor: no learner, and judged pair by pair
Rows = Mapping[str, Sequence[EvaluationRecord]]  # row -> its seeds, of one split


@dataclass(frozen=True)
class Figures:
    """Errors of nodes, or of steps.

    Attributes:
        count: nodes or steps per seed.
        gmae: geometric mean of the error, floored at 0.1 %.
        low, high: of it, 95 % over runs and seeds.
        by_time: of nodes, weighted by measured latency; NaN of steps.
        mean, median, p90, max: of the error.
        mean_log: mean |ln(predicted / measured)|.
        bias: exp(mean(ln(predicted / measured))) - 1; negative: too short.
    """

    count: int
    gmae: float
    low: float
    high: float
    by_time: float
    mean: float
    median: float
    p90: float
    max: float
    mean_log: float
    bias: float


def rows_of(records: Sequence[EvaluationRecord]) -> dict[str, dict[str, list[EvaluationRecord]]]:
    """Split -> row -> its seeds, in the order of first appearance."""
    result: dict[str, dict[str, list[EvaluationRecord]]] = {}
    for record in records:
        result.setdefault(record.origin.split, {}).setdefault(record.origin.row, []).append(record)
    return result


def node_figures(records: Sequence[EvaluationRecord]) -> Figures | None:
    """Of all seeds; None: the row has no node answers."""
    sums, by_time = node_gmae(records), node_gmae_by_time(records)
    tables = [record.nodes for record in records if record.nodes is not None]
    if sums is None or by_time is None:
        return None
    return _figures(tables, sums, by_time.value)


def step_figures(records: Sequence[EvaluationRecord]) -> Figures:
    """Of all seeds."""
    sums = step_geomean(records)
    assert sums is not None, "every row answers for steps"
    return _figures([record.steps for record in records], sums, float("nan"))


def of_workload(record: EvaluationRecord, workload: str) -> EvaluationRecord | None:
    """The cell's recordings of one program; None without any."""
    rows = np.flatnonzero((record.steps["workload"] == workload).to_numpy())
    if not len(rows):
        return None
    steps, nodes = record.steps.iloc[rows].reset_index(drop=True), record.nodes
    if nodes is not None:
        place = np.full(len(record.steps), -1)
        place[rows] = np.arange(len(rows))
        retained = nodes.assign(recording=place[nodes["recording"].to_numpy()])
        nodes = retained[retained["recording"] >= 0].reset_index(drop=True)
    return replace(record, steps=steps, nodes=nodes)


def workloads(records: Sequence[EvaluationRecord]) -> tuple[str, ...]:
    """Programs of these cells; unknown ones left out."""
    return tuple(sorted({name for record in records for name in record.steps["workload"] if name}))


def _figures(tables: Sequence[pd.DataFrame], sums: RunSums, by_time: float) -> Figures:
    predicted, measured = (
        np.concatenate([t[name].to_numpy(np.float64) for t in tables]) for name in ("predicted_us", "measured_us")
    )
    error = absolute_percentage_error(predicted, measured)  # [num_seeds * count]
    logs = np.log(np.maximum(predicted, APE_FLOOR * measured) / measured)  # an answer of 0 must not be log 0
    low, high = sums.interval()
    return Figures(
        len(error) // len(tables), sums.value, low, high, by_time, float(error.mean()), float(np.median(error)),
        float(np.quantile(error, 0.9)), float(error.max()), float(np.abs(logs).mean()), float(np.expm1(logs.mean())),
    )  # fmt: skip
