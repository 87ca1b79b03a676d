"""What few of vTrain's iteration times bring for the others.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks vtrain_labels

Labels of one model size and one parallelism (ten), all 144 choices of them; requested is what differs from them in
both.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import repeat

import numpy as np

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import InputError
from gnnperf.generate.transformer.build import build_plan
from gnnperf.generate.transformer.plan import TransformerPlan
from gnnperf.hardware import ANY_DEVICE, ClusterSpec, default_cluster, load_device
from gnnperf.schedule import schedule_with_contention
from research.benchmarks._public_runs import mirror
from research.benchmarks._vtrain import configurations, iteration_us
from research.benchmarks._vtrain_labels import FewLabels, all_labels, few_labels, learning_curve
from research.benchmarks.vtrain import DEVICE, LAWS
from research.fitting.adapt import PARTS, ScaledPredictor, StepLinearBounds, linear_bounds_of

CORES = 2
CONFIGURED = "as configured"
CHECKED = 60  # every so many a plan is scheduled in full, with factors that no plane was made at
CHECK_FACTORS = (1.2, 0.6, 0.9, 1.1, 2.0)


def main(argv: list[str]) -> int:
    """Print errors; a number takes every n-th configuration."""
    folder = mirror()
    plans = configurations(folder)[:: int(argv[0]) if argv else 1]
    cluster = replace(default_cluster(load_device(DEVICE)), collectives={ANY_DEVICE: LAWS})
    hypotheses = {CONFIGURED: linear_bounds(plans, cluster)}
    _print_check(plans, hypotheses[CONFIGURED], cluster)
    measured = iteration_us(folder, plans)  # no label has been read before
    _print_few_labels(few_labels(plans, hypotheses, measured))
    for count, errors in learning_curve(plans, hypotheses, measured).items():
        print(f"labels of {count} random pairs, all other pairs: {errors.mean():.1%} (worst draw {errors.max():.1%})")
    for name, result in hypotheses.items():
        factors, error = all_labels(result, measured)
        given = ", ".join(f"{part.name} {factor:.2f}" for part, factor in zip(PARTS, factors, strict=True))
        unlabeled = np.abs(result.step_us(np.ones(len(PARTS))) / measured - 1).mean()
        print(f"{name}: without labels {unlabeled:.1%}; with all labels, on the same {error:.1%}: {given}")
    return 0


def linear_bounds(plans: list[TransformerPlan], cluster: ClusterSpec) -> StepLinearBounds:
    """Of all plans, on two cores."""
    with ProcessPoolExecutor(CORES) as pool:
        return StepLinearBounds(np.array(list(pool.map(_linear_bounds, plans, repeat(cluster), chunksize=20))))


def _linear_bounds(plan: TransformerPlan, cluster: ClusterSpec) -> np.ndarray:
    given = AnalyticPredictor().predict(build_plan(plan), cluster)
    if given.uncovered_ops:
        raise InputError("ops without a latency", where=plan.name, allowed=str(given.uncovered_ops))
    return linear_bounds_of(given)


def _print_check(plans: list[TransformerPlan], result: StepLinearBounds, cluster: ClusterSpec) -> None:
    """Planes next to schedules with contention, at factors between those that planes were made at."""
    rows = np.arange(0, len(plans), CHECKED)
    below = result.of(rows).step_us(np.array(CHECK_FACTORS))
    exact = []
    for row in rows:
        given = ScaledPredictor(AnalyticPredictor(), CHECK_FACTORS).predict(build_plan(plans[row]), cluster)
        if given.isolated is None:
            sys.exit(f"{plans[row].name}: nothing says what shares")
        step = schedule_with_contention(given.graph, given.latency_us, given.lag_us, given.isolated)
        exact.append(step.schedule.makespan_us)
    missed = np.abs(below / np.array(exact) - 1)
    print(f"planes against full schedules, {len(rows)} plans: mean {missed.mean():.2%}, max {missed.max():.2%}")


def _print_few_labels(result: FewLabels) -> None:
    print(f"labels of one model size and one parallelism, {len(result.tensor)} choices; error on what differs in both:")
    for name, errors in result.errors.items():
        by_tensor = ", ".join(
            f"{ways}: {errors[result.tensor == ways].mean():.1%}" for ways in np.unique(result.tensor)
        )
        print(f"  {name:38s}{errors.mean():7.1%}  (worst {errors.max():.1%}; median {np.median(errors):.1%}; "
              f"by tensor-parallel size of the labels {by_tensor})")  # fmt: skip
    print(f"  weights of the prior: {dict(result.chosen)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
