"""What train.py can be told of the learner, where it is not the network."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from gnnperf.core.errors import require

# Enum names are lower case because that is how Hydra spells an enum on the command line.


class LearnerKind(StrEnum):
    """Who is trained."""

    network = "network"  # the typed graph network, which becomes a checkpoint
    trees = "trees"  # gradient-boosted trees on a node's own features
    trees_hops = "trees_hops"  # the same, with the features of its neighbors
    graphsage = "graphsage"  # GraphSAGE, pooled: step times only
    ops_as_text = "ops_as_text"  # a sequence model over the ops as words
    trivial = "trivial"  # nobody: the answers that stand beside every learner


@dataclass
class LearnerConfig:
    """Who learns (not frozen: Hydra composes into it).

    Attributes:
        kind: who; the network takes its settings from `model`, `optim` and `trainer`, no other learner does.
        settings: of a simpler learner, by name; what is not named is as it was found by hand.
        trials: fits that FLAML may take to find settings on the validation runs, `settings` first; 1: none.
        store: folder where found settings are kept, for other seeds.
    """

    kind: LearnerKind = LearnerKind.network
    settings: dict[str, float] = field(default_factory=dict)
    trials: int = 1
    store: str = "outputs/tuning"

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        require(self.trials >= 1, "learner.trials", self.trials, "a whole number >= 1")
        require(bool(self.store), "learner.store", self.store, "a folder")
        fits = self.kind not in (LearnerKind.network, LearnerKind.trivial)
        require(fits or self.trials == 1, "learner.trials", self.trials, f"1 where the learner is {self.kind}")
        require(fits or not self.settings, "learner.settings", self.settings, f"none where the learner is {self.kind}")
        for name, value in self.settings.items():
            require(0 < value < math.inf, f"learner.settings.{name}", value, "a number > 0")
