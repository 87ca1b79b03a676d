"""The plan of a transformer that never ran: its model, how it is divided over ranks, how a step is scheduled."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from gnnperf.core import InputError, require
from gnnperf.generate.transformer.block import Attention, Block, Experts, Kernels
from gnnperf.generate.transformer.items import Offload, Store
from gnnperf.generate.transformer.passes import Order
from gnnperf.generate.transformer.passes import Pipeline as Pipeline

# What of a replica's state lies in parts over the replicas (Rajbhandari et al. 2020, ZeRO; Zhao et al. 2023, FSDP).


class Sharded(StrEnum):
    """What replicas share instead of holding all of it: each stage of ZeRO adds to those before it.

    Bytes that a rank sends per step, of the parameters' P, with one micro-batch (Rajbhandari et al. 2020, section 7):
    2 P up to GRADIENTS, as an all-reduce has it; 3 P with PARAMETERS.
    """

    NOTHING = "nothing"
    OPTIMIZER = "optimizer"  # ZeRO-1: gradients reduce-scattered, own part updated, parameters all-gathered
    GRADIENTS = "gradients"  # ZeRO-2: reduce-scattered in every backward pass, layer by layer
    PARAMETERS = "parameters"  # ZeRO-3, FSDP2: all-gathered for every layer's forward and again for its backward


@dataclass(frozen=True)
class Sharding:
    """Settings of sharded data parallelism."""

    state: Sharded = Sharded.NOTHING  # what is in parts
    # with PARAMETERS: whole parameters are dropped after a layer's forward pass and gathered again; else they are kept
    # until its backward pass (fully_shard's argument of that name)
    reshard_after_forward: bool = True
    # with OPTIMIZER and sums in buckets: a unit's sum of gradients is made in its first backward pass and goes when
    # every rank has its part (as Llama 3 shards gradients in a pipeline); else all sums stay
    release_gradients: bool = False

    @property
    def reduces_every_pass(self) -> bool:
        """Whether gradients leave the rank in every backward pass, so that none of a whole rank are added up."""
        return self.state in (Sharded.GRADIENTS, Sharded.PARAMETERS)

    @property
    def shards_update(self) -> bool:
        """Whether a rank updates a part only."""
        return self.state is not Sharded.NOTHING


# Which settings of a plan go together, and what is stated about those that do.

EVEN_LOAD = "Experts: every rank is taken to get as many tokens; experts.imbalance or experts.skew state the busiest."
STALE = "Without a flush, gradients are those of the weights before the last update (PipeDream-2BW)."
BUSIEST = "Lengths: in each step the replica with most work stands for all; peak memory is that of the longest samples."


def sentences(plan: "TransformerPlan") -> Iterator[str]:
    """What was taken for granted, in sentences."""
    experts = plan.experts
    if experts is not None and all(one is None for one in (experts.capacity_factor, experts.imbalance, experts.skew)):
        yield EVEN_LOAD
    if not plan.schedule.pipeline.flushes:
        yield STALE
    if plan.lengths is not None:
        yield BUSIEST


TENSOR_CONTEXT = "parallelism.tensor x parallelism.context"


def _check_division(plan: "TransformerPlan") -> None:
    model, ways, schedule = plan.model, plan.parallelism, plan.schedule
    _divides(ways.tensor, model.heads, "parallelism.tensor", "model.heads")
    parts = ways.pipeline * schedule.chunks
    if schedule.ends_as_layers:
        require(ways.pipeline > 1, "schedule.ends_as_layers", True, "false without a pipeline")
        fits = schedule.recomputed_layers is None
        require(fits, "schedule.ends_as_layers", True, "false with schedule.recomputed_layers")
    of = "model.layers and both ends" if schedule.ends_as_layers else "model.layers"
    _divides(parts, plan.placed_layers, "parallelism.pipeline x schedule.chunks", of)
    batch = ways.data * schedule.micro_batch
    _divides(batch, schedule.global_batch, "parallelism.data x schedule.micro_batch", "schedule.global_batch")
    if schedule.chunks > 1:
        require(ways.pipeline > 1, "parallelism.pipeline", ways.pipeline, "more than 1 to interleave chunks")
    if not schedule.pipeline.flushes:
        require(ways.pipeline > 1, "schedule.pipeline", str(schedule.pipeline), "1f1b without a pipeline")
        require(plan.num_micro_batches >= ways.pipeline, "schedule.global_batch", schedule.global_batch, "as many "
                "micro-batches as stages or more: no gradient is older than one step")  # fmt: skip
    if schedule.pipeline is Pipeline.INTERLEAVED:
        _divides(ways.pipeline, plan.num_micro_batches, "parallelism.pipeline", "the number of micro-batches")
    _divides(plan.sequence_parts, model.sequence, TENSOR_CONTEXT, "model.sequence")


def _check_block(plan: "TransformerPlan") -> None:
    block, ways = plan.block, plan.parallelism.tensor
    _divides(plan.key_value_heads, plan.model.heads, "block.key_value_heads", "model.heads")
    _divides(ways, plan.key_value_heads, "parallelism.tensor", "block.key_value_heads")
    _divides(ways, plan.mlp_width, "parallelism.tensor", "block.width")
    context = plan.parallelism.context
    fused = plan.key_value_heads < plan.model.heads or context > 1
    require(not fused or block.attention is Attention.FLASH, "block.attention", str(block.attention),
            "flash with fewer block.key_value_heads than model.heads, or parallelism.context above 1")  # fmt: skip
    if plan.parallelism.context_exchange is ContextExchange.ULYSSES:
        _divides(ways * context, plan.key_value_heads, TENSOR_CONTEXT, "block.key_value_heads")
    eager = block.kernels is Kernels.EAGER and (block.bias or block.dropout or block.attention is not Attention.FLASH)
    require(not eager, "block.kernels", str(block.kernels), "fused, unless block.bias and block.dropout are false and "
            "block.attention is flash")  # fmt: skip


def _check_experts(plan: "TransformerPlan") -> None:
    experts, ways = plan.experts, plan.parallelism
    if experts is None:
        require(ways.expert == 1, "parallelism.expert", ways.expert, "1 for a model without experts")
        return
    _divides(ways.expert, ways.data_context, "parallelism.expert", "parallelism.data x parallelism.context")
    _divides(ways.expert, experts.count, "parallelism.expert", "experts.count")
    _divides(ways.tensor, experts.width or plan.mlp_width, "parallelism.tensor", "experts.width")
    _divides(experts.every, plan.model.layers, "experts.every", "model.layers")
    require(experts.skew is None or plan.lengths is None, "experts.skew", experts.skew, "nothing with lengths")
    require(ways.tensor == 1 or ways.sequence, "parallelism.sequence", ways.sequence,
            "true with experts and parallelism.tensor above 1: each rank routes its part of the sequence")  # fmt: skip


def _check_sharding(plan: "TransformerPlan") -> None:
    state, ways, schedule = plan.sharding.state, plan.parallelism, plan.schedule
    fits = plan.offload.optimizer is Store.DEVICE or plan.sharding.shards_update or ways.data_context == 1
    require(fits, "offload.optimizer", str(plan.offload.optimizer),
            "device, unless sharding.state shares the update over the replicas")  # fmt: skip
    if plan.sharding.release_gradients:
        good = state is Sharded.OPTIMIZER and schedule.reduction is Reduction.BUCKETS
        require(good, "sharding.release_gradients", True, "false without sharding.state optimizer and "
                "schedule.reduction buckets")  # fmt: skip
    if state is Sharded.NOTHING:
        return
    require(ways.data_context > 1, "parallelism.data", ways.data, f"more than 1 to share {state} over replicas")
    require(not plan.sharding.reduces_every_pass or ways.pipeline == 1, "parallelism.pipeline", ways.pipeline,
            f"1 with sharding.state {state}: stages keep whole gradients of micro-batches")  # fmt: skip


def _check_lengths(plan: "TransformerPlan") -> None:
    if plan.lengths is None:
        return
    multiple = plan.lengths.multiple
    longest = -(-max(plan.lengths.values) // multiple) * multiple
    require(longest <= plan.model.sequence, "model.sequence", plan.model.sequence, f"at least {longest:,}, the longest "
            "of lengths in multiples of lengths.multiple")  # fmt: skip
    _divides(plan.sequence_parts, multiple, TENSOR_CONTEXT, "lengths.multiple")


def _divides(divisor: int, number: int, what: str, of: str) -> None:
    if number % divisor:
        raise InputError(f"{divisor} does not divide {of}, {number}", where=what, allowed=f"a divisor of {number}")


@dataclass(frozen=True)
class Lengths:
    """Lengths of samples that differ (gnnperf.generate.transformer.lengths)."""

    # that samples have, each as often as it stands here; model.sequence is the longest that may be
    values: tuple[int, ...]
    draws: int = 20  # steps that are drawn
    multiple: int = 64  # micro-batches are padded to a multiple of it
    seed: int = 0  # of the draws

    def __post_init__(self) -> None:
        require(bool(self.values), "lengths.values", [], "at least one length")
        require(2 <= self.draws <= MAX_DRAWS, "lengths.draws", self.draws, f"a whole number from 2 to {MAX_DRAWS}")
        require(self.multiple >= 1, "lengths.multiple", self.multiple, "a whole number from 1 up")


MAX_PASSES = 1_000_000  # layers x micro-batches: some ten nodes each, gigabytes of graph
MAX_DRAWS = 1000
HALF_DTYPES = ("float16", "bfloat16")
MEBIBYTE = 1 << 20
MLP_FACTOR = 4  # width of the MLP over that of the model, where the block does not say it


class Recompute(StrEnum):
    """What a layer computes once more before its backward pass."""

    NONE = "none"
    SELECTIVE = "selective"  # scores, softmax, dropout, context (Korthikanti et al. 2022, section 5)
    FULL = "full"  # the layer


class Reduction(StrEnum):
    """When gradients are summed over replicas."""

    AT_END = "at_end"  # all of them in one message, after the last backward pass
    BUCKETS = "buckets"  # while the last backward pass runs


@dataclass(frozen=True)
class Transformer:
    """How large a decoder is; what its layers are made of is the plan's block."""

    # layers, hidden, heads: of the model
    layers: int
    hidden: int
    heads: int
    sequence: int  # positions of a sample
    vocabulary: int = 50257  # tokens, before they are padded
    dtype: str = "float16"  # of weights and activations; the optimizer keeps float32 copies
    # to which it is padded per tensor rank (Megatron-LM, make-vocab-size-divisible-by). Products with an odd number of
    # columns cannot use matrix units as they are.
    vocabulary_multiple: int = 128

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "sequence", "vocabulary", "vocabulary_multiple"):
            require(getattr(self, name) >= 1, f"model.{name}", getattr(self, name), "a whole number from 1 up")
        require(self.dtype in HALF_DTYPES, "model.dtype", self.dtype, ", ".join(HALF_DTYPES))
        require(self.hidden % self.heads == 0, "model.heads", self.heads, f"a divisor of model.hidden, {self.hidden}")


