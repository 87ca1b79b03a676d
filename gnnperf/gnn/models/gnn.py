"""The typed graph network: encoders -> message passing -> a head per work type."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from gnnperf.core import WORK_TYPES, NodeType
from gnnperf.gnn.data.numbers import WORK_NAMES
from gnnperf.gnn.data.segments import SegmentedGraph
from gnnperf.gnn.data.vocabulary import FIELDS, UNKNOWN, Vocabulary
from gnnperf.gnn.models.message_passing import MESSAGE_RELATIONS, MessagePassing, Messages, arrange
from gnnperf.gnn.settings import ModelConfig

WORK = tuple(map(str, WORK_TYPES))
MAX_RESIDUAL = 5.0  # |log(latency / base)|: a factor of 148
MAX_NODES = 100_000  # predicted at once; without gradients some 3 KB per node


class WorkEncoder(nn.Module):
    """Node features -> node states: an embedding per categorical field, summed with the encoded numbers.

    `num_codes`: codes per field of data.vocabulary.FIELDS, the unknown one included; `op_dropout`: share of codes
    replaced by the unknown one in training.
    """

    def __init__(self, num_features: int, num_codes: tuple[int, ...], hidden_channels: int, op_dropout: float) -> None:
        super().__init__()
        self.op_dropout = op_dropout
        self.linear = nn.Linear(num_features, hidden_channels)
        self.embeddings = nn.ModuleList(nn.Embedding(n, hidden_channels) for n in num_codes)
        self.mix = nn.Linear(hidden_channels, hidden_channels)

    def forward(self, x: Tensor, codes: Tensor) -> Tensor:
        """[n, num_features], [n, num_fields] int64 -> [n, hidden_channels]."""
        if self.training and self.op_dropout > 0:
            codes = codes.masked_fill(torch.rand(codes.shape, device=codes.device) < self.op_dropout, UNKNOWN)
        state = self.linear(x)  # [n, hidden_channels]
        for field, embedding in enumerate(self.embeddings):
            state += embedding(codes[:, field])
        return self.mix(state.relu_())


@dataclass(frozen=True)
class NodeOutput:
    """Predictions for nodes of one type."""

    residual: Tensor  # [n] log(latency / base); 0 is the base
    # [n] log(scheduled latency / base): in steps of about the median time, while the usual latency contains a share of
    # every stall (data.runs.IsolatedLabels)
    scheduled_residual: Tensor


class Head(nn.Module):
    """State -> NodeOutput. The last layer starts at zero: an untrained network predicts the base."""

    def __init__(self, hidden_channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden_channels)
        self.hidden = nn.Linear(hidden_channels, hidden_channels)
        self.last = nn.Linear(hidden_channels, 2)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, state: Tensor) -> NodeOutput:
        """[n, hidden_channels] -> two of [n], each by its own weights: both are shrunk apart."""
        both = self.last(torch.relu(self.hidden(self.norm(state))))  # [n, 2]
        return NodeOutput(*(MAX_RESIDUAL * torch.tanh(both / MAX_RESIDUAL)).unbind(1))  # limited smoothly


class TypedGNN(nn.Module):
    """The network. With num_layers = 0 it is a multi-layer perceptron per node."""

    def __init__(self, config: ModelConfig, vocabulary: Vocabulary) -> None:
        super().__init__()
        width = config.hidden_channels
        codes = {t: tuple(vocabulary.num_codes(t, field) for field in FIELDS) for t in WORK}
        self.encoders = nn.ModuleDict(
            {t: WorkEncoder(len(WORK_NAMES), codes[t], width, config.op_dropout) for t in WORK}
        )
        self.num_layers = config.num_layers
        rounds = (MessagePassing(width, config.dropout, MESSAGE_RELATIONS) for _ in range(config.num_layers))
        self.layers = nn.ModuleList(rounds)
        self.heads = nn.ModuleDict({t: Head(width) for t in WORK})

    def forward(self, data: HeteroData) -> dict[str, NodeOutput]:
        """One graph or a batch of graphs, normalized -> predictions per work type.

        Collectives outside the links and groups of training keep their base.
        """
        states = [self.encoders[t](data[t].x, data[t].codes) for t in WORK]  # per type [n, hidden_channels]
        sizes = [len(s) for s in states]
        state = torch.cat(states)  # [num_work, hidden_channels]
        messages = joint_messages(data, dict(zip(WORK, sizes, strict=True)))
        for layer in self.layers:
            state = layer(state, messages)
        estimates = {t: self.heads[t](part) for t, part in zip(WORK, state.split(sizes), strict=True)}
        collective = str(NodeType.COLLECTIVE)
        known, estimate = data[collective].known_collective_model, estimates[collective]
        estimates[collective] = NodeOutput(estimate.residual * known, estimate.scheduled_residual * known)
        return estimates

    def matrices(self) -> list[Tensor]:
        """Weights from states to states, [hidden_channels, hidden_channels] each."""
        return [weight for name, weight in self.named_parameters() if weight.ndim == 2
                and (name.startswith("layers.") or name.endswith(("mix.weight", "hidden.weight")))]  # fmt: skip

    def shrink(self, node_type: str, usual: float = 1.0, scheduled: float = 1.0) -> None:
        """Keep these shares of the corrections of a node type, in log space; 0 leaves the base.

        They apply before the limit (MAX_RESIDUAL), which hardly changes small corrections.
        """
        last = self._head(node_type).last
        with torch.no_grad():
            shares = last.bias.new_tensor([usual, scheduled])  # [2]
            last.weight.mul_(shares[:, None])
            last.bias.mul_(shares)

    def is_silent(self, node_type: str) -> bool:
        """Whether nodes of this type get their base: the head was shrunk to nothing, or had no target."""
        last = self._head(node_type).last
        return not bool(last.weight[0].any()) and not bool(last.bias[0].any())

    def _head(self, node_type: str) -> Head:
        head = self.heads[node_type]
        assert isinstance(head, Head)
        return head


def joint_messages(data: HeteroData, sizes: Mapping[str, int]) -> Messages:
    """The edges of MESSAGE_RELATIONS over rows of the joint matrix of work nodes (types in WORK order)."""
    first, total = dict[str, int](), 0
    for node_type in WORK:
        first[node_type], total = total, total + sizes[node_type]
    result: dict[str, list[Tensor]] = {r: [] for r in MESSAGE_RELATIONS}
    for src, relation, dst in data.edge_types:
        if relation in result:
            ends = data[src, relation, dst].edge_index  # [2, num_edges]
            result[relation].append(ends + ends.new_tensor([[first[src]], [first[dst]]]))
    return arrange({r: torch.cat(parts, dim=1) for r, parts in result.items() if parts}, total)


@torch.no_grad()
def outputs_of(network: TypedGNN, data: HeteroData, max_nodes: int = MAX_NODES) -> dict[str, NodeOutput]:
    """Work type -> predictions for all its nodes, in the graph's order; of large graphs by segments.

    The network is in evaluation mode, the graph is normalized; a forward pass takes at most `max_nodes`.
    """
    if (data.num_nodes or 0) <= max_nodes:
        results: dict[str, NodeOutput] = network(data)
        return results
    whole = SegmentedGraph(data, network.num_layers)
    dtype = next(network.parameters()).dtype
    result = {t: torch.full((2, len(data[t].x)), torch.nan, dtype=dtype) for t in WORK}  # fields of NodeOutput
    for window in whole.windows(max_nodes):
        part, inner = whole.cut(window)
        for node_type, estimate in network(part).items():
            rows = torch.from_numpy(whole.places(window, node_type))
            fields = torch.stack([estimate.residual, estimate.scheduled_residual])  # [2, n]
            result[node_type][:, rows] = fields[:, inner[node_type]]
    return {t: NodeOutput(*both) for t, both in result.items()}
