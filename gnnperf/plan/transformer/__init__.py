"""Transformers that nobody ran: from a configuration to the graph of a step."""

from gnnperf.plan.transformer.build import build_plan
from gnnperf.plan.transformer.plan import (
    Parallelism,
    Pipeline,
    Recompute,
    Reduction,
    Schedule,
    Transformer,
    TransformerPlan,
)
from gnnperf.plan.transformer.read import plan_from
from gnnperf.plan.transformer.roles import RoleMap, every_rank, one_per_stage
from gnnperf.plan.transformer.span import misplaced_groups

__all__ = [
    "Parallelism",
    "Pipeline",
    "Recompute",
    "Reduction",
    "RoleMap",
    "Schedule",
    "Transformer",
    "TransformerPlan",
    "build_plan",
    "every_rank",
    "misplaced_groups",
    "one_per_stage",
    "plan_from",
]
