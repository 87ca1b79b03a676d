"""GraphSAGE over one homogeneous graph with a pooled step head.

Kaufman et al. 2021, "A learned performance model for tensor processing units" (MLSys): GraphSAGE, then a reduction over
the nodes of a kernel, then a feed-forward layer to its run time; here the "kernel" is the step. Singh et al. 2021,
"Using graph neural networks to model the performance of deep neural networks" (arXiv 2108.12489, the graph model for
Halide), differs by graph convolutions and by features of schedules; without schedules, which no one chooses here, it is
this model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import SAGEConv

from gnnperf.gnn.data.features import FORWARD_EDGE_TYPES
from gnnperf.gnn.data.numbers import WORK_NAMES
from gnnperf.gnn.data.vocabulary import FIELDS, Vocabulary
from research.baselines.step_head import Reduction, StepHead, joined
from research.baselines.trees_table import WORK, joint_codes

NUM_LAYERS = 3


@dataclass(frozen=True)
class Homogeneous:
    """One step, or a batch of steps, as one graph.

    Attributes:
        work: [num_work, WORK_NAMES] float32 numbers.
        codes: [num_work, FIELDS] int64 joint codes.
        ends: [2, num_edges] int64, both directions of every edge of every relation, no edge twice.
        reduction: of the work nodes.
    """

    work: Tensor
    codes: Tensor
    ends: Tensor
    reduction: Reduction


class GraphSage(nn.Module):
    """Encoders, NUM_LAYERS of GraphSAGE (mean of neighbors, unit length, residual), step head."""

    def __init__(self, vocabulary: Vocabulary, hidden_channels: int) -> None:
        super().__init__()
        width = hidden_channels
        self.work = nn.Linear(len(WORK_NAMES), width)
        self.words = nn.ModuleList(nn.Embedding(_num_joint(vocabulary, field), width) for field in FIELDS)
        self.layers = nn.ModuleList(SAGEConv(width, width, normalize=True) for _ in range(NUM_LAYERS))
        self.head = StepHead(width)

    def forward(self, graph: Homogeneous) -> Tensor:
        """[num_steps] log(step / base step)."""
        state = self.work(graph.work)  # [num_work, hidden_channels]
        for field, embedding in enumerate(self.words):
            state = state + embedding(graph.codes[:, field])
        state = torch.relu(state)
        for layer in self.layers:
            state = state + torch.relu(layer(state, graph.ends))
        answer: Tensor = self.head(state, graph.reduction)
        return answer


def homogeneous(data: HeteroData, vocabulary: Vocabulary, reduction: Reduction) -> Homogeneous:
    """One step; `reduction` is over its work nodes, type by type in WORK order."""
    return Homogeneous(
        torch.cat([data[t].x for t in WORK]),
        torch.from_numpy(joint_codes(data, vocabulary)),
        _ends(data),
        reduction,
    )


def batch(graphs: Sequence[Homogeneous]) -> Homogeneous:
    """Graphs next to each other, no edge between them."""
    first = _starts([len(g.work) for g in graphs])
    moved = [g.ends + start for g, start in zip(graphs, first, strict=True)]
    return Homogeneous(
        torch.cat([g.work for g in graphs]),
        torch.cat([g.codes for g in graphs]),
        torch.cat(moved, dim=1),
        joined([g.reduction for g in graphs]),
    )


def _ends(data: HeteroData) -> Tensor:
    """[2, num_edges]."""
    first = dict(zip(WORK, _starts([len(data[t].x) for t in WORK]), strict=True))
    result = [torch.zeros(2, 0, dtype=torch.int64)]
    for src, relation, dst in FORWARD_EDGE_TYPES:
        ends = data[src, relation, dst].edge_index + torch.tensor([[first[src]], [first[dst]]])
        result += [ends, ends.flip(0)]
    return torch.unique(torch.cat(result, dim=1), dim=1)


def _starts(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[:i]) for i in range(len(sizes))]


def _num_joint(vocabulary: Vocabulary, field: str) -> int:
    return sum(vocabulary.num_codes(t, field) for t in WORK)