class ContextExchange(StrEnum):
    """How queries see the keys and values of other parts of the sequence (gnnperf.generate.transformer.context)."""

    RING = "ring"  # Liu et al. 2023 (arXiv 2310.01889): block by block, next to the attention of the block before
    ALL_GATHER = "all_gather"  # Llama 3 (arXiv 2407.21783, section 3.3.2): all keys and values, then attention
    ULYSSES = "ulysses"  # Jacobs et al. 2023 (arXiv 2309.14509): all-to-alls from parts of the sequence to heads


@dataclass(frozen=True)
class Parallelism:
    """How ranks divide the work: tensor ranks are neighbors, then context ranks, replicas, stages (Megatron-LM)."""

    tensor: int = 1  # ranks of a shard group
    pipeline: int = 1  # stages
    data: int = 1  # replicas
    # replicas or context ranks, side by side, that hold the experts of a layer; each sends tokens to the others
    expert: int = 1
    # tensor ranks divide norms, dropout and residuals too, along the sequence (Korthikanti et al. 2022)
    sequence: bool = False
    context: int = 1  # ranks that divide the sequence of a sample in everything; each holds the same parameters
    context_exchange: ContextExchange = ContextExchange.RING  # what they exchange around attention

    def __post_init__(self) -> None:
        for name in ("tensor", "pipeline", "data", "expert", "context"):
            require(getattr(self, name) >= 1, f"parallelism.{name}", getattr(self, name), "a whole number from 1 up")

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.tensor * self.pipeline * self.data_context

    @property
    def data_context(self) -> int:
        """Ranks that hold the same parameters, over which gradients are summed and state is shared."""
        return self.data * self.context

    @property
    def expert_data(self) -> int:
        """Of those, ranks that hold the same experts."""
        return self.data_context // self.expert


