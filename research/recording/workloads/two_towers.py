"""Retrieval (Yi et al. 2019): a tower for queries, one for items, negatives from the whole batch; replicated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from research.recording.workloads.replicate import ReplicatedWorkload, Tensors

WORDS = 8  # of a query or an item
TEMPERATURE = 0.1


@dataclass(frozen=True)
class TwoTowers(ReplicatedWorkload, kind="two_towers", width="hidden",
                letters={"vocabulary": "v", "hidden": "h", "layers": "l", "batch": "b"}):  # fmt: skip
    """A retriever.

    Attributes:
        vocabulary: words of each tower.
        hidden: width of words and layers.
        layers: of a tower.
    """

    vocabulary: int = 2000
    hidden: int = 64
    layers: int = 2
    batch: int = 64
    bucket_mb: float = 1.0

    def model(self) -> nn.Module:
        return Retriever(self)

    def draw(self) -> Tensors:
        """Words of queries and of items, both [B, WORDS] int64: an item has those of its query, in reverse."""
        queries = torch.randint(0, self.vocabulary, (self.batch, WORDS))
        return queries, queries.flip(1)

    def loss(self, model: nn.Module, batch: Tensors) -> torch.Tensor:
        """A query has its own item among those of the batch."""
        queries, items = batch
        scores = model(queries, items)  # [B, B]
        return F.cross_entropy(scores, torch.arange(len(scores), device=scores.device))

    def optimizer(self, weights: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adagrad(weights, lr=0.05)


class Retriever(nn.Module):
    """Scores of all queries with all items."""

    def __init__(self, size: TwoTowers) -> None:
        super().__init__()
        self.query, self.item = Tower(size), Tower(size)

    def forward(self, queries: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        """[B, WORDS], [B, WORDS] -> cosines over the temperature, [B, B]."""
        return self.query(queries) @ self.item(items).T / TEMPERATURE


class Tower(nn.Module):
    """Words, their mean, layers, a vector of length 1."""

    def __init__(self, size: TwoTowers) -> None:
        super().__init__()
        self.words = nn.Embedding(size.vocabulary, size.hidden)
        self.layers = nn.Sequential(*(part for _ in range(size.layers) for part in (
            nn.Linear(size.hidden, size.hidden), nn.Tanh())))  # fmt: skip

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """[B, WORDS] -> [B, H]."""
        hidden = self.words(words).mean(dim=1)
        return F.normalize(self.layers(hidden), dim=1)
