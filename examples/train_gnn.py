"""Train a small graph neural network in plain PyG on recorded steps, and evaluate it.

    python examples/train_gnn.py [--epochs 20] [--axis demo]

It predicts log(latency / analytical latency) per node. The analytical model is the baseline in the last line.
"""

from __future__ import annotations

import argparse
import copy

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.loader import DataLoader
from torch_geometric.nn import HeteroConv, SAGEConv

from gnnperf.datasets import NODE_TYPES, Evaluator, ExecutionGraphs


class SmallGNN(nn.Module):
    """One round of messages along the relations that are not empty, then a linear layer per node type."""

    def __init__(self, sample: HeteroData, hidden_channels: int = 32) -> None:
        """`sample` has the node and edge types."""
        super().__init__()
        self.encode = nn.ModuleDict({t: nn.Linear(sample[t].x.size(1), hidden_channels) for t in sample.node_types})
        self.edge_types = [e for e in sample.edge_types if sample[e].edge_index.numel()]
        convs = {e: SAGEConv((hidden_channels, hidden_channels), hidden_channels) for e in self.edge_types}
        self.conv = HeteroConv(convs, aggr="sum")
        self.head = nn.ModuleDict({t: nn.Linear(2 * hidden_channels, 1) for t in NODE_TYPES})

    def forward(self, graph: HeteroData) -> dict[str, Tensor]:
        """Node type -> [num_nodes] log(latency / base)."""
        h = {t: self.encode[t](graph[t].x).relu() for t in graph.node_types}
        messages = self.conv(h, {e: graph[e].edge_index for e in self.edge_types})
        states = {t: torch.cat([h[t], messages.get(t, torch.zeros_like(h[t])).relu()], dim=1) for t in NODE_TYPES}
        return {t: self.head[t](states[t]).squeeze(-1) for t in NODE_TYPES}


def loss(model: SmallGNN, graph: HeteroData) -> Tensor:
    """Mean absolute error in log(latency) over labeled nodes."""
    residual, errors = model(graph), []
    for t in NODE_TYPES:
        store = graph[t]
        labeled = (store.latency_us > 0) & (store.base_us > 0)
        target = (store.latency_us[labeled] / store.base_us[labeled]).log()
        errors.append((residual[t][labeled] - target).abs())
    return torch.cat(errors).mean()


def trained(graphs: ExecutionGraphs, epochs: int, start: SmallGNN | None = None, lr: float = 3e-3) -> SmallGNN:
    """A network, trained on all graphs; a copy of `start` trains on."""
    torch.manual_seed(0)
    model = SmallGNN(graphs[0]) if start is None else copy.deepcopy(start)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for epoch in range(epochs):
        losses = []
        for graph in DataLoader(graphs, batch_size=4, shuffle=True):
            optimizer.zero_grad()
            value = loss(model, graph)
            value.backward()
            optimizer.step()
            losses.append(float(value.detach()))
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")
    return model


def predict(model: SmallGNN, graph: HeteroData) -> dict[str, Tensor]:
    """Node type -> [num_nodes] latency in us."""
    with torch.no_grad():
        return {t: (graph[t].base_us * r.exp()).float() for t, r in model(graph).items()}


def main() -> None:
    """Train on programs of the training part, evaluate on the test part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default="datasets")
    parser.add_argument("--axis", default="demo")
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    train, test = (ExecutionGraphs(args.root, axis=args.axis, split=part) for part in ("train", "test"))
    model = trained(train, args.epochs)
    base = [{t: graph[t].base_us.float() for t in NODE_TYPES} for graph in test]
    for name, latency_us in (("network", [predict(model, graph) for graph in test]), ("analytical", base)):
        print(name, {key: round(value, 4) for key, value in Evaluator(test).evaluate(latency_us).items()})


if __name__ == "__main__":
    main()
