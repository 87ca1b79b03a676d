"""Shapes of one rank of a plan, which all its ops are made of."""

import math
from collections import Counter
from dataclasses import dataclass

from gnnperf.generate.transformer.block import Activation, Norm, Positions
from gnnperf.generate.transformer.plan import TransformerPlan
from gnnperf.graph import Tensor


@dataclass(frozen=True)
class Sizes:
    """Of one rank, all of its shard."""

    tokens: int  # of a micro-batch
    hidden: int  # columns of the model
    shard: int  # columns of its query heads, hidden / tensor ranks
    batch_heads: int  # samples of a micro-batch x query heads
    sequence: int  # positions of a sample, on a context rank
    head: int  # columns of a head
    dtype: str  # of weights and activations
    gradient_dtype: str  # in which gradients are added up and sent
    batch: int  # samples of a micro-batch
    key_heads: int  # heads of keys, and as many of values
    width: int  # inner columns of the MLP
    resident: int  # tokens that norms, dropout and residuals see: its part of the sequence with sequence parallelism
    adds_gradients: bool  # a weight's gradient is added to that of earlier micro-batches

    @property
    def projected(self) -> int:
        """Columns of queries, keys and values side by side."""
        return self.shard + 2 * self.key_heads * self.head

    @property
    def query_heads(self) -> int:
        """Of a sample."""
        return self.batch_heads // self.batch

    def half(self, *shape: int) -> Tensor:
        """A tensor in the dtype of weights and activations."""
        return Tensor(shape, self.dtype)

    @property
    def x(self) -> Tensor:
        """[tokens, hidden] what goes into a layer's products."""
        return self.half(self.tokens, self.hidden)

    @property
    def stream(self) -> Tensor:
        """[resident, hidden] what goes around them."""
        return self.half(self.resident, self.hidden)

    @property
    def scores(self) -> Tensor:
        """[batch x heads, sequence, sequence]."""
        return self.half(self.batch_heads, self.sequence, self.sequence)

    def by_head(self, *, transposed: bool = False) -> Tensor:
        """Queries, keys or values: [batch x heads, sequence, head], or its transpose."""
        last = (self.head, self.sequence) if transposed else (self.sequence, self.head)
        return self.half(self.batch_heads, *last)

    def heads(self, number: int, positions: int | None = None) -> Tensor:
        """[batch, number, sequence or `positions`, head] as the fused attention of torch takes them."""
        return self.half(self.batch, number, positions or self.sequence, self.head)


def sizes(plan: TransformerPlan) -> Sizes:
    """Of each rank of a plan."""
    model, ways, batch = plan.model, plan.parallelism.tensor, plan.schedule.micro_batch
    return Sizes(
        tokens=plan.tokens, hidden=model.hidden, shard=model.hidden // ways, batch_heads=batch * model.heads // ways,
        sequence=model.sequence // plan.parallelism.context, head=model.hidden // model.heads, dtype=model.dtype,
        gradient_dtype=plan.schedule.gradient_dtype, batch=batch, key_heads=plan.key_value_heads // ways,
        width=plan.mlp_width // ways, resident=plan.resident_tokens,
        adds_gradients=not plan.sharding.reduces_every_pass,
    )  # fmt: skip


ROW_MULTIPLE = 8


@dataclass(frozen=True)
class Routed:
    """Of one rank's part in an expert layer."""

    local: int  # experts on the rank
    width: int  # inner columns of an expert on it
    sent: int  # rows that leave the rank: its tokens, once for each of their experts, or the slots of all experts
    arriving: int  # rows that come to the busiest rank from its expert-parallel group
    # rows of an expert: what arrives, and with tensor parallelism at its neighbors, over the local experts; up to a
    # multiple, as grouped products have no odd strides whatever their rows (Gale et al. 2023)
    computed: int


def routed(plan: TransformerPlan) -> Routed:
    """Of each rank of a plan with experts."""
    experts, ways = plan.experts, plan.parallelism
    assert experts is not None, "only plans with experts have it"
    tokens, local = plan.resident_tokens, experts.count // ways.expert
    sent = tokens * experts.top_k
    if experts.capacity_factor is not None:
        sent = experts.count * math.ceil(experts.capacity_factor * sent / experts.count)
    arriving = math.ceil(sent * experts.load)
    width = (experts.width or plan.mlp_width) // ways.tensor
    rows = math.ceil(arriving * ways.tensor / local / ROW_MULTIPLE) * ROW_MULTIPLE
    return Routed(local, width, sent, arriving, rows)


# How many parameters lie where: every count of a plan, in one place.
#
#                      of one rank                                        gradients are summed over
#     attention        hidden x (queries + 2 keys) + queries x hidden     all replicas
#     MLP              2 products, 3 with SwiGLU                          all replicas
#     router           hidden x experts                                   all replicas
#     experts          local experts x MLP                                replicas that hold the same experts
#     ends             embedding, positions, last norm, untied logits     all replicas
#
# A tensor rank has its columns or rows of every product; norms, positions and the router are on each.


