"""What each stage of a planned transformer holds: all the time, and stretch by stretch of its schedule.

    stage 0 of 2, 1F1B    F0 F1 B0 F2 B1 B2     F: embedding, layers, sent     B: sent, layers, embedding

How many micro-batches are in flight is nowhere stated: it follows from the order of passes.

Parameters, gradients and Adam in mixed precision are 2 + 2 + 12 bytes per parameter (Rajbhandari et al. 2020,
arXiv 1910.02054, section 3.1): float32 copies of parameters and two moments. While the optimizer runs, there are
float32 gradients next to, unless they are summed in float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from gnnperf.core import Phase
from gnnperf.generate.transformer.block import Block
from gnnperf.generate.transformer.compression import Compression
from gnnperf.generate.transformer.copies import Offload
from gnnperf.generate.transformer.ends import embedding_backward, embedding_forward, head_backward, head_forward
from gnnperf.generate.transformer.items import Group, Item, Op
from gnnperf.generate.transformer.layer import layer_backward, layer_forward
from gnnperf.generate.transformer.passes import Pass, passes
from gnnperf.generate.transformer.plan import Parallelism, Recompute, Sharding, TransformerPlan
from gnnperf.generate.transformer.sizes import stage_parameters
from gnnperf.generate.transformer.tensors import FLOAT_BYTES, embedding_uses, head_uses, layer_uses
from gnnperf.generate.transformer.update import update, zero_gradients
from gnnperf.generate.uses import NotAccounted, Pair, RankTensors, Stretch, Use, check_accounted, use
from gnnperf.graph import DTYPE_BYTES, parse_call

# Which ranks of a plan stand in its graph, and for how many ranks each stands.
#
# Ranks of one stage do the same work at the same time: tensor ranks and replicas differ in their numbers only. So one
# rank per stage is enough where nothing tells equal ranks apart; its collectives know their group's whole size. This is
# what `plan.fold` finds in a graph of all ranks, known beforehand, so that a large plan is never built in full.
#
#     pipeline 2 x data 2 x tensor 2      rank = tensor + 2 (data + 2 pipeline)
#     stage 0   0 1 | 2 3     -> 0, stands for 4
#     stage 1   4 5 | 6 7     -> 4, stands for 4


@dataclass(frozen=True)
class Role:
    """Where a rank sits: stage of the pipeline, replica, tensor-parallel shard."""

    stage: int
    replica: int
    shard: int


@dataclass(frozen=True)
class RoleMap:
    """The ranks of a graph.

    Attributes:
        ranks: rank -> its role, ascending.
        multiplicity: rank -> number of ranks that it stands for, itself included.
    """

    ranks: dict[int, Role]
    multiplicity: dict[int, int]


def one_per_stage(ways: Parallelism) -> RoleMap:
    """The first rank of each stage, for all of the stage."""
    ranks = {rank_of(role, ways): role for role in (Role(stage, 0, 0) for stage in range(ways.pipeline))}
    return RoleMap(ranks, dict.fromkeys(ranks, ways.tensor * ways.data))


def all_roles(ways: Parallelism) -> Iterator[Role]:
    """One per rank, in order of ranks."""
    for stage, replica, shard in product(range(ways.pipeline), range(ways.data), range(ways.tensor)):
        yield Role(stage, replica, shard)


def every_rank(ways: Parallelism) -> RoleMap:
    """All ranks, each for itself."""
    ranks = {rank_of(role, ways): role for role in all_roles(ways)}
    return RoleMap(ranks, dict.fromkeys(ranks, 1))


def rank_of(role: Role, ways: Parallelism) -> int:
    """Its number in the job."""
    return role.shard + ways.tensor * (role.replica + ways.data * role.stage)


_ADAM, _GRADIENTS_AT = "aten::_fused_adam_", 1  # of its lists: parameters, gradients, two moments
_UPDATE = ("aten::copy_", "aten::mul_", "aten::norm", "aten::mul_", _ADAM, "aten::copy_")
ASSUMED = "Python's names hold no tensor beyond its last use, and a stage lets go of what it has sent"


@dataclass(frozen=True)
class _Pairs:
    first: Pair
    layer: Pair
    last: Pair
    received: Pair  # instead of `first`
    sent: Pair  # instead of `last`


def stage_tensors(plan: TransformerPlan) -> tuple[RankTensors, ...]:
    """The memory of each stage, given for its first rank: its ranks hold the same."""
    _check_settings(plan)
    pairs = _pairs(plan)
    return tuple(_stage(plan, stage, pairs) for stage in range(plan.parallelism.pipeline))


def _check_settings(plan: TransformerPlan) -> None:
    """Refuse what nothing has counted yet: such a rank's memory is another one."""
    ways, schedule = plan.parallelism, plan.schedule
    counted = {
        "sharded data parallelism": plan.sharding == Sharding(),
        "a mixture of experts": plan.experts is None,
        "offloading": plan.offload == Offload(),
        "compression": plan.compression == Compression(),
        "another layer than Megatron-LM's of 2022": plan.block == Block(),
        "sequence parallelism": not ways.sequence,
        "a backward pass in two parts": not schedule.pipeline.splits_backward,
        "checkpointing in parts": schedule.checkpoint_every == 1 and schedule.recomputed_layers is None,
    }
    for setting, known in counted.items():
        if not known:
            raise NotAccounted(setting)


