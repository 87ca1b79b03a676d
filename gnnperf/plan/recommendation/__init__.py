"""Recommendation models that nobody ran: from a configuration to the graph of a step."""

from gnnperf.plan.recommendation.build import build_recommendation
from gnnperf.plan.recommendation.plan import Interaction, Optimizer, RecommendationPlan, Recommender
from gnnperf.plan.recommendation.read import (
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
