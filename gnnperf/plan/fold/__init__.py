"""Ranks with equal roles once: graphs of thousands of ranks in the nodes of a few."""

from gnnperf.plan.fold.fold import Folded, RankClass, fold
from gnnperf.plan.fold.world_size import WorldSize

__all__ = ["Folded", "RankClass", "WorldSize", "fold"]
