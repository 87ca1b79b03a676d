"""Retrieval (Yi et al. 2019): a tower for queries, one for items, negatives from the whole batch; replicated."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from research.recording.workloads.batches import own_batches
from research.recording.workloads.device import device
from research.recording.workloads.names import name_of
from research.recording.workloads.replicate import replicate
from research.recording.workloads.workload import SEED, LossTrainer, Trainer

WORDS = 8  # of a query or an item
TEMPERATURE = 0.1
Batch = tuple[torch.Tensor, torch.Tensor]  # words of queries and of items, both [B, WORDS] int64


@dataclass(frozen=True)
class TwoTowers:
    """A retriever.

    Attributes:
        vocabulary: words of each tower.
        hidden: width of words and layers.
        layers: of a tower.
        batch: pairs per rank.
        bucket_mb: DDP's bucket.
    """

    vocabulary: int = 2000
    hidden: int = 64
    layers: int = 2
    batch: int = 64
    bucket_mb: float = 1.0

    @property
    def kind(self) -> str:
        """Which program this is."""
        return "two_towers"

    @property
    def name(self) -> str:
        """Sizes: two_towers_v2k_h64_l2_b64."""
        letters = {"vocabulary": "v", "hidden": "h", "layers": "l", "batch": "b"}
        return name_of(self, letters, {"bucket_mb": "mb"})

    @property
    def width(self) -> int:
        """Of words and layers."""
        return self.hidden

    @property
    def parallelism(self) -> dict[str, int]:
        """Replicated."""
        return {"dp": dist.get_world_size()}

    def build(self) -> Trainer:
        """The replicated model and batches."""
        torch.manual_seed(SEED)
        model = replicate(Retriever(self).to(device()), self.bucket_mb)
        batches = own_batches(lambda: _batch(self))

        def forward() -> torch.Tensor:
            queries, items = next(batches)
            scores = model(queries, items)  # [B, B]
            return F.cross_entropy(scores, torch.arange(len(scores), device=scores.device))

        return LossTrainer((model,), forward, (torch.optim.Adagrad(model.parameters(), lr=0.05),))


def _batch(size: TwoTowers) -> Batch:
    """An item has the words of its query, in reverse."""
    queries = torch.randint(0, size.vocabulary, (size.batch, WORDS))
    return queries.to(device()), queries.flip(1).to(device())


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
