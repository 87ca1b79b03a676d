"""What is asked of a transformer that nobody ran: its model, how it is divided over ranks, how a step is scheduled."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from gnnperf.errors import InputError, require

VOCABULARY_MULTIPLE = 128  # Megatron-LM pads the vocabulary to a multiple of it, per tensor-parallel rank
HALF_DTYPES = ("float16", "bfloat16")
MEBIBYTE = 1 << 20


class Pipeline(StrEnum):
    """Order of a stage's forward and backward passes (Narayanan et al. 2021, section 2.2)."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"


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
    """A decoder with learned positions, layer norms, GELU and tied embeddings (GPT-2; Megatron-LM).

    Attributes:
        layers, hidden, heads: of the model.
        sequence: positions of a sample.
        vocabulary: tokens, before they are padded.
        dtype: of weights and activations; the optimizer keeps float32 copies.
    """

    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int = 50257
    dtype: str = "float16"

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "sequence", "vocabulary"):
            require(getattr(self, name) >= 1, f"model.{name}", getattr(self, name), "a whole number from 1 up")
        require(self.dtype in HALF_DTYPES, "model.dtype", self.dtype, ", ".join(HALF_DTYPES))
        require(self.hidden % self.heads == 0, "model.heads", self.heads, f"a divisor of model.hidden, {self.hidden}")


@dataclass(frozen=True)
class Parallelism:
    """How ranks divide the work: tensor ranks are neighbors, then replicas, then stages (Megatron-LM)."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1

    def __post_init__(self) -> None:
        for name in ("tensor", "pipeline", "data"):
            require(getattr(self, name) >= 1, f"parallelism.{name}", getattr(self, name), "a whole number from 1 up")

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.tensor * self.pipeline * self.data


@dataclass(frozen=True)
class Schedule:
    """How a step runs.

    Attributes:
        global_batch: samples of a step, over all replicas.
        micro_batch: samples that pass through the pipeline together.
        pipeline: order of passes.
        chunks: parts of the model that each stage holds; more than one is interleaved.
        recompute: activation checkpointing.
        reduction: when gradients are summed over replicas.
        bucket_bytes: of gradients; they go when so many are ready.
        gradient_dtype: in which gradients of micro-batches are added up, and summed over replicas.
    """

    global_batch: int
    micro_batch: int
    pipeline: Pipeline = Pipeline.ONE_F_ONE_B
    chunks: int = 1
    recompute: Recompute = Recompute.FULL
    reduction: Reduction = Reduction.AT_END
    bucket_bytes: float = 25.0 * MEBIBYTE
    gradient_dtype: str = "float16"

    def __post_init__(self) -> None:
        for name in ("global_batch", "micro_batch", "chunks"):
            require(getattr(self, name) >= 1, f"schedule.{name}", getattr(self, name), "a whole number from 1 up")
        require(self.bucket_bytes > 0, "schedule.bucket_bytes", self.bucket_bytes, "more than 0")
        require(self.gradient_dtype in (*HALF_DTYPES, "float32"), "schedule.gradient_dtype", self.gradient_dtype,
                ", ".join((*HALF_DTYPES, "float32")))  # fmt: skip
        interleaved = self.pipeline is Pipeline.INTERLEAVED
        require(interleaved == (self.chunks > 1), "schedule.chunks", self.chunks,
                "more than 1 with schedule.pipeline interleaved, else 1")  # fmt: skip


@dataclass(frozen=True)
class TransformerPlan:
    """One configuration.

    Attributes:
        name: of the graph.
        model, parallelism, schedule: see there; they are checked against each other.
    """

    name: str
    model: Transformer
    parallelism: Parallelism
    schedule: Schedule

    def __post_init__(self) -> None:
        model, ways, schedule = self.model, self.parallelism, self.schedule
        _divides(ways.tensor, model.heads, "parallelism.tensor", "model.heads")
        _divides(ways.pipeline * schedule.chunks, model.layers, "parallelism.pipeline x schedule.chunks",
                 "model.layers")  # fmt: skip
        _divides(ways.data * schedule.micro_batch, schedule.global_batch, "parallelism.data x schedule.micro_batch",
                 "schedule.global_batch")  # fmt: skip
        if schedule.pipeline is Pipeline.INTERLEAVED:
            require(ways.pipeline > 1, "parallelism.pipeline", ways.pipeline, "more than 1 to interleave chunks")
            _divides(ways.pipeline, self.num_micro_batches, "parallelism.pipeline", "the number of micro-batches")

    @property
    def num_micro_batches(self) -> int:
        """Per replica and step."""
        return self.schedule.global_batch // self.parallelism.data // self.schedule.micro_batch

    @property
    def tokens(self) -> int:
        """Of a micro-batch."""
        return self.schedule.micro_batch * self.model.sequence

    @property
    def layers_per_chunk(self) -> int:
        """Of each part of the model that a stage holds."""
        return self.model.layers // self.parallelism.pipeline // self.schedule.chunks

    @property
    def vocabulary_per_rank(self) -> int:
        """Rows of the embedding on one tensor-parallel rank, padded."""
        multiple = VOCABULARY_MULTIPLE * self.parallelism.tensor
        return math.ceil(self.model.vocabulary / multiple) * multiple // self.parallelism.tensor


def _divides(divisor: int, number: int, what: str, of: str) -> None:
    if number % divisor:
        raise InputError(f"{divisor} does not divide {of}, {number}", where=what, allowed=f"a divisor of {number}")
