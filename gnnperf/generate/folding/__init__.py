"""Ranks with equal roles once: graphs of thousands of ranks in the nodes of a few."""

from gnnperf.generate.folding.fold import Folded, RankClass, fold

__all__ = ["Folded", "RankClass", "fold"]
