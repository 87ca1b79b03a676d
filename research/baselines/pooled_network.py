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

from gnnperf.core import NodeType
from gnnperf.gnn.data.features import FORWARD_EDGE_TYPES
from gnnperf.gnn.data.numbers import DEVICE_NAMES, LINK_NAMES, WORK_NAMES
from gnnperf.gnn.data.vocabulary import FIELDS, Vocabulary
from research.baselines.step_head import Reduction, StepHead, joined
from research.baselines.trees_table import WORK, joint_codes

NUM_LAYERS = 3
HARDWARE = {str(NodeType.DEVICE): len(DEVICE_NAMES), str(NodeType.LINK): len(LINK_NAMES)}
TYPES = (*WORK, *HARDWARE)


@dataclass(frozen=True)
class Homogeneous:
    """One step, or a batch of steps, as one graph: all work nodes, then all devices, then all links.

    Attributes:
        work: [num_work, WORK_NAMES] float32 numbers.
        codes: [num_work, FIELDS] int64 joint codes.
        hardware: node type -> [n, its features] float32.
        ends: [2, num_edges] int64, both directions of every edge of every relation, no edge twice.
        reduction: of the work nodes.
    """

    work: Tensor
    codes: Tensor
    hardware: dict[str, Tensor]
    ends: Tensor
    reduction: Reduction


class GraphSage(nn.Module):
    """Encoders, NUM_LAYERS of GraphSAGE (mean of neighbors, unit length, residual), step head."""

    def __init__(self, vocabulary: Vocabulary, hidden_channels: int) -> None:
        super().__init__()
        width = hidden_channels
        self.work = nn.Linear(len(WORK_NAMES), width)
        self.words = nn.ModuleList(nn.Embedding(_num_joint(vocabulary, field), width) for field in FIELDS)
        self.hardware = nn.ModuleDict({t: nn.Linear(n, width) for t, n in HARDWARE.items()})
        self.layers = nn.ModuleList(SAGEConv(width, width, normalize=True) for _ in range(NUM_LAYERS))
        self.head = StepHead(width)

    def forward(self, graph: Homogeneous) -> Tensor:
        """[num_steps] log(step / base step)."""
        state = self.work(graph.work)  # [num_work, hidden_channels]
        for field, embedding in enumerate(self.words):
            state = state + embedding(graph.codes[:, field])
        state = torch.cat([state, *(self.hardware[t](graph.hardware[t]) for t in HARDWARE)])
        state = torch.relu(state)  # [num_nodes, hidden_channels]
        for layer in self.layers:
            state = state + torch.relu(layer(state, graph.ends))
        answer: Tensor = self.head(state[: len(graph.work)], graph.reduction)
        return answer


def homogeneous(data: HeteroData, vocabulary: Vocabulary, reduction: Reduction) -> Homogeneous:
    """One step; `reduction` is over its work nodes, type by type in WORK order."""
    return Homogeneous(
        torch.cat([data[t].x for t in WORK]),
        torch.from_numpy(joint_codes(data, vocabulary)),
        {t: data[t].x for t in HARDWARE},
        _ends(data),
        reduction,
    )


def batch(graphs: Sequence[Homogeneous]) -> Homogeneous:
    """Graphs next to each other, no edge between them; rows by type, then by graph."""
    sizes = torch.tensor([[len(g.work), *(len(g.hardware[t]) for t in HARDWARE)] for g in graphs])  # [graphs, kinds]
    of_kind = sizes.sum(0)
    first = of_kind.cumsum(0) - of_kind + sizes.cumsum(0) - sizes  # [graphs, kinds] new first rows
    moved = [_rows(size, start)[g.ends] for g, size, start in zip(graphs, sizes, first, strict=True)]
    return Homogeneous(
        torch.cat([g.work for g in graphs]),
        torch.cat([g.codes for g in graphs]),
        {t: torch.cat([g.hardware[t] for g in graphs]) for t in HARDWARE},
        torch.cat(moved, dim=1),
        joined([g.reduction for g in graphs]),
    )


def _rows(sizes: Tensor, first: Tensor) -> Tensor:
    """[num_nodes of a graph] new row of each, given sizes and first rows of its kinds, [kinds] each."""
    kinds = zip(sizes.tolist(), first.tolist(), strict=True)
    return torch.cat([torch.arange(start, start + size) for size, start in kinds])


def _ends(data: HeteroData) -> Tensor:
    """[2, num_edges]."""
    first = dict(zip(TYPES, _starts([len(data[t].x) for t in TYPES]), strict=True))
    result = [torch.zeros(2, 0, dtype=torch.int64)]
    for src, relation, dst in FORWARD_EDGE_TYPES:
        ends = data[src, relation, dst].edge_index + torch.tensor([[first[src]], [first[dst]]])
        result += [ends, ends.flip(0)]
    return torch.unique(torch.cat(result, dim=1), dim=1)


def _starts(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[:i]) for i in range(len(sizes))]


def _num_joint(vocabulary: Vocabulary, field: str) -> int:
    return sum(vocabulary.num_codes(t, field) for t in WORK)
