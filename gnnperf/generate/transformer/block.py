"""What a layer is made of: the parts in which published transformers differ."""

from dataclasses import dataclass
from enum import StrEnum

from gnnperf.core import require


class Attention(StrEnum):
    """How scores are computed."""

    UNFUSED = "unfused"  # every score is written (Megatron-LM of 2021)
    FLASH = "flash"  # one kernel; scores stay on chip, a causal mask is skipped (Dao 2023, FlashAttention-2)


class Norm(StrEnum):
    """Before attention, before the MLP and after the last layer."""

    LAYER = "layer_norm"  # scale and shift (Ba et al. 2016)
    RMS = "rms_norm"  # scale (Zhang and Sennrich 2019)


class Activation(StrEnum):
    """Of the MLP."""

    GELU = "gelu"  # two products
    SWIGLU = "swiglu"  # three, gate and up in one call (Shazeer 2020; Megatron-LM, swiglu)


class Positions(StrEnum):
    """How the model knows them."""

    LEARNED = "learned"  # a second embedding
    ROTARY = "rotary"  # queries and keys are turned, one fused kernel each (Su et al. 2021; TransformerEngine)


class Kernels(StrEnum):
    """How much a layer does at a time."""

    FUSED = "fused"  # Megatron-LM with TransformerEngine, or torch.compile
    EAGER = "eager"  # torch as it is: a product for each weight, a kernel for each elementwise op, rotary in float32


@dataclass(frozen=True)
class Block:
    """The parts of a layer; as they are here, it is that of GPT-2 and of Megatron-LM of 2021."""

    attention: Attention = Attention.UNFUSED
    # heads of keys and values, shared by groups of query heads (Ainslie et al. 2023, GQA); None: as many as of queries.
    key_value_heads: int | None = None
    norm: Norm = Norm.LAYER
    activation: Activation = Activation.GELU
    width: int | None = None  # inner columns of the MLP; None: four times the hidden ones
    positions: Positions = Positions.LEARNED
    bias: bool = True  # whether products have one
    dropout: bool = True  # after embedding, attention and MLP
    tied_embedding: bool = True  # the logits take the embedding's weights; else they have their own
    kernels: Kernels = Kernels.FUSED

    def __post_init__(self) -> None:
        for name in ("key_value_heads", "width"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"block.{name}", value, "a whole number from 1 up")


# Layers whose MLP is one of several experts, chosen by token (Shazeer et al. 2017; Lepikhin et al. 2021, GShard).

MOST_SKEW, MOST_DRAWN = 10.0, 4096  # of experts.skew, and of the experts whose tokens are drawn


@dataclass(frozen=True)
class Experts:
    """Settings of expert layers."""

    count: int  # experts of a layer, over all ranks of an expert-parallel group
    top_k: int = 2  # experts of a token
    every: int = 1  # the last of so many layers has experts; 1: all have
    width: int | None = None  # inner columns of an expert; None: those of the block's MLP
    # each expert takes ceil(factor x tokens x top_k / count) tokens of a rank, padded with zeros, the others are
    # dropped (GShard, Switch); None: none are dropped, and messages are as long as they are (MegaBlocks; Megatron-LM
    # without moe_expert_capacity_factor)
    capacity_factor: float | None = None
    # tokens of the busiest rank over the mean of its group. Without a capacity the others wait for it, so all are
    # priced as it is. None: 1 is taken, and stated in a warning.
    imbalance: float | None = None
    # instead: steps are drawn in which tokens choose the i-th most popular expert in proportion to i^-skew
    # (gnnperf.generate.transformer.routing)
    skew: float | None = None

    def __post_init__(self) -> None:
        for name in ("count", "top_k", "every"):
            require(getattr(self, name) >= 1, f"experts.{name}", getattr(self, name), "a whole number from 1 up")
        require(self.width is None or self.width >= 1, "experts.width", self.width, "a whole number from 1 up")
        require(self.top_k <= self.count, "experts.top_k", self.top_k, f"at most experts.count, {self.count}")
        factor, load = self.capacity_factor, self.imbalance
        require(factor is None or factor > 0, "experts.capacity_factor", factor, "more than 0")
        require(load is None or load >= 1, "experts.imbalance", load, "1 (even) or more")
        require(factor is None or load is None, "experts.imbalance", load,
                "nothing with experts.capacity_factor: an expert then computes its capacity, full or not")  # fmt: skip
        if self.skew is not None:
            require(0 <= self.skew <= MOST_SKEW, "experts.skew", self.skew, f"0 (all alike) to {MOST_SKEW:g}")
            require(self.count <= MOST_DRAWN, "experts.count", self.count, f"at most {MOST_DRAWN:,} with experts.skew")
            require(factor is None and load is None, "experts.skew", self.skew,
                    "nothing with experts.capacity_factor or experts.imbalance")  # fmt: skip

    @property
    def load(self) -> float:
        """Of the busiest rank, over the mean."""
        return 1.0 if self.imbalance is None else self.imbalance

    def has(self, layer: int) -> bool:
        """Whether a layer of the model (from 0) has experts."""
        return (layer + 1) % self.every == 0
