"""Shapes of one rank of a plan, which all its ops are made of."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gnnperf.generate.transformer.plan import TransformerPlan
from gnnperf.graph import Tensor


@dataclass(frozen=True)
class Sizes:
    """Of one rank, all of its shard.

    Attributes:
        tokens: of a micro-batch.
        hidden: columns of the model.
        shard: columns of its query heads, hidden / tensor ranks.
        batch_heads: samples of a micro-batch x query heads.
        sequence: positions of a sample.
        head: columns of a head.
        dtype: of weights and activations.
        gradient_dtype: in which gradients are added up and sent.
        batch: samples of a micro-batch.
        key_heads: heads of keys, and as many of values.
        width: inner columns of the MLP.
        resident: tokens that norms, dropout and residuals see: its part of the sequence with sequence parallelism.
        adds_gradients: a weight's gradient is added to that of earlier micro-batches.
    """

    tokens: int
    hidden: int
    shard: int
    batch_heads: int
    sequence: int
    head: int
    dtype: str
    gradient_dtype: str
    batch: int
    key_heads: int
    width: int
    resident: int
    adds_gradients: bool

    @property
    def projected(self) -> int:
        """Columns of queries, keys and values side by side."""
        return self.shard + 2 * self.key_heads * self.head

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

    def heads(self, number: int) -> Tensor:
        """[batch, number, sequence, head] as the fused attention of torch takes them."""
        return self.half(self.batch, number, self.sequence, self.head)


def sizes(plan: TransformerPlan) -> Sizes:
    """Of each rank of a plan."""
    model, ways, batch = plan.model, plan.parallelism.tensor, plan.schedule.micro_batch
    return Sizes(
        tokens=plan.tokens, hidden=model.hidden, shard=model.hidden // ways, batch_heads=batch * model.heads // ways,
        sequence=model.sequence, head=model.hidden // model.heads, dtype=model.dtype,
        gradient_dtype=plan.schedule.gradient_dtype, batch=batch, key_heads=plan.key_value_heads // ways,
        width=plan.mlp_width // ways, resident=plan.resident_tokens,
        adds_gradients=not plan.sharding.reduces_every_pass,
    )  # fmt: skip


@dataclass(frozen=True)
class Routed:
    """Of one rank's part in an expert layer.

    Attributes:
        local: experts on the rank.
        width: inner columns of an expert on it.
        sent: rows that leave the rank: its tokens, once for each of their experts, or the slots of all experts.
        arriving: rows that come to the busiest rank from its expert-parallel group.
        computed: rows of an expert: what arrives, and with tensor parallelism at its neighbors, over the local experts.
    """

    local: int
    width: int
    sent: int
    arriving: int
    computed: int


def routed(plan: TransformerPlan) -> Routed:
    """Of each rank of a plan with experts."""
    experts, ways = plan.experts, plan.parallelism
    assert experts is not None, "asked of plans with experts only"
    tokens, local = plan.resident_tokens, experts.count // ways.expert
    sent = tokens * experts.top_k
    if experts.capacity_factor is not None:
        sent = experts.count * math.ceil(experts.capacity_factor * sent / experts.count)
    arriving = math.ceil(sent * experts.load)
    width = (experts.width or plan.mlp_width) // ways.tensor
    return Routed(local, width, sent, arriving, math.ceil(arriving * ways.tensor / local))
