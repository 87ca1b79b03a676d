"""A transformer language model (GPT-2 or BERT layout: pre-norm, GELU) under DistributedDataParallel."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from gnnperf.record.workloads.workload import SEED, Trainer

NUM_BATCHES = 4  # made before the first step and used in turn


@dataclass(frozen=True)
class Transformer:
    """A language model.

    Attributes:
        layers: blocks of attention and perceptron.
        width: size of a token's vector; a multiple of 64 (the size of a head).
        sequence: tokens per sample.
        batch: samples per rank and step.
        vocabulary: number of tokens.
        causal: a decoder (every token predicts the next) or an encoder (every token predicts itself).
        bucket_mb: DDP's bucket: smaller ones give more, earlier all-reduces.
    """

    layers: int = 4
    width: int = 128
    sequence: int = 64
    batch: int = 8
    vocabulary: int = 1000
    causal: bool = True
    bucket_mb: float = 1.0

    @property
    def kind(self) -> str:
        """Which program this is."""
        return "transformer"

    @property
    def name(self) -> str:
        """What differs between the runs of the plan."""
        layout = "gpt" if self.causal else "bert"
        return f"{layout}_l{self.layers}_w{self.width}_s{self.sequence}_b{self.batch}"

    @property
    def parallelism(self) -> dict[str, int]:
        """Replicated."""
        return {"dp": dist.get_world_size()}

    def build(self) -> Trainer:
        """The replicated model and batches."""
        torch.manual_seed(SEED)
        model = DistributedDataParallel(LanguageModel(self), bucket_cap_mb=self.bucket_mb)
        torch.manual_seed(SEED + 1 + dist.get_rank())
        batches = cycle([self._batch() for _ in range(NUM_BATCHES)])

        def forward() -> torch.Tensor:
            tokens, targets = next(batches)
            logits = model(tokens)  # [B, S, V]
            return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

        return Trainer((model,), forward, (torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True),))

    def _batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens and targets, [B, S] int64 each."""
        tokens = torch.randint(0, self.vocabulary, (self.batch, self.sequence + 1))
        if self.causal:
            return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        return tokens[:, 1:].contiguous(), tokens[:, 1:].contiguous()


class LanguageModel(nn.Module):
    """Token and position embeddings, blocks, norm, output layer."""

    def __init__(self, size: Transformer) -> None:
        super().__init__()
        self.token = nn.Embedding(size.vocabulary, size.width)
        self.position = nn.Parameter(torch.zeros(size.sequence, size.width))
        self.blocks = nn.Sequential(*(Block(size.width, size.causal) for _ in range(size.layers)))
        self.norm = nn.LayerNorm(size.width)
        self.output = nn.Linear(size.width, size.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[B, S] int64 -> logits [B, S, V]."""
        vectors = self.token(tokens) + self.position  # [B, S, W]
        logits: torch.Tensor = self.output(self.norm(self.blocks(vectors)))
        return logits


class Block(nn.Module):
    """Attention and perceptron, each behind a norm and around it a residual connection."""

    def __init__(self, width: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = width // 64, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """[B, S, W] -> [B, S, W]."""
        vectors = vectors + self.projection(self._attend(self.norm1(vectors)))
        hidden: torch.Tensor = vectors + self.down(F.gelu(self.up(self.norm2(vectors))))
        return hidden

    def _attend(self, vectors: torch.Tensor) -> torch.Tensor:
        batch, sequence, width = vectors.shape
        split = self.qkv(vectors).view(batch, sequence, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)  # [B, H, S, 64] each
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return mixed.transpose(1, 2).reshape(batch, sequence, width)  # [B, S, W]
