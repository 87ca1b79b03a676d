"""A graph network (Gilmer et al. 2017): messages along the edges of a random graph, summed at nodes; replicated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from research.recording.workloads.replicate import ReplicatedWorkload, Tensors

FEATURES, CLASSES = 32, 8


@dataclass(frozen=True)
class GraphNetwork(ReplicatedWorkload, kind="graph_network", width="hidden",
                   letters={"layers": "l", "hidden": "h", "nodes": "n", "degree": "d", "batch": "b"}):  # fmt: skip
    """A classifier of nodes.

    Attributes:
        layers: rounds of messages.
        hidden: width of a node's vector.
        nodes: of a graph.
        degree: edges into a node.
        batch: graphs per rank, as one graph of so many parts.
    """

    layers: int = 2
    hidden: int = 64
    nodes: int = 256
    degree: int = 8
    batch: int = 4
    bucket_mb: float = 1.0

    def model(self) -> nn.Module:
        return Network(self)

    def draw(self) -> Tensors:
        """x [N, FEATURES], edge_index [2, E] int64, labels [N] int64.

        A node's label is the largest of the first features of its neighbors' sum.
        """
        num_nodes = self.nodes * self.batch
        x = torch.randn(num_nodes, FEATURES)
        target = torch.arange(num_nodes).repeat_interleave(self.degree)  # [E]
        part = target // self.nodes * self.nodes  # [E] first node of the graph
        source = part + torch.randint(0, self.nodes, target.shape)
        sums = torch.zeros(num_nodes, CLASSES).index_add_(0, target, x[source, :CLASSES])
        return x, torch.stack([source, target]), sums.argmax(dim=1)

    def loss(self, model: nn.Module, batch: Tensors) -> torch.Tensor:
        x, edge_index, labels = batch
        return F.cross_entropy(model(x, edge_index), labels)

    def optimizer(self, weights: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(weights, lr=1e-3, fused=True)


class Network(nn.Module):
    """Encoder, rounds of messages, output layer."""

    def __init__(self, size: GraphNetwork) -> None:
        super().__init__()
        self.encoder = nn.Linear(FEATURES, size.hidden)
        self.rounds = nn.ModuleList(Messages(size.hidden) for _ in range(size.layers))
        self.output = nn.Linear(size.hidden, CLASSES)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """[N, FEATURES], [2, E] -> logits [N, CLASSES]."""
        hidden = F.relu(self.encoder(x))  # [N, H]
        for messages in self.rounds:
            hidden = messages(hidden, edge_index)
        logits: torch.Tensor = self.output(hidden)
        return logits


class Messages(nn.Module):
    """A message per edge from both of its nodes; a node takes their sum."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.message = nn.Linear(2 * hidden, hidden)
        self.update = nn.Linear(2 * hidden, hidden)
        self.norm = nn.LayerNorm(hidden)

    def forward(self, hidden: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """[N, H], [2, E] -> [N, H]."""
        source, target = edge_index
        both = torch.cat([hidden.index_select(0, source), hidden.index_select(0, target)], dim=1)  # [E, 2H]
        sums = torch.zeros_like(hidden).index_add(0, target, F.relu(self.message(both)))  # [N, H]
        result: torch.Tensor = self.norm(hidden + F.relu(self.update(torch.cat([hidden, sums], dim=1))))
        return result
