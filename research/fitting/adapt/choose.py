"""Factors from a few measured steps, kept near 1 as far as left-out measurements say that this is better.

    mean log(step / measured)^2 + weight^2 sum (log factor / spread)^2   -> factors

Few labels differ in little, and what they do not tell stays where it was. How strongly, and which of several graphs of
the same configurations they speak for (recomputation or none, say), is chosen by leaving groups of labels out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from gnnperf.analytic.least_squares import fit_logs
from gnnperf.core import InputError, require
from research.fitting.adapt.parts import PARTS
from research.fitting.adapt.step_linear_bounds import StepLinearBounds

WEIGHTS = (0.5, 0.15, 0.05, 0.02)  # strongest first: of two that are as good, the stronger is taken
SPREADS = np.array([part.spread for part in PARTS])  # [num_parts]
UNLABELED = float("inf")  # the weight under which no label moves a factor


@dataclass(frozen=True)
class Adaptation:
    """What a few labels say.

    Attributes:
        hypothesis: which graphs they speak for.
        weight: of the prior; infinite where labels were of no use.
        factors: [num_parts] in the order of PARTS.
        left_out_error: mean absolute log error on labels left out, with this hypothesis and weight.
    """

    hypothesis: str
    weight: float
    factors: tuple[float, ...]
    left_out_error: float


def adapt(hypotheses: Mapping[str, StepLinearBounds], measured_us: np.ndarray, groups: np.ndarray) -> Adaptation:
    """The hypothesis and the factors that answer left-out labels best.

    Args:
        hypotheses: name -> planes of the labeled steps; the first is taken where labels do not tell.
        measured_us: [num_steps] labels.
        groups: [num_steps] labels that are left out together: with one of them known, the others would be too easy.

    Raises:
        InputError: fewer than two groups, or a label that is no time.
    """
    if not (np.isfinite(measured_us) & (measured_us > 0)).all():
        raise InputError("a measured step takes no time or is unknown", where="measured_us", allowed="positive us")
    distinct = len(np.unique(groups))
    require(distinct >= 2, "groups", distinct, "2 or more kinds of labels, so that one can be left out")
    tried = [(left_out_error(linear_bounds, measured_us, groups, weight), name, weight)
             for name, linear_bounds in hypotheses.items() for weight in (UNLABELED, *WEIGHTS)]  # fmt: skip
    error, name, weight = min(tried, key=lambda each: each[0])
    return Adaptation(name, weight, tuple(fit_factors(hypotheses[name], measured_us, weight)), error)


def fit_factors(linear_bounds: StepLinearBounds, measured_us: np.ndarray, weight: float) -> np.ndarray:
    """[num_parts] factors; see the module."""
    if np.isinf(weight):
        return np.ones(len(PARTS))

    def residuals(scaled: np.ndarray) -> np.ndarray:
        return np.log(linear_bounds.step_us(scaled**SPREADS) / measured_us)

    return fit_logs(residuals, np.ones(len(PARTS)), weight) ** SPREADS


def left_out_error(
    linear_bounds: StepLinearBounds, measured_us: np.ndarray, groups: np.ndarray, weight: float
) -> float:
    """Mean absolute log error on groups that the factors were not fitted on."""
    missed = np.empty(len(measured_us))
    for seen, requested in _folds(groups):
        factors = fit_factors(linear_bounds.of(seen), measured_us[seen], weight)
        missed[requested] = np.log(linear_bounds.of(requested).step_us(factors) / measured_us[requested])
    return float(np.abs(missed).mean())


def _folds(groups: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for group in np.unique(groups):
        yield groups != group, groups == group
