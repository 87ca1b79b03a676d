"""One residual round of directed message passing; forward and reverse relations have weights of their own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gnnperf.gnn.data.features import RELATION_ENDS, REVERSE_PREFIX

# Hardware numbers are features of work: device and link nodes neither send nor receive.
MESSAGE_RELATIONS = tuple(f"{prefix}{relation}" for prefix in ("", REVERSE_PREFIX) for relation in RELATION_ENDS)


@dataclass(frozen=True)
class WeightedRows:
    """Sums of weighted rows of a matrix."""

    rows: Tensor  # [num_edges] rows, sum by sum
    first: Tensor  # [num_sums] position of each sum's first row
    weights: Tensor  # [num_edges]

    def of(self, matrix: Tensor) -> Tensor:
        """[n, hidden_channels] -> [num_sums, hidden_channels]; a sum of no rows is 0."""
        weights = self.weights.to(matrix.dtype)
        return nn.functional.embedding_bag(self.rows, matrix, self.first, mode="sum", per_sample_weights=weights)


@dataclass(frozen=True)
class Messages:
    """All edges over the joint node matrix, arranged once for all layers.

    A slot is the mean of one receiver's senders along one relation. Slots are sorted by relation, so that one gather
    makes all of them, and each relation's weights apply to one stretch of rows.
    """

    slots_of: Mapping[str, int]  # relation -> number of its slots; relations without edges are left out
    receivers: Tensor  # [num_slots] receiving row
    to_slots: WeightedRows  # the senders of every slot
    to_senders: WeightedRows  # the same edges by sender, for gradients

    def means(self, state: Tensor) -> Mapping[str, Tensor]:
        """[num_nodes, hidden_channels] -> relation -> its slots, [n, hidden_channels]."""
        slots: Tensor = _Gather.apply(state, self.to_slots, self.to_senders)  # [num_slots, hidden_channels]
        return dict(zip(self.slots_of, slots.split(list(self.slots_of.values())), strict=True))


class _Gather(torch.autograd.Function):
    """Senders -> slots; the gradient goes back along the same edges, which torch's own would sort at every layer."""

    @staticmethod
    def forward(ctx: Any, state: Tensor, to_slots: WeightedRows, to_senders: WeightedRows) -> Tensor:
        ctx.to_senders = to_senders
        return to_slots.of(state)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        return ctx.to_senders.of(gradient.contiguous()), None, None


def arrange(ends: Mapping[str, Tensor], num_nodes: int) -> Messages:
    """Relation -> its edges, [2, num_edges] rows of sender and receiver -> Messages."""
    ends = {relation: edges for relation, edges in ends.items() if edges.shape[1]}
    joint = torch.cat(list(ends.values()), dim=1) if ends else torch.zeros(2, 0, dtype=torch.int64)
    senders, receivers = joint  # [num_edges] each
    counts = torch.tensor([edges.shape[1] for edges in ends.values()], dtype=torch.int64)
    number = torch.arange(len(ends)).repeat_interleave(counts).to(joint.device)  # [num_edges] of the relation
    keys, slot = torch.unique(number * num_nodes + receivers, return_inverse=True)  # [num_slots], [num_edges]
    weights = (1.0 / torch.bincount(slot, minlength=len(keys)))[slot]  # [num_edges] float32
    slots_of = torch.bincount(keys // max(num_nodes, 1), minlength=len(ends)).tolist()
    return Messages(
        dict(zip(ends, slots_of, strict=True)),
        keys % max(num_nodes, 1),
        _weighted_rows(senders, slot, weights, len(keys)),
        _weighted_rows(slot, senders, weights, num_nodes),
    )


def _weighted_rows(rows: Tensor, sums: Tensor, weights: Tensor, num_sums: int) -> WeightedRows:
    """[num_edges] row, the sum it is part of, its weight -> the sums in order."""
    order = torch.argsort(sums, stable=True)  # [num_edges]
    size = torch.bincount(sums, minlength=num_sums)  # [num_sums]
    return WeightedRows(rows[order], size.cumsum(0) - size, weights[order])


class Dropout(nn.Module):
    """Drops a share of the entries in training: by 16 random bits each, where torch draws a number."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, state: Tensor) -> Tensor:
        """Any shape -> the same; entries that remain grow, so that the mean remains."""
        if not self.training or self.share == 0:
            return state
        bits = torch.empty(-(-state.numel() // 4), dtype=torch.int64, device=state.device).random_(-(2**63), None)
        drawn = bits.view(torch.int16)[: state.numel()].view_as(state)  # four per integer, uniform
        return state * (drawn >= round(self.share * 2**16) - 2**15).to(state.dtype).mul_(1.0 / (1.0 - self.share))


class MessagePassing(nn.Module):
    """state + W relu(W_own norm(state) + sum over relations of W_r mean of senders), on all node types at once.

    States of all types share one width, so nodes of every type are rows of one matrix, and a relation is one edge list
    for all types. A relation without edges costs nothing. `dropout` is the share of the update dropped in training.
    """

    def __init__(self, hidden_channels: int, dropout: float, relations: tuple[str, ...]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden_channels)
        self.own = nn.Linear(hidden_channels, hidden_channels)
        self.relations = nn.ModuleDict({r: nn.Linear(hidden_channels, hidden_channels, bias=False) for r in relations})
        self.out = nn.Linear(hidden_channels, hidden_channels)
        self.dropout = Dropout(dropout)

    def forward(self, state: Tensor, messages: Messages) -> Tensor:
        """[num_nodes, hidden_channels] -> [num_nodes, hidden_channels]."""
        normed = self.norm(state)  # [num_nodes, hidden_channels]
        mixed = self.own(normed)  # [num_nodes, hidden_channels]
        if messages.slots_of:
            sent = [self.relations[relation](mean) for relation, mean in messages.means(normed).items()]  # [n, ..] each
            mixed.index_add_(0, messages.receivers, torch.cat(sent))
        return self.dropout(self.out(mixed.relu_())).add_(state)
