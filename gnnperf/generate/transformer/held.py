"""What a rank of a plan holds, in closed form: what a search cuts by, thousands of plans per second.

    always       weights, sums of gradients, optimizer state (Rajbhandari et al. 2020, ZeRO, section 3.1), divided by
                 replicas as the plan shares them
    in flight    what layers keep (Korthikanti et al. 2022) x micro-batches in flight, which follow from the order
    at work      a layer that is computed again, logits in float32, whole parameters of two units (FSDP)

Work space of single ops and the allocator are not in it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace
from functools import lru_cache

from gnnperf.generate.transformer.copies import Store
from gnnperf.generate.transformer.gradients import held_gradient_dtype
from gnnperf.generate.transformer.passes import Gradient, Order, order_of, stage_passes
from gnnperf.generate.transformer.plan import Recompute, Sharded, TransformerPlan
from gnnperf.generate.transformer.program import ends_checkpoint, recomputed, retained_bytes
from gnnperf.generate.transformer.sizes import (
    first_parameters,
    head_parameters,
    owned_count,
    parameters_of,
    stage_count,
)
from gnnperf.graph import DTYPE_BYTES

FLOAT_BYTES = DTYPE_BYTES["float32"]
MOMENTS = 2


def held_bytes(plan: TransformerPlan) -> float:
    """Of the rank that holds most."""
    stages = {0, plan.parallelism.pipeline - 1, min(1, plan.parallelism.pipeline - 1)}  # the others hold less
    return max(_stage_bytes(plan, stage) for stage in stages)


def _stage_bytes(plan: TransformerPlan, stage: int) -> float:
    order = order_of(plan)
    short = replace(order, micro_batches=min(order.micro_batches, 2 * order.parts))
    whole = order if order.pipeline.keeps_all else short
    kept = 0.0 if plan.offload.activations is not Store.DEVICE else _part_bytes(plan, stage)
    at_work = max(_recomputed_bytes(plan), _logits_bytes(plan, stage))
    held = kept * most_in_flight(whole, stage) if kept else 0.0
    return _always_bytes(plan, stage) + max(held + at_work, _update_bytes(plan, stage))


def _part_bytes(plan: TransformerPlan, stage: int) -> float:
    """What a micro-batch leaves of one part of the model on a stage, the largest one."""
    per, stages = plan.layers_per_chunk, plan.parallelism.pipeline
    parts = [chunk * stages + stage for chunk in range(plan.schedule.chunks if plan.experts else 1)]
    return max(sum(n * retained_bytes(plan, i) for i, n in _kinds(plan, part * per, per)) for part in parts)


def _kinds(plan: TransformerPlan, first: int, number: int) -> Iterator[tuple[int, int]]:
    """A layer of each kind among so many in a row, and how many there are."""
    known: dict[Hashable, list[int]] = {}
    alike = plan.experts is None and plan.schedule.recomputed_layers is None and plan.schedule.checkpoint_every == 1
    if alike:
        yield first, number
        return
    for layer in range(first, first + number):
        kind = plan.has_experts(layer), recomputed(plan, layer), ends_checkpoint(plan, layer)
        known.setdefault(kind, []).append(layer)
    yield from ((layers[0], len(layers)) for layers in known.values())


@lru_cache(maxsize=4096)
def most_in_flight(order: Order, stage: int) -> int:
    """Most passes of a stage whose gradients are still to come; with B and W apart, until W."""
    held = most = 0
    for each in stage_passes(order, stage):
        held += 0 if each.gradient is Gradient.INPUT else -1 if each.backward else 1
        most = max(most, held)
    return most


def _always_bytes(plan: TransformerPlan, stage: int) -> float:
    """Weights, sums of gradients, float32 weights and moments."""
    state, half = plan.sharding.state, DTYPE_BYTES[plan.model.dtype]
    whole, own = stage_count(plan, stage).total, owned_count(plan, stage).total
    summed = DTYPE_BYTES[held_gradient_dtype(plan)] * (own if plan.sharding.reduces_every_pass else whole)
    kept = 0 if plan.offload.optimizer is not Store.DEVICE else (1 + MOMENTS) * FLOAT_BYTES * own
    if state is not Sharded.PARAMETERS:
        return float(half * whole + summed + kept)
    gathered = whole if not plan.sharding.reshard_after_forward else _two_units(plan)
    return float(half * gathered + summed + kept)


def _two_units(plan: TransformerPlan) -> int:
    """Parameters of the largest two units that are whole together: one at work, one gathered ahead."""
    layer = max(parameters_of(plan, i).total for i, _ in _kinds(plan, 0, plan.model.layers))
    ends = sorted((layer, layer, first_parameters(plan), head_parameters(plan)))
    return sum(ends[-2:])


def _recomputed_bytes(plan: TransformerPlan) -> float:
    """What layers keep that are computed again together, while they are."""
    if plan.schedule.recompute is not Recompute.FULL:
        return 0.0
    schedule = replace(plan.schedule, recompute=Recompute.NONE, checkpoint_every=1, recomputed_layers=None)
    kept = replace(plan, schedule=schedule)
    return plan.schedule.checkpoint_every * max(retained_bytes(kept, i) for i, _ in _kinds(kept, 0, plan.model.layers))


def _logits_bytes(plan: TransformerPlan, stage: int) -> float:
    """In the model's dtype and in float32, on the last stage."""
    if stage < plan.parallelism.pipeline - 1:
        return 0.0
    return float(plan.tokens * plan.vocabulary_per_rank * (FLOAT_BYTES + DTYPE_BYTES[plan.model.dtype]))


def _update_bytes(plan: TransformerPlan, stage: int) -> float:
    """Gradients in float32 where they are summed in another dtype."""
    if held_gradient_dtype(plan) == "float32" or plan.offload.optimizer is not Store.DEVICE:
        return 0.0
    return float(FLOAT_BYTES * owned_count(plan, stage).total)
