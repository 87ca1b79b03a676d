"""One-dimensional convolutions over a step's text, one of the encoders of Das & Mannarswamy 2022.

    words of a node -> sum of embeddings + its numbers -> convolutions along the lanes -> residual of the node
                                                                                      \\-> reduced: residual of the step

A node's numbers (the network's features) are added to its text: the same information as the network has, except for
the edges. What runs when is stated by program order by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gnnperf.gnn.data.numbers import WORK_NAMES
from research.baselines.step_head import MAX_RESIDUAL, Reduction, StepHead, joined

KERNEL, DILATIONS = 5, (1, 2, 4)
GAP = (KERNEL // 2) * max(DILATIONS)  # no convolution reaches over it
NUM_NUMBERS = len(WORK_NAMES)


@dataclass(frozen=True)
class Sequences:
    """One step, or a batch of steps.

    Attributes:
        words: [num_words] int64 codes, node after node.
        first: [num_nodes] int64 where each node's words begin.
        numbers: [num_nodes, NUM_NUMBERS] float32.
        position: [num_nodes] int64 place in one long sequence with gaps between lanes.
        reduction: of the nodes.
        target: [num_nodes] float32 log(latency / base), NaN unlabeled.
        weight: [num_nodes] float32 of the node's error.
    """

    words: Tensor
    first: Tensor
    numbers: Tensor
    position: Tensor
    reduction: Reduction
    target: Tensor
    weight: Tensor


class SequenceNetwork(nn.Module):
    """Text and numbers -> residuals of nodes and of steps."""

    def __init__(self, num_words: int, hidden_channels: int) -> None:
        super().__init__()
        width = hidden_channels
        self.words = nn.EmbeddingBag(num_words, width, mode="sum")
        nn.init.normal_(self.words.weight, std=0.1)  # a dozen of them are summed
        self.numbers = nn.Linear(NUM_NUMBERS, width)
        self.mix = nn.Linear(width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in DILATIONS)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(width, width, KERNEL, padding=(KERNEL // 2) * d, dilation=d) for d in DILATIONS
        )
        self.node = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        nn.init.zeros_(self.node[-1].weight)  # type: ignore[arg-type]  # untrained, it answers the base
        nn.init.zeros_(self.node[-1].bias)  # type: ignore[arg-type]
        self.step = StepHead(width)

    def forward(self, text: Sequences) -> tuple[Tensor, Tensor]:
        """([num_nodes] log(latency / base), [num_steps] log(step / base step))."""
        state = self.words(text.words, text.first) + self.numbers(text.numbers)  # [num_nodes, hidden_channels]
        state = self.mix(torch.relu(state))
        length = int(text.position.max()) + 1
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            placed = state.new_zeros(length, state.shape[1]).index_copy(0, text.position, norm(state))
            seen = convolution(placed.T[None])[0].T  # [length, hidden_channels]
            state = state + torch.relu(seen[text.position])
        residual = MAX_RESIDUAL * torch.tanh(self.node(state)[:, 0] / MAX_RESIDUAL)  # [num_nodes]
        return residual, self.step(state, text.reduction)


def batch(texts: Sequence[Sequences]) -> Sequences:
    """Steps one after the other, a gap between them."""
    words = _starts([len(t.words) for t in texts])
    places = _starts([int(t.position.max()) + 1 + GAP for t in texts])
    return Sequences(
        torch.cat([t.words for t in texts]),
        torch.cat([t.first + start for t, start in zip(texts, words, strict=True)]),
        torch.cat([t.numbers for t in texts]),
        torch.cat([t.position + start for t, start in zip(texts, places, strict=True)]),
        joined([t.reduction for t in texts]),
        torch.cat([t.target for t in texts]),
        torch.cat([t.weight for t in texts]),
    )


def _starts(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[:i]) for i in range(len(sizes))]
