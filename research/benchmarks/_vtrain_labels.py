"""What labels of one model size and one parallelism bring, on configurations that differ from them in both.

Ten labels: of the columns, only global batch and micro-batch vary among them. A ridge on columns learns the time itself
from them, a ridge on the model's log errors what the model has wrong, an adaptation (research.fitting.adapt) factors of
its parts. The rule was fixed before it was run: groups that are left out inside are micro-batches, since steps that
differ in the global batch by itself are nearly multiples of each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from gnnperf.generate.transformer import TransformerPlan
from gnnperf.gnn.evaluation.metrics import absolute_percentage_error
from research.benchmarks._vtrain import columns_of
from research.benchmarks._vtrain_trivial import log_columns, models, ridge
from research.fitting.adapt import PARTS, Adaptation, StepLinearBounds, adapt, fit_factors

WEAK = 0.01  # weight of the prior where all labels are given
PAIRS, SETS = (2, 4, 8, 16), 20


@dataclass(frozen=True)
class FewLabels:
    """Mean errors [num_choices] on what was held out, one per choice of model size and parallelism.

    Attributes:
        errors: answer -> errors.
        tensor: tensor-parallel size of each choice.
        chosen: weights of the prior that the adaptations took.
    """

    errors: dict[str, np.ndarray]
    tensor: np.ndarray
    chosen: Counter[float]


def few_labels(
    plans: list[TransformerPlan], hypotheses: Mapping[str, StepLinearBounds], measured_us: np.ndarray
) -> FewLabels:
    """All choices of one model size and one parallelism; the first hypothesis is the model without labels."""
    columns, batch = log_columns(plans), columns_of(plans)["micro_batch"].to_numpy()
    unlabeled = next(iter(hypotheses.values())).step_us(np.ones(len(PARTS)))
    result, tensor, chosen = [], [], []
    for seen, requested in choices(plans):
        missed = np.log(measured_us[seen] / unlabeled[seen])
        adapted = adapt(
            {name: linear_bounds.of(seen) for name, linear_bounds in hypotheses.items()}, measured_us[seen], batch[seen]
        )
        answers = {
            "model without labels": unlabeled[requested],
            "model with factors from the labels": _adapted_us(adapted, hypotheses, requested),
            "model with a ridge on its log errors": unlabeled[requested]
            * np.exp(ridge(columns[seen], missed, columns[requested])),
            "ridge on columns": np.exp(ridge(columns[seen], np.log(measured_us[seen]), columns[requested])),
        }
        result.append({k: absolute_percentage_error(us, measured_us[requested]).mean() for k, us in answers.items()})
        tensor.append(columns_of([plans[int(np.flatnonzero(seen)[0])]])["tensor"].iloc[0])
        chosen.append(adapted.weight)
    errors = {name: np.array([each[name] for each in result]) for name in result[0]}
    return FewLabels(errors, np.array(tensor), Counter(chosen))


def choices(plans: list[TransformerPlan]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """[n] bool each: labels of one model size and one parallelism, and what differs from them in both."""
    model = models(plans)
    ways = columns_of(plans).groupby(["tensor", "data", "pipeline"]).ngroup().to_numpy()
    for size, way in np.unique(np.stack([model, ways]), axis=1).T:
        yield (model == size) & (ways == way), (model != size) & (ways != way)


def learning_curve(
    plans: list[TransformerPlan], hypotheses: Mapping[str, StepLinearBounds], measured_us: np.ndarray
) -> dict[int, np.ndarray]:
    """Number of pairs of a model size and a parallelism with labels -> [SETS] mean errors on all other pairs.

    Pairs are drawn at random; one of them is left out at a time to choose hypothesis and prior.
    """
    ways = columns_of(plans).groupby(["tensor", "data", "pipeline"]).ngroup().to_numpy()
    pair = models(plans) * (ways.max() + 1) + ways
    rng, result = np.random.default_rng(0), {}
    for count in PAIRS:
        errors = []
        for _ in range(SETS):
            seen = np.isin(pair, rng.choice(np.unique(pair), count, replace=False))
            labeled = {name: linear_bounds.of(seen) for name, linear_bounds in hypotheses.items()}
            us = _adapted_us(adapt(labeled, measured_us[seen], pair[seen]), hypotheses, ~seen)
            errors.append(absolute_percentage_error(us, measured_us[~seen]).mean())
        result[count] = np.array(errors)
    return result


def all_labels(linear_bounds: StepLinearBounds, measured_us: np.ndarray) -> tuple[np.ndarray, float]:
    """Factors from all labels, and the mean error on the same labels: what no choice of few labels can beat by much."""
    factors = fit_factors(linear_bounds, measured_us, WEAK)
    return factors, float(absolute_percentage_error(linear_bounds.step_us(factors), measured_us).mean())


def _adapted_us(adapted: Adaptation, hypotheses: Mapping[str, StepLinearBounds], requested: np.ndarray) -> np.ndarray:
    return hypotheses[adapted.hypothesis].of(requested).step_us(np.array(adapted.factors))