@dataclass(frozen=True)
class Schedule:
    """How a step runs."""

    global_batch: int  # samples of a step, over all replicas
    micro_batch: int  # samples that pass through the pipeline together
    pipeline: Pipeline = Pipeline.ONE_F_ONE_B  # order of passes
    chunks: int = 1  # parts of the model that each stage holds; which numbers are allowed depends on the order
    recompute: Recompute = Recompute.FULL  # activation checkpointing
    reduction: Reduction = Reduction.AT_END  # when gradients are summed over replicas
    bucket_bytes: float = 25.0 * MEBIBYTE  # of gradients; they go when so many are ready
    gradient_dtype: str = "float16"  # in which gradients of micro-batches are added up, and summed over replicas
    # with full recomputation: the first so many layers of a chunk are, the others keep all (Megatron-LM,
    # recompute-method block); None: all
    recomputed_layers: int | None = None
    # embedding and logits count as a layer each where layers are divided over stages, so that the first and the last
    # chunk have one layer less (Megatron-LM, account-for-embedding-in-pipeline-split and
    # account-for-loss-in-pipeline-split)
    ends_as_layers: bool = False

    def __post_init__(self) -> None:
        for name in ("global_batch", "micro_batch", "chunks"):
            require(getattr(self, name) >= 1, f"schedule.{name}", getattr(self, name), "a whole number from 1 up")
        require(self.bucket_bytes > 0, "schedule.bucket_bytes", self.bucket_bytes, "more than 0")
        require(self.gradient_dtype in (*HALF_DTYPES, "float32"), "schedule.gradient_dtype", self.gradient_dtype,
                ", ".join((*HALF_DTYPES, "float32")))  # fmt: skip
        require(self.pipeline.allows(self.chunks), "schedule.chunks", self.chunks, "more than 1 with schedule.pipeline "
                "interleaved or breadth_first, 2 with zb_v or dualpipe_v, else 1")  # fmt: skip
        layers, full = self.recomputed_layers, self.recompute is Recompute.FULL
        require(layers is None or layers >= 0, "schedule.recomputed_layers", layers, "a whole number from 0 up")
        require(full or layers is None, "schedule.recomputed_layers", layers, "nothing without full recomputation")

    def without_recomputation(self) -> "Schedule":
        """The same where everything is kept."""
        return replace(self, recompute=Recompute.NONE, recomputed_layers=None)


