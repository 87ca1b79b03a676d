"""Transformers that never ran: from a configuration to the graph of a step."""

from gnnperf.generate.transformer.block import Activation, Attention, Block, Kernels, Norm, Positions
from gnnperf.generate.transformer.build import build_plan
from gnnperf.generate.transformer.compression import Compression
from gnnperf.generate.transformer.copies import Offload, Store
from gnnperf.generate.transformer.memory import RoleMap, every_rank, misplaced_groups, one_per_stage
from gnnperf.generate.transformer.plan import (
    Experts,
    Parallelism,
    Pipeline,
    Recompute,
    Reduction,
    Schedule,
    Sharded,
    Sharding,
    Transformer,
    TransformerPlan,
)
from gnnperf.generate.transformer.read import plan_from

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
