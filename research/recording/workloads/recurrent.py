"""A recurrent language model: embedding, LSTM (Hochreiter and Schmidhuber 1997), clipped gradients; replicated."""

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
from research.recording.workloads.workload import SEED, At, LossTrainer, Place, Trainer, nothing

VOCABULARY = 256
LARGEST_NORM = 1.0  # of all gradients together


@dataclass(frozen=True)
class Recurrent:
    """A predictor of the next token.

    Attributes:
        layers: of the LSTM.
        hidden: width of tokens and of the state.
        sequence: tokens per sample.
        batch: samples per rank.
        bucket_mb: DDP's bucket.
    """

    layers: int = 1
    hidden: int = 64
    sequence: int = 32
    batch: int = 16
    bucket_mb: float = 1.0

    @property
    def kind(self) -> str:
        """Which program this is."""
        return "recurrent"

    @property
    def name(self) -> str:
        """Sizes: recurrent_l1_h64_s32_b16."""
        return name_of(self, {"layers": "l", "hidden": "h", "sequence": "s", "batch": "b"}, {"bucket_mb": "mb"})

    @property
    def width(self) -> int:
        """Of the state."""
        return self.hidden

    @property
    def parallelism(self) -> dict[str, int]:
        """Replicated."""
        return {"dp": dist.get_world_size()}

    def build(self) -> Trainer:
        """The replicated model and batches."""
        torch.manual_seed(SEED)
        model = replicate(LanguageModel(self).to(device()), self.bucket_mb)
        batches = own_batches(lambda: _batch(self))

        def forward() -> torch.Tensor:
            tokens = next(batches)  # [B, S + 1]
            return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

        optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
        return ClippedTrainer(LossTrainer((model,), forward, (optimizer,)))


def _batch(size: Recurrent) -> torch.Tensor:
    """Tokens that count up from a random one, [B, S + 1] int64."""
    first = torch.randint(0, VOCABULARY, (size.batch, 1))
    return ((first + torch.arange(size.sequence + 1)) % VOCABULARY).to(device())


class LanguageModel(nn.Module):
    """Tokens in, a logit per token of the vocabulary out."""

    def __init__(self, size: Recurrent) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, size.hidden)
        self.lstm = nn.LSTM(size.hidden, size.hidden, size.layers, batch_first=True)
        self.output = nn.Linear(size.hidden, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[B, S] -> logits [B, S, VOCABULARY]."""
        states, _ = self.lstm(self.embedding(tokens))  # [B, S, H]
        logits: torch.Tensor = self.output(states)
        return logits


@dataclass(frozen=True)
class ClippedTrainer:
    """Clips gradients between backward and optimizer.

    Attributes:
        inner: everything else.
    """

    inner: LossTrainer

    @property
    def replicated(self) -> tuple[nn.Module, ...]:
        """Modules whose weights are the same on every rank."""
        return self.inner.replicated

    def step(self, at: At = nothing) -> torch.Tensor:
        """One training step; the loss, [] float32."""

        def clip_at(place: Place) -> None:
            at(place)
            if place is Place.OPTIMIZER:
                nn.utils.clip_grad_norm_(self.inner.replicated[0].parameters(), LARGEST_NORM)

        return self.inner.step(clip_at)
