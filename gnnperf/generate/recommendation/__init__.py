"""Recommendation models that never ran: from a configuration to the graph of a step."""

from gnnperf.generate.recommendation.build import build_recommendation
from gnnperf.generate.recommendation.plan import Interaction, Optimizer, RecommendationPlan, Recommender
from gnnperf.generate.recommendation.read import (
    is_recommendation,
    placement_as_written,
    recommendation_from,
)

__all__ = [
    "Interaction",
    "Optimizer",
    "RecommendationPlan",
    "Recommender",
    "build_recommendation",
    "is_recommendation",
    "placement_as_written",
    "recommendation_from",
]
