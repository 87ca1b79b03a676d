"""The rows of the comparison that are not the network, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gnnperf.core import InputError
from gnnperf.gnn import LearnerConfig, LearnerKind
from gnnperf.gnn.data.prepare import PreparedData
from research.baselines.hops import trees_with_hops
from research.baselines.judge import Fit, Learner, fitted
from research.baselines.pooled import PooledSage
from research.baselines.sequence import OpsAsText
from research.baselines.trees import Trees
from research.baselines.trivial import Analytic, Base, NearestNodes, OpConstant
from research.baselines.tuning import Range, Settings, Tuned
from research.baselines.whole_steps import MedianStep, NearestStep, RidgeStep

# one answer, whatever the seed; what does not beat them has not earned its place
TRIVIAL: Mapping[str, Learner] = {
    "analytic": Analytic(),
    "base": Base(),
    "op-constant": OpConstant(),
    "nearest-run": NearestNodes(),
    "median-step": MedianStep(),
    "nearest-step": NearestStep(),
    "ridge-step": RidgeStep(),
}
SimplerLearner = Trees | PooledSage | OpsAsText


def requested_fits(config: LearnerConfig, row: str, data: PreparedData, seed: int) -> dict[str, Fit]:
    """Row -> the learner that a configuration asks for, fitted; nothing where it asks for the trivial answers only."""
    if config.kind is LearnerKind.trivial:
        return {}
    return {row: fitted(simpler(config), data, seed)}


def simpler(config: LearnerConfig) -> Tuned:
    """The learner that a configuration asks for; not the network, and not the trivial answers."""
    learner = _by_hand(config.kind)
    start = _with_settings(learner.start, learner.space, config.settings)
    return Tuned(replace(learner, start=start), config.trials, Path(config.store))


def _by_hand(kind: LearnerKind) -> SimplerLearner:
    """With the settings found by hand on the validation runs of one split."""
    match kind:
        case LearnerKind.trees:
            return Trees()
        case LearnerKind.trees_hops:
            return trees_with_hops()
        case LearnerKind.graphsage:
            return PooledSage()
        case LearnerKind.ops_as_text:
            return OpsAsText()
        case LearnerKind.network | LearnerKind.trivial:
            raise AssertionError(f"{kind} is not fitted here")


def _with_settings(start: Settings, space: Mapping[str, Range], given: Settings) -> Settings:
    for name in given:
        if name not in start:
            raise InputError(f"no setting {name!r}", where="learner.settings", allowed=", ".join(sorted(start)))
    return {**start, **{name: int(v) if space[name].whole else v for name, v in given.items()}}
