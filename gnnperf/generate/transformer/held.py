"""What a rank of a plan holds, in closed form: what a search cuts by, thousands of plans per second.

    always       weights, sums of gradients, optimizer state (Rajbhandari et al. 2020, ZeRO, section 3.1), divided by
                 replicas as the plan shares them
    in flight    what layers keep (Korthikanti et al. 2022) x micro-batches in flight, which follow from the order
    at work      a layer that is computed again, logits in float32, whole parameters of a unit (FSDP)

Work space of single ops and the allocator are not in it, so that no account of tensors is below it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace
from functools import lru_cache

from gnnperf.generate.transformer.activations import recomputed, retained_bytes
from gnnperf.generate.transformer.gradients import held_gradient_dtype
from gnnperf.generate.transformer.items import Store
from gnnperf.generate.transformer.passes import Gradient, Order, stage_passes
from gnnperf.generate.transformer.plan import Recompute, Sharded, TransformerPlan
from gnnperf.generate.transformer.sizes import Count, parameters_of, stage_count
from gnnperf.graph import DTYPE_BYTES

FLOAT_BYTES = DTYPE_BYTES["float32"]
MOMENTS = 2


def held_bytes(plan: TransformerPlan) -> float:
    """Of the rank that holds most."""
    stages = {0, plan.parallelism.pipeline - 1, min(1, plan.parallelism.pipeline - 1)}  # the others hold less
    return max(_stage_bytes(plan, stage) for stage in stages)


def _stage_bytes(plan: TransformerPlan, stage: int) -> float:
    """The most of two moments: all micro-batches in flight, before the first gradient of a step; the update."""
    whole_count, on_host = stage_count(plan, stage), plan.offload.optimizer
    own = whole_count.over(plan) if plan.sharding.shards_update else whole_count
    every_pass, sum_dtype = plan.sharding.reduces_every_pass, held_gradient_dtype(plan)
    weights = _weights_bytes(plan, whole_count)
    sums = float(DTYPE_BYTES[sum_dtype] * (own if every_pass else whole_count).total)
    state = (1 + MOMENTS) * FLOAT_BYTES * own.total if on_host is Store.DEVICE else 0.0  # float32 weights, two moments
    logits_bytes = plan.tokens * plan.vocabulary_per_rank * (FLOAT_BYTES + DTYPE_BYTES[plan.model.dtype])  # twice
    logits = logits_bytes if stage == plan.last_stage else 0.0
    passes = weights + _flying_bytes(plan, stage) + max(_recomputed_bytes(plan), float(logits))
    if not (every_pass and plan.num_micro_batches == 1):
        passes += sums  # else the first ones come when what is in flight has begun to go
    whole = 0.0 if plan.sharding.state is Sharded.PARAMETERS else weights  # else in parts again
    casts = sum_dtype != "float32" and on_host is Store.DEVICE  # gradients in float32 for the update
    return float(state) + max(passes, whole + sums + (FLOAT_BYTES * own.total if casts else 0.0))


def _flying_bytes(plan: TransformerPlan, stage: int) -> float:
    """What layers keep for micro-batches in flight, each in the smallest part of the model on the stage."""
    if plan.offload.activations is not Store.DEVICE:
        return 0.0
    order = plan.order
    parts = [plan.layers_of_part(order.part(stage, chunk)) for chunk in range(order.chunks)]
    retained = min(sum(n * retained_bytes(plan, i) for i, n in _kinds(plan, part)) for part in parts)
    short = replace(order, micro_batches=min(order.micro_batches, 2 * order.parts))
    return retained * most_in_flight(order if order.pipeline.keeps_all else short, stage) if retained else 0.0


def _kinds(plan: TransformerPlan, layers: range) -> Iterator[tuple[int, int]]:
    """A layer of each kind among some in a row, and how many there are."""
    known: dict[Hashable, list[int]] = {}
    if plan.alike and layers:
        first = min(plan.schedule.recomputed_layers or 0, len(layers))  # of a chunk; others keep all
        yield from ((layers[i], n) for i, n in ((0, first), (first, len(layers) - first)) if n)
        return
    for layer in layers:
        kind = plan.has_experts(layer), recomputed(plan, layer)
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


def _weights_bytes(plan: TransformerPlan, count: Count) -> float:
    """In the dtype of products: whole, or what of them is gathered (FSDP): all, or the largest unit."""
    half = DTYPE_BYTES[plan.model.dtype]
    if plan.sharding.state is not Sharded.PARAMETERS or not plan.sharding.reshard_after_forward:
        return float(half * count.total)
    return float(half * max(parameters_of(plan, i).total for i, _ in _kinds(plan, range(plan.model.layers))))


def _recomputed_bytes(plan: TransformerPlan) -> float:
    """What a layer keeps that is computed again, while it is."""
    if plan.schedule.recompute is not Recompute.FULL or plan.schedule.recomputed_layers is not None:
        return 0.0  # the last layers, which keep all, have let it go before others are computed again
    retained = replace(plan, schedule=plan.schedule.without_recomputation())
    return max(retained_bytes(retained, i) for i, _ in _kinds(retained, range(plan.model.layers)))
