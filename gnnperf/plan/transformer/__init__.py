"""Transformers that nobody ran: from a configuration to the graph of a step."""

from gnnperf.plan.transformer.block import Activation, Attention, Block, Kernels, Norm, Positions
from gnnperf.plan.transformer.build import build_plan
from gnnperf.plan.transformer.compression import Compression
from gnnperf.plan.transformer.mixture import Experts
from gnnperf.plan.transformer.offload import Offload, Store
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
from gnnperf.plan.transformer.sharding import Sharded, Sharding
from gnnperf.plan.transformer.span import misplaced_groups

__all__ = [
    "Activation",
    "Attention",
    "Block",
    "Compression",
    "Experts",
    "Kernels",
    "Norm",
    "Offload",
    "Parallelism",
    "Pipeline",
    "Positions",
    "Recompute",
    "Reduction",
    "RoleMap",
    "Schedule",
    "Sharded",
    "Sharding",
    "Store",
    "Transformer",
    "TransformerPlan",
    "build_plan",
    "every_rank",
    "misplaced_groups",
    "one_per_stage",
    "plan_from",
]