@dataclass(frozen=True)
class TransformerPlan:
    """One configuration."""

    name: str  # of the graph
    # model, parallelism, schedule, block, sharding, offload: see there; they are checked against each other
    model: Transformer
    parallelism: Parallelism
    schedule: "Schedule"
    block: Block = field(default_factory=Block)
    experts: Experts | None = None  # of its expert layers; None: there are none
    sharding: Sharding = field(default_factory=Sharding)
    offload: Offload = field(default_factory=Offload)
    lengths: Lengths | None = None  # of samples, where they differ; None: all have model.sequence

    def __post_init__(self) -> None:
        for check in (_check_division, _check_block, _check_experts, _check_sharding, _check_lengths):
            check(self)
        work = self.model.layers * self.num_micro_batches
        require(work <= MAX_PASSES, "schedule.global_batch", self.schedule.global_batch,
                f"layers x micro-batches of a replica up to {MAX_PASSES:,}; here {work:,}")  # fmt: skip

    @cached_property
    def order(self) -> Order:
        """Of passes."""
        schedule = self.schedule
        return Order(schedule.pipeline, self.parallelism.pipeline, self.num_micro_batches, schedule.chunks)

    @property
    def last_stage(self) -> int:
        """The stage of the last layer and the logits; 0: that of the embedding, too."""
        return self.order.stage(self.order.parts - 1)

    @property
    def num_micro_batches(self) -> int:
        """Per replica and step."""
        return self.schedule.global_batch // self.parallelism.data // self.schedule.micro_batch

    @property
    def tokens(self) -> int:
        """Of a micro-batch, on a context rank."""
        return self.schedule.micro_batch * self.model.sequence // self.parallelism.context

    @property
    def resident_tokens(self) -> int:
        """Of a micro-batch, that a rank holds outside of products."""
        return self.tokens // self.parallelism.tensor if self.splits_sequence else self.tokens

    @property
    def splits_sequence(self) -> bool:
        """Whether tensor ranks hold parts of the sequence."""
        return self.parallelism.sequence and self.parallelism.tensor > 1

    @property
    def sequence_parts(self) -> int:
        """Equal parts of a sample's positions; a context rank has two, so that causal work is even."""
        context, tensor = self.parallelism.context, self.parallelism.tensor
        return (2 * context if context > 1 else 1) * (tensor if self.splits_sequence else 1)

    @property
    def layers_per_chunk(self) -> int:
        """Of each part of the model that a stage holds."""
        return self.placed_layers // self.parallelism.pipeline // self.schedule.chunks

    @property
    def placed_layers(self) -> int:
        """What is divided over stages: layers, and the ends where they count as layers."""
        return self.model.layers + 2 * self.schedule.ends_as_layers

    def layers_of_part(self, part: int) -> range:
        """Layers of the model in one of the parts that chunks of stages hold."""
        begin = part * self.layers_per_chunk - self.schedule.ends_as_layers
        return range(max(begin, 0), min(begin + self.layers_per_chunk, self.model.layers))

    @property
    def vocabulary_per_rank(self) -> int:
        """Rows of the embedding on one tensor-parallel rank, padded."""
        multiple = self.model.vocabulary_multiple * self.parallelism.tensor
        return math.ceil(self.model.vocabulary / multiple) * multiple // self.parallelism.tensor

    @property
    def key_value_heads(self) -> int:
        """Of the model."""
        return self.block.key_value_heads or self.model.heads

    @property
    def mlp_width(self) -> int:
        """Inner columns of the MLP."""
        return self.block.width or MLP_FACTOR * self.model.hidden

    @property
    def alike(self) -> bool:
        """Whether all layers have the same parameters."""
        return self.experts is None or self.experts.every == 1

    def has_experts(self, layer: int) -> bool:
        """Whether a layer of the model (from 0) has experts."""
        return self.experts is not None and self.experts.has(layer)