@dataclass(frozen=True)
class Count:
    """Parameters of one rank."""

    shared: int  # that all replicas hold
    expert: int = 0  # that only replicas with the same experts hold

    @property
    def total(self) -> int:
        """Both."""
        return self.shared + self.expert

    def times(self, number: int) -> "Count":
        """Of so many."""
        return Count(number * self.shared, number * self.expert)

    def __add__(self, other: "Count") -> "Count":
        return Count(self.shared + other.shared, self.expert + other.expert)

    def over(self, plan: TransformerPlan) -> "Count":
        """The part of each replica where they share it, the last one padded (even parts, as collectives need them)."""
        ways = plan.parallelism
        return Count(math.ceil(self.shared / ways.data_context), math.ceil(self.expert / ways.expert_data))


def norm_parameters(plan: TransformerPlan) -> int:
    """Scale, and shift where it has one."""
    return plan.model.hidden * (2 if plan.block.norm is Norm.LAYER else 1)


def mlp_parameters(plan: TransformerPlan, width: int, *, bias: bool) -> int:
    """An MLP of `width` inner columns on this rank."""
    up = 2 if plan.block.activation is Activation.SWIGLU else 1
    hidden = plan.model.hidden
    return (up + 1) * hidden * width + (up * width + hidden if bias else 0)


def attention_parameters(plan: TransformerPlan) -> int:
    """Queries, keys and values in one product, and the one after attention."""
    s = sizes(plan)
    return s.hidden * s.projected + s.shard * s.hidden + (s.projected + s.hidden if plan.block.bias else 0)


def layer_parameters(plan: TransformerPlan) -> int:
    """Of one layer without experts on one rank: attention, MLP and their norms."""
    mlp = mlp_parameters(plan, sizes(plan).width, bias=plan.block.bias)
    return attention_parameters(plan) + mlp + 2 * norm_parameters(plan)


def expert_layer_parameters(plan: TransformerPlan) -> "Count":
    """Of one layer with experts on one rank. Experts have no biases (Megatron-LM's grouped products)."""
    assert plan.experts is not None, "only plans with experts have it"
    r, router = routed(plan), plan.model.hidden * plan.experts.count
    shared = attention_parameters(plan) + 2 * norm_parameters(plan) + router
    return Count(shared, r.local * mlp_parameters(plan, r.width, bias=False))


def parameters_of(plan: TransformerPlan, layer: int) -> "Count":
    """Of one layer of the model, with experts or without."""
    return expert_layer_parameters(plan) if plan.has_experts(layer) else Count(layer_parameters(plan))


def embedding_parameters(plan: TransformerPlan) -> int:
    """The rows of the embedding that one rank holds."""
    return plan.vocabulary_per_rank * plan.model.hidden


def first_parameters(plan: TransformerPlan) -> int:
    """Before the first layer: the embedding, and positions where they are learned."""
    learned = plan.block.positions is Positions.LEARNED
    return embedding_parameters(plan) + (plan.model.sequence * plan.model.hidden if learned else 0)


def head_parameters(plan: TransformerPlan) -> int:
    """After the last layer: a norm, and the logits' weights: a copy of the embedding where that is on another stage."""
    own = not plan.block.tied_embedding or plan.last_stage > 0
    return norm_parameters(plan) + (embedding_parameters(plan) if own else 0)


def layers_of(plan: TransformerPlan, stage: int) -> tuple[int, ...]:
    """The layers of a stage, of all its chunks, in the model's order."""
    parts = (plan.order.part(stage, chunk) for chunk in range(plan.schedule.chunks))
    return tuple(layer for part in parts for layer in plan.layers_of_part(part))


def stage_count(plan: TransformerPlan, stage: int) -> "Count":
    """Of one rank of a stage; a last stage of several holds a copy of a tied embedding."""
    layers = layers_of(plan, stage)
    kinds = [plan.alike] * len(layers) if plan.alike else [plan.has_experts(layer) for layer in layers]
    first = dict(zip(reversed(kinds), reversed(layers), strict=True))
    count = sum((parameters_of(plan, first[kind]).times(n) for kind, n in Counter(kinds).items()), Count(0))
    if stage == 0:
        count += Count(first_parameters(plan))
    if stage == plan.last_stage:
        count += Count(head_parameters(plan))
    return count


def owned_count(plan: TransformerPlan, stage: int) -> "Count":
    """Of those, what the rank updates: with sharding its part, else all."""
    whole = stage_count(plan, stage)
    return whole.over(plan) if plan.sharding.shards_update else whole
