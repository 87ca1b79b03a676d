"""The noise floor over runs: median, p90, maximum, and an interval of the median over runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from research.evaluation.noise_floor import ACROSS, ALL, METRICS, WITHIN
from research.evaluation.run_sums import interval_over_groups

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
