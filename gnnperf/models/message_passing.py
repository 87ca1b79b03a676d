"""One residual round of directed message passing; forward and reverse relations have weights of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gnnperf.data.relations import REVERSE_PREFIX
from gnnperf.models.config import ModelConfig
from gnnperf.schema import Relation

# Device and link nodes only send: as receivers they would be hubs that mix every node with every other.
_WORK_RELATIONS = (
    Relation.FOLLOWS, Relation.LAUNCHES, Relation.WAITS, Relation.FEEDS, Relation.JOINS, Relation.RELEASES,
)  # fmt: skip
FORWARD_RELATIONS: tuple[str, ...] = tuple(map(str, _WORK_RELATIONS))
REVERSE_RELATIONS: tuple[str, ...] = tuple(f"{REVERSE_PREFIX}{r}" for r in _WORK_RELATIONS)
HARDWARE_RELATIONS: tuple[str, ...] = (
    f"{REVERSE_PREFIX}{Relation.RUNS_ON}",  # device -> work
    f"{REVERSE_PREFIX}{Relation.CROSSES}",  # link -> work
)


def message_relations(config: ModelConfig) -> tuple[str, ...]:
    """The relations along which a network of this configuration sends."""
    reverse = REVERSE_RELATIONS if config.reverse else ()
    return (*FORWARD_RELATIONS, *reverse, *(HARDWARE_RELATIONS if config.hardware_nodes else ()))


@dataclass(frozen=True)
class Messages:
    """One relation's edges over the joint node matrix, arranged once for all layers.

    Attributes:
        senders: [num_edges] row of the sender.
        slot: [num_edges] position of the receiver in `receivers`.
        receivers: [r] distinct rows that receive.
        num_senders: [r, 1] float32, senders per receiver.
    """

    senders: Tensor
    slot: Tensor
    receivers: Tensor
    num_senders: Tensor

    def mean(self, state: Tensor) -> Tensor:
        """Mean state of each receiver's senders: [num_nodes, hidden_channels] -> [r, hidden_channels]."""
        total = state.new_zeros(len(self.receivers), state.shape[1])
        return total.index_add(0, self.slot, state[self.senders]) / self.num_senders


def arrange(ends: Tensor) -> Messages:
    """[2, num_edges] sender, receiver -> Messages."""
    receivers, slot = torch.unique(ends[1], return_inverse=True)  # [r], [num_edges]
    count = torch.bincount(slot, minlength=len(receivers)).float()  # [r]
    return Messages(ends[0], slot, receivers, count[:, None])


class MessagePassing(nn.Module):
    """state + W relu(W_own norm(state) + sum over relations of W_r mean of senders), on all node types at once.

    States of all types share one width, so nodes of every type are rows of one matrix and a relation is one
    edge list, whichever types it joins. A relation without edges costs nothing, and a node that receives
    nothing keeps a state (its own part).

    Args:
        hidden_channels: width of the state.
        dropout: share of the update dropped in training.
        relations: those that carry messages.
    """

    def __init__(self, hidden_channels: int, dropout: float, relations: tuple[str, ...]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden_channels)
        self.own = nn.Linear(hidden_channels, hidden_channels)
        self.relations = nn.ModuleDict({r: nn.Linear(hidden_channels, hidden_channels, bias=False) for r in relations})
        self.out = nn.Linear(hidden_channels, hidden_channels)
        self.dropout = nn.Dropout(dropout)

    def forward(self, state: Tensor, messages: Mapping[str, Messages]) -> Tensor:
        """[num_nodes, hidden_channels], relation -> its messages -> [num_nodes, hidden_channels]."""
        normed = self.norm(state)  # [num_nodes, hidden_channels]
        mixed = self.own(normed)  # [num_nodes, hidden_channels]
        for relation, message in messages.items():
            mixed = mixed.index_add(0, message.receivers, self.relations[relation](message.mean(normed)))
        return state + self.dropout(self.out(torch.relu(mixed)))
