"""The typed graph network: encoders -> message passing -> a head per work type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from gnnperf.core import WORK_TYPES, NodeType
from gnnperf.gnn.data.numbers import DEVICE_NAMES, LINK_NAMES, WORK_NAMES
from gnnperf.gnn.data.vocabulary import FIELDS, UNKNOWN, Vocabulary
from gnnperf.gnn.models.message_passing import MessagePassing, Messages, ModelConfig, arrange, message_relations

# Node features -> node states, one encoder per node type.


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


TYPES = tuple(map(str, NodeType))
WORK = tuple(map(str, WORK_TYPES))
MAX_LOG_SPREAD = 4.0
MAX_EXCESS = math.log(2.0)  # between what is usual and what a schedule adds up


@dataclass(frozen=True)
class NodeAnswer:
    """What the network says about nodes of one type.

    Attributes:
        residual: [n] log(latency / base); 0 is the analytical answer.
        log_spread: [n] log of the scale of the error in log space.
        scheduled_residual: [n] log(what a schedule adds up / base): in steps that took about the median time, while
            what is usual holds a share of every stall (data.runs.AloneLabels).
    """

    residual: Tensor
    log_spread: Tensor
    scheduled_residual: Tensor


class Head(nn.Module):
    """State -> NodeAnswer. The last layer starts at zero: an untrained network answers the base."""

    def __init__(self, hidden_channels: int, max_residual: float) -> None:
        super().__init__()
        self.max_residual = max_residual
        self.norm = nn.LayerNorm(hidden_channels)
        self.hidden = nn.Linear(hidden_channels, hidden_channels)
        self.last = nn.Linear(hidden_channels, 3)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, state: Tensor) -> NodeAnswer:
        """[n, hidden_channels] -> three of [n]; what is scheduled beyond the usual never moves the usual."""
        usual, spread, excess = self.last(torch.relu(self.hidden(self.norm(state)))).unbind(1)  # [n] each
        spread = spread.clamp(-MAX_LOG_SPREAD, MAX_LOG_SPREAD)
        residual = _limited(usual, self.max_residual)
        return NodeAnswer(residual, spread, residual.detach() + _limited(excess, MAX_EXCESS))


class TypedGNN(nn.Module):
    """The network: `answers(states(data))`. With num_layers = 0 it is a multi-layer perceptron per node.

    Next to the heads that answer, one per work type tells from a node's state which op it is (`op_logits`). Where ops
    are hidden in training (training.op_class) it has to be given from sizes and neighbors, so the state holds what a
    node does beyond its name, and how sure the head is tells how alike a node is to what was trained on (energy of its
    logits; Liu et al. 2020, "Energy-based out-of-distribution detection").
    """

    def __init__(self, config: ModelConfig, vocabulary: Vocabulary) -> None:
        super().__init__()
        width = config.hidden_channels
        self.encoders = nn.ModuleDict(
            {t: WorkEncoder(len(WORK_NAMES), _num_codes(vocabulary, t), width, config.op_dropout) for t in WORK}
        )
        self.encoders[str(NodeType.DEVICE)] = HardwareEncoder(len(DEVICE_NAMES), width)
        self.encoders[str(NodeType.LINK)] = HardwareEncoder(len(LINK_NAMES), width)
        self.relations, self.num_hops = message_relations(config), config.num_hops
        self.layers = nn.ModuleList(
            MessagePassing(width, config.dropout, self.relations) for _ in range(config.num_layers)
        )
        self.heads = nn.ModuleDict({t: Head(width, config.max_residual) for t in WORK})
        self.op_heads = nn.ModuleDict({t: nn.Linear(width, vocabulary.num_codes(t, "op_name")) for t in WORK})

    def forward(self, data: HeteroData) -> dict[str, NodeAnswer]:
        """One graph or a batch of graphs, normalized -> an answer per work type."""
        return self.in_domain(data, self.answers(self.states(data)))

    def in_domain(self, data: HeteroData, answers: Mapping[str, NodeAnswer]) -> dict[str, NodeAnswer]:
        """The answers, but for collectives beyond the links and groups of training, which keep their base."""
        collective = str(NodeType.COLLECTIVE)
        return {**answers, collective: _where(data[collective].known_collective_model, answers[collective])}

    def answers(self, states: Mapping[str, Tensor]) -> dict[str, NodeAnswer]:
        """Work type -> its nodes' final states, [n, hidden_channels] -> an answer per work type."""
        return {t: self.heads[t](states[t]) for t in WORK}

    def own_states(self, data: HeteroData) -> dict[str, Tensor]:
        """What nodes are by themselves, before any message: work type -> [n, hidden_channels]."""
        return {t: self._encode(data, t) for t in WORK}

    def op_logits(self, states: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Work type -> final states, [n, hidden_channels] -> logits of op_name codes, [n, num_codes]."""
        return {t: self.op_heads[t](states[t]) for t in WORK}

    def states(self, data: HeteroData) -> dict[str, Tensor]:
        """One graph or a batch of graphs, normalized -> final states per work type, [n, hidden_channels]."""
        states = [self._encode(data, t) for t in TYPES]  # per type [n, hidden_channels]
        sizes = [len(s) for s in states]
        state = torch.cat(states)  # [num_nodes, hidden_channels]
        messages = joint_messages(data, dict(zip(TYPES, sizes, strict=True)), self.relations)
        for layer in self.layers:
            state = layer(state, messages)
        parts = dict(zip(TYPES, state.split(sizes), strict=True))
        return {t: parts[t] for t in WORK}

    def shrink(self, node_type: str, share: float) -> None:
        """From here on nodes of this type get this share of their corrections, in log space; of 0 nothing is left.

        Before the limit (ModelConfig.max_residual), which small corrections do not feel. What is scheduled beyond the
        usual stays, except with a share of 0.
        """
        last = self._head(node_type).last
        with torch.no_grad():
            for values in (last.weight, last.bias):
                if share == 0:
                    values.zero_()
                else:
                    values[0] *= share

    def is_silent(self, node_type: str) -> bool:
        """Whether nodes of this type get their base: the head was shrunk to nothing, or had no target to learn."""
        head = self._head(node_type)
        return not bool(head.last.weight[0].any()) and not bool(head.last.bias[0].any())

    def _head(self, node_type: str) -> Head:
        head = self.heads[node_type]
        assert isinstance(head, Head)
        return head

    def _encode(self, data: HeteroData, node_type: str) -> Tensor:
        store = data[node_type]
        encoder = self.encoders[node_type]
        encoded: Tensor = encoder(store.x, store.codes) if node_type in WORK else encoder(store.x)
        return encoded


def _where(known: Tensor, answer: NodeAnswer) -> NodeAnswer:
    """The answer where `known` [n] bool, the base elsewhere."""
    return replace(answer, residual=answer.residual * known, scheduled_residual=answer.scheduled_residual * known)


def _limited(values: Tensor, most: float) -> Tensor:
    """[n] -> [n] within -most to most, smoothly."""
    return most * torch.tanh(values / most)


def joint_messages(data: HeteroData, sizes: Mapping[str, int], relations: tuple[str, ...]) -> Messages:
    """The edges of these relations over rows of the joint node matrix (types in TYPES order)."""
    first: dict[str, int] = {}
    for node_type in TYPES:
        first[node_type] = sum(sizes[t] for t in first)
    result: dict[str, list[Tensor]] = {r: [] for r in relations}
    for src, relation, dst in data.edge_types:
        ends = data[src, relation, dst].edge_index  # [2, num_edges]
        if relation in result:
            result[relation].append(ends + ends.new_tensor([[first[src]], [first[dst]]]))
    return arrange({r: torch.cat(parts, dim=1) for r, parts in result.items() if parts}, sum(sizes.values()))


def _num_codes(vocabulary: Vocabulary, node_type: str) -> tuple[int, ...]:
    return tuple(vocabulary.num_codes(node_type, field) for field in FIELDS)
