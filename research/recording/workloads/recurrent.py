"""A recurrent language model: embedding, LSTM (Hochreiter and Schmidhuber 1997), clipped gradients; replicated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from research.recording.workloads.replicate import ReplicatedWorkload, Tensors
from research.recording.workloads.workload import At, Place, Trainer, nothing

VOCABULARY = 256
LARGEST_NORM = 1.0  # of all gradients together


@dataclass(frozen=True)
class Recurrent(ReplicatedWorkload, kind="recurrent", width="hidden",
                letters={"layers": "l", "hidden": "h", "sequence": "s", "batch": "b"}):  # fmt: skip
    """A predictor of the next token.

    Attributes:
        layers: of the LSTM.
        hidden: width of tokens and of the state.
        sequence: tokens per sample.
    """

    layers: int = 1
    hidden: int = 64
    sequence: int = 32
    batch: int = 16
    bucket_mb: float = 1.0

    def model(self) -> nn.Module:
        return LanguageModel(self)

    def draw(self) -> Tensors:
        """Tokens that count up from a random one, [B, S + 1] int64."""
        first = torch.randint(0, VOCABULARY, (self.batch, 1))
        return ((first + torch.arange(self.sequence + 1)) % VOCABULARY,)

    def loss(self, model: nn.Module, batch: Tensors) -> torch.Tensor:
        (tokens,) = batch  # [B, S + 1]
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    def optimizer(self, weights: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(weights, lr=1.0, momentum=0.9)

    def build(self) -> Trainer:
        """The replicated model, batches and the optimizer, before which gradients are clipped."""
        return ClippedTrainer(super().build())


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

    inner: Trainer

    @property
    def replicated(self) -> tuple[nn.Module, ...]:
        return self.inner.replicated

    def step(self, at: At = nothing) -> torch.Tensor:
        """One training step; the loss, [] float32."""

        def clip_at(place: Place) -> None:
            at(place)
            if place is Place.OPTIMIZER:
                nn.utils.clip_grad_norm_(self.inner.replicated[0].parameters(), LARGEST_NORM)

        return self.inner.step(clip_at)