def _stage(plan: TransformerPlan, stage: int, pairs: _Pairs) -> RankTensors:
    ops = [op.name for op in _ops(update(plan, stage))]
    if tuple(ops) != _UPDATE:
        raise NotAccounted(next((o for o in ops if o not in _UPDATE), _ADAM))
    adam = next(op for op in _ops(update(plan, stage)) if op.name == _ADAM)
    lists = parse_call(adam.name, adam.dims, adam.types, adam.values).lists
    sizes = [sum(t.num_bytes for t in result) for result in lists if result]  # float32
    summed = [parse_call(op.name, op.dims, op.types, op.values).tensor(0).num_bytes
              for op in _ops(zero_gradients(plan, stage))]  # fmt: skip
    return RankTensors(
        rank_of(Role(stage, 0, 0), plan.parallelism),
        (stage_parameters(plan, stage) * DTYPE_BYTES[plan.model.dtype],),
        tuple(summed),
        tuple(size for place, size in enumerate(sizes) if place != _GRADIENTS_AT),
        (*_stretches(plan, stage, pairs), Stretch(_optimizer(plan, sizes[_GRADIENTS_AT]), False)),
        assumed=(ASSUMED,),
    )


def _ops(items: Iterable[Item]) -> list[Op]:
    return [item for item in items if isinstance(item, Op)]


def _optimizer(plan: TransformerPlan, gradients_bytes: int) -> Pair:
    """Gradients in float32 are made where they are not summed in it; they go when the next step begins."""
    full = DTYPE_BYTES[plan.schedule.gradient_dtype] == FLOAT_BYTES
    return Pair((Use("aten::copy_", gradients_bytes=() if full else (gradients_bytes,)),), ())


def _pairs(plan: TransformerPlan) -> _Pairs:
    layer, first, last = layer_uses(plan), embedding_uses(plan), head_uses(plan)
    again = layer_forward(plan, 0, Phase.BACKWARD) if plan.schedule.recompute is Recompute.FULL else ()
    for pair, forward, backward in (
        (layer, layer_forward(plan, 0), (*again, *layer_backward(plan, 0))),
        (first, embedding_forward(plan), embedding_backward(plan)),
        (last, head_forward(plan), head_backward(plan)),
    ):
        check_accounted([op.name for op in _ops(forward)], pair.forward)
        check_accounted([op.name for op in _ops(backward)], pair.backward)
    x = layer.enters["x"]
    received = Pair((use("recv", y=x),), (use("send", "dy"),), {"dy": x})
    return _Pairs(first, layer, last, received, Pair((use("send", "x"),), (use("recv", dx=x),), {"x": x}))


def _stretches(plan: TransformerPlan, stage: int, pairs: _Pairs) -> Iterator[Stretch]:
    for each in passes(plan, stage):
        through = _through(plan, stage, each, pairs)
        for pair in reversed(through) if each.backward else through:
            yield Stretch(pair, each.backward)


def _through(plan: TransformerPlan, stage: int, each: Pass, pairs: _Pairs) -> tuple[Pair, ...]:
    """What a pass goes through, in forward order."""
    stages = plan.parallelism.pipeline
    part, last = each.chunk * stages + stage, plan.schedule.chunks * stages - 1
    begin = pairs.received if part else pairs.first
    end = pairs.sent if part < last else pairs.last
    return (begin, *[pairs.layer] * plan.layers_per_chunk, end)


# Groups of a plan that do not lie on machines evenly: equal ranks then have unequal links.


def misplaced_groups(plan: TransformerPlan, ranks_per_node: int) -> tuple[str, ...]:
    """Sentences about groups of which some span more machines than others.

    Args:
        plan: its ranks fill machines in order (gnnperf.generate.transformer.memory).
        ranks_per_node: of a machine.
    """
    ways = plan.parallelism
    extents = {  # group -> ranks in it, ranks from one such block of groups to the next
        Group.TENSOR: (ways.tensor, ways.tensor),
        Group.DATA: (ways.data, ways.tensor * ways.data),
        Group.EXPERT: (ways.expert, ways.tensor * ways.expert),
        Group.EXPERT_DATA: (ways.expert_data if ways.expert > 1 else 1, ways.tensor * ways.data),
    }
    return tuple(
        f"Groups of kind {group!s} lie on machines of {ranks_per_node} ranks in unequal ways; all are answered as the "
        "first one."
        for group, (size, block) in extents.items()
        if size > 1 and ways.world_size > block and ranks_per_node % block and block % ranks_per_node
    )
