"""Which settings of a plan go together, and what is said about those that do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gnnperf.core import InputError, require
from gnnperf.generate.transformer.block import Attention, Kernels
from gnnperf.generate.transformer.compression import SUM, WORK
from gnnperf.generate.transformer.copies import Store
from gnnperf.generate.transformer.sharding import Sharded

if TYPE_CHECKING:
    from gnnperf.generate.transformer.plan import TransformerPlan

EVEN_LOAD = "Experts: every rank is taken to get as many tokens; experts.imbalance says how many the busiest one gets."
UNPACKED = "Compression: {}."


def check(plan: TransformerPlan) -> None:
    """Refuse settings that do not go together.

    Raises:
        InputError: one sentence with the setting, and what it would have to be.
    """
    _check_division(plan)
    _check_block(plan)
    _check_experts(plan)
    _check_sharding(plan)
    _check_offload(plan)


def sentences(plan: TransformerPlan) -> Iterator[str]:
    """What was taken for granted, in sentences."""
    experts, packed = plan.experts, plan.compression
    if experts is not None and experts.capacity_factor is None and experts.imbalance is None:
        yield EVEN_LOAD
    if packed.ratio is not None:
        yield UNPACKED.format(f"not known {WORK}")
    if packed.compresses:
        yield UNPACKED.format(f"not known {SUM}")


def _check_division(plan: TransformerPlan) -> None:
    model, ways, schedule = plan.model, plan.parallelism, plan.schedule
    _divides(ways.tensor, model.heads, "parallelism.tensor", "model.heads")
    parts = ways.pipeline * schedule.chunks
    _divides(parts, model.layers, "parallelism.pipeline x schedule.chunks", "model.layers")
    batch = ways.data * schedule.micro_batch
    _divides(batch, schedule.global_batch, "parallelism.data x schedule.micro_batch", "schedule.global_batch")
    if schedule.chunks > 1:
        require(ways.pipeline > 1, "parallelism.pipeline", ways.pipeline, "more than 1 to interleave chunks")
        _divides(ways.pipeline, plan.num_micro_batches, "parallelism.pipeline", "the number of micro-batches")
    _divides(schedule.checkpoint_every, plan.layers_per_chunk, "schedule.checkpoint_every", "the layers of a chunk")
    if plan.splits_sequence:
        _divides(ways.tensor, model.sequence, "parallelism.tensor", "model.sequence")


def _check_block(plan: TransformerPlan) -> None:
    block, ways = plan.block, plan.parallelism.tensor
    _divides(plan.key_value_heads, plan.model.heads, "block.key_value_heads", "model.heads")
    _divides(ways, plan.key_value_heads, "parallelism.tensor", "block.key_value_heads")
    _divides(ways, plan.mlp_width, "parallelism.tensor", "block.width")
    shared = plan.key_value_heads < plan.model.heads
    require(not shared or block.attention is Attention.FLASH, "block.attention", str(block.attention),
            "flash where block.key_value_heads are fewer than model.heads")  # fmt: skip
    eager = block.kernels is Kernels.EAGER and (block.bias or block.dropout or block.attention is not Attention.FLASH)
    require(not eager, "block.kernels", str(block.kernels), "fused, unless block.bias and block.dropout are false and "
            "block.attention is flash")  # fmt: skip


def _check_experts(plan: TransformerPlan) -> None:
    experts, ways = plan.experts, plan.parallelism
    if experts is None:
        require(ways.expert == 1, "parallelism.expert", ways.expert, "1 for a model without experts")
        return
    _divides(ways.expert, ways.data, "parallelism.expert", "parallelism.data")
    _divides(ways.expert, experts.count, "parallelism.expert", "experts.count")
    _divides(ways.tensor, experts.width or plan.mlp_width, "parallelism.tensor", "experts.width")
    _divides(experts.every, plan.model.layers, "experts.every", "model.layers")
    require(ways.tensor == 1 or ways.sequence, "parallelism.sequence", ways.sequence,
            "true with experts and parallelism.tensor above 1: each rank routes its part of the sequence")  # fmt: skip


def _check_sharding(plan: TransformerPlan) -> None:
    state, ways, schedule = plan.sharding.state, plan.parallelism, plan.schedule
    if state is Sharded.NOTHING:
        return
    require(ways.data > 1, "parallelism.data", ways.data, f"more than 1 to share {state} over replicas")
    require(not plan.sharding.reduces_every_pass or ways.pipeline == 1, "parallelism.pipeline", ways.pipeline,
            f"1 with sharding.state {state}: stages keep whole gradients of micro-batches")  # fmt: skip
    require(state is not Sharded.PARAMETERS or schedule.checkpoint_every == 1, "schedule.checkpoint_every",
            schedule.checkpoint_every, f"1 with sharding.state {state}: one layer is whole at a time")  # fmt: skip


def _check_offload(plan: TransformerPlan) -> None:
    on_host = plan.offload.optimizer is not Store.DEVICE
    shared = plan.sharding.shards_update or plan.parallelism.data == 1
    require(not on_host or shared, "offload.optimizer", str(plan.offload.optimizer),
            "device, unless sharding.state shares the update over the replicas")  # fmt: skip


def _divides(divisor: int, number: int, what: str, of: str) -> None:
    if number % divisor:
        raise InputError(f"{divisor} does not divide {of}, {number}", where=what, allowed=f"a divisor of {number}")
