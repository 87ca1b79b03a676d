"""Layers whose MLP is one of several experts, chosen by token (Shazeer et al. 2017; Lepikhin et al. 2021, GShard)."""

from __future__ import annotations

from dataclasses import dataclass

from gnnperf.core import require


@dataclass(frozen=True)
class Experts:
    """Settings of expert layers.

    Attributes:
        count: experts of a layer, over all ranks of an expert-parallel group.
        top_k: experts of a token.
        every: the last of so many layers has experts; 1: all have.
        width: inner columns of an expert; None: those of the block's MLP.
        capacity_factor: each expert takes ceil(factor x tokens x top_k / count) tokens of a rank, padded with zeros,
            the others are dropped (GShard, Switch); None: none are dropped, and messages are as long as they are
            (MegaBlocks; Megatron-LM without moe_expert_capacity_factor).
        imbalance: tokens of the busiest rank over the mean of its group. Without a capacity the others wait for it, so
            all are priced as it is. None: 1 is taken, and said in a warning.
    """

    count: int
    top_k: int = 2
    every: int = 1
    width: int | None = None
    capacity_factor: float | None = None
    imbalance: float | None = None

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

    @property
    def load(self) -> float:
        """Of the busiest rank, over the mean."""
        return 1.0 if self.imbalance is None else self.imbalance

    def has(self, layer: int) -> bool:
        """Whether a layer of the model (from 0) has experts."""
        return (layer + 1) % self.every == 0
