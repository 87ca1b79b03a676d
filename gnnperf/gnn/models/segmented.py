"""Answers for graphs of any size: whole where they fit, else by segments, whose inner nodes are answered alike."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from gnnperf.gnn.data.segments import SegmentedGraph
from gnnperf.gnn.models.gnn import WORK, NodeAnswer, TypedGNN

MAX_NODES = 100_000  # answered at once; without gradients some 3 KB per node


@torch.no_grad()
def states_of(network: TypedGNN, data: HeteroData, max_nodes: int = MAX_NODES) -> dict[str, Tensor]:
    """Work type -> final states of all its nodes, [n, hidden_channels], in the graph's order; as answers_of."""
    if (data.num_nodes or 0) <= max_nodes:
        return network.states(data)
    whole = SegmentedGraph(data, network.num_hops)
    results: dict[str, Tensor] = {}
    for window in whole.windows(max_nodes):
        part = whole.cut(window)
        for node_type, states in network.states(part.data).items():
            rows = torch.from_numpy(whole.of_type(window, node_type)) - whole.first[node_type]
            every = results.setdefault(node_type, states.new_zeros(len(data[node_type].x), states.shape[1]))
            every[rows.sort().values] = states[part.inner[node_type]]
    return results


@torch.no_grad()
def answers_of(network: TypedGNN, data: HeteroData, max_nodes: int = MAX_NODES) -> dict[str, NodeAnswer]:
    """Work type -> answers of all its nodes, in the graph's order.

    Args:
        network: in evaluation mode.
        data: one normalized graph.
        max_nodes: what is answered at once.
    """
    if (data.num_nodes or 0) <= max_nodes:
        results: dict[str, NodeAnswer] = network(data)
        return results
    whole = SegmentedGraph(data, network.num_hops)
    dtype = next(network.parameters()).dtype
    result = {t: torch.full((3, len(data[t].x)), torch.nan, dtype=dtype) for t in WORK}  # fields of NodeAnswer
    for window in whole.windows(max_nodes):
        part = whole.cut(window)
        for node_type, answer in network(part.data).items():
            fields = torch.stack([answer.residual, answer.log_spread, answer.scheduled_residual])  # [3, n]
            rows = torch.from_numpy(whole.of_type(window, node_type)) - whole.first[node_type]
            result[node_type][:, rows.sort().values] = fields[:, part.inner[node_type]]
    return {t: NodeAnswer(*whole_type) for t, whole_type in result.items()}
