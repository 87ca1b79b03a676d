"""Node features -> node states, one encoder per node type."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnnperf.gnn.data.vocabulary import FIELDS, UNKNOWN


class HardwareEncoder(nn.Module):
    """Device and link nodes: numbers only."""

    def __init__(self, num_features: int, hidden_channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_features, hidden_channels)

    def forward(self, x: Tensor) -> Tensor:
        """[n, num_features] -> [n, hidden_channels]."""
        return torch.relu(self.linear(x))


class WorkEncoder(nn.Module):
    """Work nodes: an embedding per categorical field, summed with the encoded numbers.

    Args:
        num_features: numeric features.
        num_codes: words per field of data.vocabulary.FIELDS, the unknown one included.
        hidden_channels: width of the state.
        op_dropout: share of words replaced by the unknown one in training.
    """

    def __init__(self, num_features: int, num_codes: tuple[int, ...], hidden_channels: int, op_dropout: float) -> None:
        super().__init__()
        assert len(num_codes) == len(FIELDS)
        self.op_dropout = op_dropout
        self.linear = nn.Linear(num_features, hidden_channels)
        self.embeddings = nn.ModuleList(nn.Embedding(n, hidden_channels) for n in num_codes)
        self.mix = nn.Linear(hidden_channels, hidden_channels)

    def forward(self, x: Tensor, codes: Tensor) -> Tensor:
        """[n, num_features], [n, num_fields] int64 -> [n, hidden_channels]."""
        if self.training and self.op_dropout > 0:
            codes = codes.masked_fill(
                torch.rand(codes.shape, device=codes.device) < self.op_dropout, UNKNOWN
            )  # [n, num_fields]
        state = self.linear(x)  # [n, hidden_channels]
        for field, embedding in enumerate(self.embeddings):
            state = state + embedding(codes[:, field])
        return self.mix(torch.relu(state))
