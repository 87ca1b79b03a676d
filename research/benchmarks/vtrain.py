"""Iteration times of 1,440 Megatron-LM configurations that gnnperf never ran and has no labels of.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks vtrain

A configuration becomes a graph (gnnperf.generate.transformer); the analytical model and the schedule answer. Known to
them:
numbers of the device and its links, constants fitted on public tables of ops and traces, vTrain's own table of
all-reduces. Not known: any iteration time. Next to it what a guess gives, and what labels of the other models give.
What
the times are made of, and what few of them bring: `vtrain_labels`.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
from rich.console import Console
from rich.table import Table

from gnnperf.analytic import AnalyticPredictor
from gnnperf.generate.transformer.build import build_plan
from gnnperf.generate.transformer.plan import TransformerPlan
from gnnperf.gnn import summarize
from gnnperf.hardware import ANY_DEVICE, ClusterSpec, default_cluster, load_device
from gnnperf.schedule import schedule_with_contention
from research.benchmarks._public_runs import mirror
from research.benchmarks._vtrain import columns_of, configurations, iteration_us
from research.benchmarks._vtrain_trivial import (
    FIXED_MFU,
    fixed_mfu_us,
    models,
    others_constant_us,
    others_nearest_us,
    others_ridge_us,
    roofline_us,
)

DEVICE = "a100_sxm_80gb"  # upstream says A100 and eight per node; memory is an assumption
OTHER_DEVICE = "a100_sxm_40gb"
LAWS = "a100_vtrain"  # of its own table of collectives, which has no step time
PARTS = ("tensor", "data", "pipeline", "hidden", "micro_batch", "layers")
MODEL, SPECIFIED, SMALLER = "model", "links by specification", "A100 of 40 GB"


def predicted_us(
    plans: list[TransformerPlan], answers: dict[str, tuple[AnalyticPredictor, ClusterSpec]]
) -> dict[str, np.ndarray]:
    """[n] step time of each plan by each predictor on its cluster, and the roofline of its graph."""
    result = {name: np.empty(len(plans)) for name in (*answers, "roofline")}
    for i, plan in enumerate(plans):
        graph = build_plan(plan)
        for name, (predictor, cluster) in answers.items():
            given = predictor.predict(graph, cluster)
            if given.uncovered_ops or given.isolated is None:
                sys.exit(f"{plan.name}: not covered: {given.uncovered_ops}")
            step = schedule_with_contention(graph, given.latency_us, given.lag_us, given.isolated)
            result[name][i] = step.schedule.makespan_us
        result["roofline"][i] = roofline_us(graph, load_device(DEVICE))
        if i % 200 == 199:
            print(f"{i + 1} of {len(plans)} graphs", file=sys.stderr, flush=True)
    return result


def main(argv: list[str]) -> int:
    """Print errors of every answer, then the model's by part of the configurations; a number takes every n-th plan."""
    folder = mirror()
    plans = configurations(folder)[:: int(argv[0]) if argv else 1]
    cluster, smaller = (default_cluster(load_device(name)) for name in (DEVICE, OTHER_DEVICE))
    requested = {
        MODEL: (AnalyticPredictor(), replace(cluster, collectives={ANY_DEVICE: LAWS})),
        SPECIFIED: (AnalyticPredictor(), replace(cluster, collectives={})),
        SMALLER: (AnalyticPredictor(), replace(smaller, collectives={ANY_DEVICE: LAWS})),
    }
    answers = predicted_us(plans, requested)  # before any label is read
    measured = iteration_us(folder, plans)
    group = models(plans)
    answers |= {
        f"6 N tokens at {FIXED_MFU:.0%} of peak": fixed_mfu_us(plans, cluster.device),
        "constant, other models' labels": others_constant_us(group, measured),
        "nearest configuration, other models' labels": others_nearest_us(plans, group, measured),
        "ridge on columns, other models' labels": others_ridge_us(plans, group, measured),
    }
    _print_errors({name: (result, measured) for name, result in answers.items()}, "answer")
    columns = columns_of(plans)
    parts = {
        f"{name} {value}": columns[name].to_numpy() == value for name in PARTS for value in np.unique(columns[name])
    }
    _print_errors({name: (answers[MODEL][rows], measured[rows]) for name, rows in parts.items()}, "model, by part")
    return 0


def _print_errors(answers: dict[str, tuple[np.ndarray, np.ndarray]], title: str) -> None:
    printed = Table(title, "configurations", "mean %", "median %", "p90 %", "max %", "bias %")
    for name, (result, measured) in answers.items():
        errors = summarize(result, measured)
        shown = (errors.mean_ape, errors.median_ape, errors.p90_ape, errors.max_ape, errors.bias)
        printed.add_row(name, str(errors.num_nodes), *(f"{100 * x:.1f}" for x in shown))
    Console(width=120).print(printed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
