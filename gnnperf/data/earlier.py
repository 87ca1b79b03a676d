"""What a network was told before that now trains on: new data are told in the same words and on the same scales."""

from __future__ import annotations

from dataclasses import dataclass

from gnnperf.analytic import AnalyticConstants
from gnnperf.data.floors import TypedFloors
from gnnperf.data.normalizer import Normalizer
from gnnperf.data.vocabulary import Vocabulary


@dataclass(frozen=True)
class Earlier:
    """Of an earlier training.

    Attributes:
        vocabulary: its words; new ones are added behind them.
        normalizer: its scales; ranges widen.
        base: what its network corrects, and goes on correcting; None: the new data fit their own.
    """

    vocabulary: Vocabulary
    normalizer: Normalizer
    base: tuple[AnalyticConstants, TypedFloors] | None
