"""The rows of the comparison that are not the network, by name."""

from collections.abc import Mapping
from dataclasses import replace

from gnnperf.core import InputError
from gnnperf.gnn import LearnerConfig, LearnerKind
from gnnperf.gnn.data.prepare import PreparedData
from research.baselines.hops import trees_with_hops
from research.baselines.judge import Fit, Learner, fitted
from research.baselines.trees import WHOLE_NUMBERS, Trees
from research.baselines.trivial import Analytic, Base, NearestNodes, OpConstant
from research.baselines.whole_steps import MedianStep, NearestStep, RidgeStep

# one prediction, whatever the seed; what does not beat them has not earned its place
TRIVIAL: Mapping[str, Learner] = {
    "analytic": Analytic(),
    "base": Base(),
    "op-constant": OpConstant(),
    "nearest-run": NearestNodes(),
    "median-step": MedianStep(),
    "nearest-step": NearestStep(),
    "ridge-step": RidgeStep(),
}


def requested_fits(config: LearnerConfig, row: str, data: PreparedData, seed: int) -> dict[str, Fit]:
    """Row -> the learner that a configuration names, fitted; nothing where it names the trivial predictions only."""
    if config.kind is LearnerKind.trivial:
        return {}
    return {row: fitted(simpler(config), data, seed)}


def simpler(config: LearnerConfig) -> Trees:
    """The learner that a configuration asks for; not the network, and not the trivial predictions.

    Raises InputError: there is no such setting.
    """
    match config.kind:
        case LearnerKind.trees:
            learner = Trees()
        case LearnerKind.trees_hops:
            learner = trees_with_hops()
        case LearnerKind.network | LearnerKind.trivial:
            raise AssertionError(f"{config.kind} is not fitted here")
    settings = dict(learner.settings)
    for name, value in config.settings.items():
        if name not in settings:
            raise InputError(f"no setting {name!r}", where="learner.settings", allowed=", ".join(sorted(settings)))
        settings[name] = int(value) if name in WHOLE_NUMBERS else value
    return replace(learner, settings=settings)
