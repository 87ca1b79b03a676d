"""The plain model: embeddings, pre-norm blocks, output layer, in one sequence, so that it can be cut anywhere.

Between layers vectors are rows, N = B * S of them: products then need no views, and a trace holds fewer ops.
"""

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from research.recording.workloads.workload import repeated, repeats_here

if TYPE_CHECKING:
    from research.recording.workloads.transformer import Transformer

HEAD = 64  # columns of an attention head


def language_model(size: "Transformer") -> nn.Sequential:
    """Inputs, `size.layers` blocks, Head: tokens [B, S] int64 -> logits [N, V]."""
    return nn.Sequential(Inputs(size), *(Block(size) for _ in range(size.layers)), Head(size))


class Inputs(nn.Module):
    """Token and position embeddings."""

    def __init__(self, size: "Transformer") -> None:
        super().__init__()
        self.token = nn.Embedding(size.vocabulary, size.width)
        self.position = nn.Parameter(torch.zeros(size.sequence, size.width))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[B, S] int64 -> [N, W]."""
        places = self.position if tokens.shape[1] == len(self.position) else self.position[: tokens.shape[1]]
        vectors: torch.Tensor = self.token(tokens) + places  # [B, S, W]
        return vectors.flatten(0, 1)


class Head(nn.Module):
    """Norm and output layer."""

    def __init__(self, size: "Transformer") -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size.width)
        self.output = nn.Linear(size.width, size.vocabulary, bias=False)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """[N, W] -> logits [N, V]."""
        logits: torch.Tensor = self.output(self.norm(vectors))
        return logits


class Block(nn.Module):
    """Attention and perceptron, each behind a norm and around it a residual connection.

    What goes into the residual connection has no bias.
    """

    def __init__(self, size: "Transformer") -> None:
        super().__init__()
        width = size.width
        self.causal, self.rows = size.causal, (size.batch, -1) if size.lengths else (-1, size.sequence)
        self.up_times = repeats_here(size.repeats, size.repeating_rank)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv: nn.Module = nn.Linear(width, 3 * width)
        self.projection: nn.Module = nn.Linear(width, width, bias=False)
        self.up: nn.Module = nn.Linear(width, 4 * width)
        self.down: nn.Module = nn.Linear(4 * width, width, bias=False)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """[N, W] -> [N, W]."""
        vectors = vectors + self.projection(self._attend(self.norm1(vectors)))
        hidden: torch.Tensor = vectors + self.down(F.gelu(repeated(self.up, self.up_times, self.norm2(vectors))))
        return hidden

    def _attend(self, vectors: torch.Tensor) -> torch.Tensor:
        """[N, W] -> [N, own heads * 64]: W, or with tensor parallelism this rank's part of it."""
        whole = self.qkv(vectors)  # [N, 3 * own heads * 64]
        heads = whole.shape[1] // (3 * HEAD)
        split = whole.view(*self.rows, 3, heads, HEAD)
        q, k, v = split.permute(2, 0, 3, 1, 4)  # [B, H, S, 64] each
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return mixed.transpose(1, 2).reshape(-1, heads * HEAD)


class Recomputed(nn.Module):
    """A block that keeps nothing but its input: the backward runs its forward again (activation checkpointing)."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """[N, W] -> [N, W]."""
        # nothing here is random: no generator's state needs to be kept
        hidden: torch.Tensor = checkpoint(self.inner, vectors, use_reentrant=False, preserve_rng_state=False)
        return hidden


def recomputed(model: nn.Sequential) -> nn.Sequential:
    """The same sequence, its blocks recomputed."""
    return nn.Sequential(*(Recomputed(part) if isinstance(part, Block) else part for part in model))
