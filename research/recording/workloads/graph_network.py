"""A graph network (Gilmer et al. 2017): messages along the edges of a random graph, summed at nodes; replicated."""

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

FEATURES, CLASSES = 32, 8
Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # x [N, FEATURES], edge_index [2, E] int64, labels [N] int64


@dataclass(frozen=True)
class GraphNetwork:
    """A classifier of nodes.

    Attributes:
        layers: rounds of messages.
        hidden: width of a node's vector.
        nodes: of a graph.
        degree: edges into a node.
        batch: graphs per rank, as one graph of so many parts.
        bucket_mb: DDP's bucket.
    """

    layers: int = 2
    hidden: int = 64
    nodes: int = 256
    degree: int = 8
    batch: int = 4
    bucket_mb: float = 1.0

    @property
    def kind(self) -> str:
        """Which program this is."""
        return "graph_network"

    @property
    def name(self) -> str:
        """Sizes: graph_network_l2_h64_n256_d8_b4."""
        letters = {"layers": "l", "hidden": "h", "nodes": "n", "degree": "d", "batch": "b"}
        return name_of(self, letters, {"bucket_mb": "mb"})

    @property
    def width(self) -> int:
        """Of a node's vector."""
        return self.hidden

    @property
    def parallelism(self) -> dict[str, int]:
        """Replicated."""
        return {"dp": dist.get_world_size()}

    def build(self) -> Trainer:
        """The replicated model and batches."""
        torch.manual_seed(SEED)
        model = replicate(Network(self).to(device()), self.bucket_mb)
        batches = own_batches(lambda: _batch(self))

        def forward() -> torch.Tensor:
            x, edge_index, labels = next(batches)
            return F.cross_entropy(model(x, edge_index), labels)

        return LossTrainer((model,), forward, (torch.optim.Adam(model.parameters(), lr=1e-3, fused=True),))


def _batch(size: GraphNetwork) -> Batch:
    """A node's label is the largest of the first features of its neighbors' sum."""
    num_nodes = size.nodes * size.batch
    x = torch.randn(num_nodes, FEATURES)
    target = torch.arange(num_nodes).repeat_interleave(size.degree)  # [E]
    part = target // size.nodes * size.nodes  # [E] first node of the graph
    source = part + torch.randint(0, size.nodes, target.shape)
    sums = torch.zeros(num_nodes, CLASSES).index_add_(0, target, x[source, :CLASSES])
    return x.to(device()), torch.stack([source, target]).to(device()), sums.argmax(dim=1).to(device())


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
