"""The noise floor: the error of predicting one recording of a run by another of the same run.

repeat 1   step 0..3 aligned by content, each node's latency averaged     predicted
repeat 2   likewise                                                        measured     and the other way round

No model can be shown to be better than this: its labels are one such recording. The metrics were
fixed before any model was trained.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, Segment, each
from gnnperf.gnn.data.recordings import Recording, Repeats
from gnnperf.gnn.data.runs import node_kinds, occurrences
from gnnperf.gnn.evaluation.metrics import APE_FLOOR, absolute_percentage_error, is_measured
from gnnperf.graph import ExecutionGraph
from gnnperf.schedule import align
from research.evaluation.loading import Load, as_recorded
from research.evaluation.run_sums import interval_over_groups

ALL = "all"
WITHIN, ACROSS = "within a machine", "across machines"
METRICS = ("gmae", "gmae_by_time", "median_ape")


@dataclass(frozen=True)
class TypicalStep:
    """A step of a recording, each node with its mean over the profiled steps."""

    graph: ExecutionGraph  # the step that lends its structure: the last one
    latency_us: np.ndarray  # [num_nodes] mean latency over the steps that have the node; NaN unknown


def typical_step(graph: ExecutionGraph) -> TypicalStep:
    """Average the steps of a recording, aligned by content."""
    results = occurrences(graph)
    return TypicalStep(results.last, results.mean(graph.nodes["latency_us"].to_numpy(np.float64)))


def node_errors(predicted: TypicalStep, measured: TypicalStep) -> dict[str, dict[str, float]]:
    """Kind of node -> metrics over the measured recording's nodes that have a label and a counterpart.

    gmae: exp(mean(ln(max(|predicted / measured - 1|, 0.001)))); gmae_by_time: the same, the mean weighted by measured
    latency; median_ape: median of |predicted / measured - 1|; nodes: how many; coverage: share of labeled nodes that
    have a counterpart.
    """
    matched = align(measured.graph, predicted.graph)
    guess = np.where(matched >= 0, predicted.latency_us[matched], np.nan)
    labeled = is_measured(measured.latency_us)
    kinds = node_kinds(measured.graph.nodes)
    arrivals = kinds == f"{NodeType.COMM} {Segment.ARRIVE}"  # 0 by definition
    result = {}
    for kind in [ALL, *sorted(set(kinds[labeled & ~arrivals].tolist()))]:
        use = labeled & ~arrivals & ((kinds == kind) | (kind == ALL))
        result[kind] = _errors(guess[use], measured.latency_us[use])
    return result


def _errors(guess_us: np.ndarray, measured_us: np.ndarray) -> dict[str, float]:
    covered = np.isfinite(guess_us)
    ape = absolute_percentage_error(guess_us[covered], measured_us[covered])
    if not len(ape):
        return {**dict.fromkeys(METRICS, float("nan")), "nodes": 0, "coverage": 0.0}
    logs = np.log(np.maximum(ape, APE_FLOOR))
    return {
        "gmae": float(np.exp(logs.mean())),
        "gmae_by_time": float(np.exp(np.average(logs, weights=measured_us[covered]))),
        "median_ape": float(np.median(ape)),
        "nodes": int(covered.sum()),
        "coverage": float(covered.mean()),
    }


def floor_tables(recordings: Mapping[str, Repeats], load: Load | None = None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Errors of every ordered pair of repeats of every run.

    Returns:
        Of steps: a row per ordered pair of repeats: where it ran and |log(step / step)| without and with the profiler.
        Of nodes: a row per ordered pair of repeats and kind of node, with METRICS, nodes and coverage.
    """
    read = load or as_recorded()
    steps, nodes = [], []
    for repeats in each(list(recordings.values()), "comparing recordings", "runs"):
        typical = {k: typical_step(read(r)) for k, r in repeats.items()} if len(repeats) > 1 else {}
        for one, other in permutations(repeats.values(), 2):
            about = _about(one, other)
            steps.append({**about, "unprofiled": _log_ratio(one.unprofiled_us, other.unprofiled_us),
                          "profiled": _log_ratio(one.profiled_us, other.profiled_us)})  # fmt: skip
            results = node_errors(typical[one.repeat], typical[other.repeat])
            nodes += [{**about, "node": kind, **errors} for kind, errors in results.items()]
    return pd.DataFrame(steps), pd.DataFrame(nodes)


def _about(one: Recording, other: Recording) -> dict[str, object]:
    known = bool(one.machine and other.machine)
    where = WITHIN if one.machine == other.machine or not known else ACROSS
    return {"run": one.run, "predicts": one.repeat, "measures": other.repeat, "machines": where,
            "workload": other.workload, "link": other.link, "world_size": other.world_size}  # fmt: skip


def _log_ratio(first_us: float, second_us: float) -> float:
    return float(abs(np.log(first_us / second_us)))


# The noise floor over runs: median, p90, maximum, and an interval of the median over runs.

GROUPS = ("link", "world_size", "workload")
STEP_METRICS = ("unprofiled", "profiled")


def step_summary(steps: pd.DataFrame) -> pd.DataFrame:
    """One row per metric and group (all, by link, by world size, by workload), within and across machines."""
    rows = [
        {"machines": where, "group": name, "metric": f"step {metric}", **_over_runs(part, metric)}
        for where in (WITHIN, ACROSS)
        for name, part in _grouped(steps[steps["machines"] == where])
        for metric in STEP_METRICS
        if len(part)
    ]
    return pd.DataFrame(rows)


def node_summary(nodes: pd.DataFrame) -> pd.DataFrame:
    """One row per metric and kind of node, and for all nodes per group, within and across machines."""
    rows: list[dict[str, object]] = []
    for where in (WITHIN, ACROSS):
        here = nodes[nodes["machines"] == where]
        every = here[here["node"] == ALL]
        parts = [(ALL, every), *[(k, part) for k, part in here[here["node"] != ALL].groupby("node")]]
        parts += [item for item in _grouped(every) if item[0] != ALL]
        rows += [
            {"machines": where, "group": str(name), "metric": f"node {metric}", **_over_runs(part, metric),
             "nodes": int(part.groupby("run")["nodes"].max().sum()), "coverage": float(part["coverage"].median())}
            for name, part in parts for metric in METRICS if len(part)
        ]  # fmt: skip
    return pd.DataFrame(rows)


def _grouped(table: pd.DataFrame) -> Sequence[tuple[str, pd.DataFrame]]:
    result = [(ALL, table)]
    for column in GROUPS:
        result += [(f"{column.replace('_', ' ')}: {value}", part) for value, part in table.groupby(column)]
    return result


def _over_runs(part: pd.DataFrame, metric: str) -> dict[str, object]:
    """A run's value is the mean over its ordered pairs of repeats; the interval draws runs."""
    per_run = part.groupby("run")[metric].mean().dropna()
    low, high = interval_over_groups(
        per_run.to_numpy(), per_run.index.to_numpy(), lambda values: float(np.median(values))
    )
    return {
        "runs": len(per_run),
        "median": float(per_run.median()) if len(per_run) else float("nan"), "low": low, "high": high,
        "p90": float(per_run.quantile(0.9)) if len(per_run) else float("nan"),
        "max": float(per_run.max()) if len(per_run) else float("nan"),
    }  # fmt: skip
