"""GraphSAGE with a pooled step head as a row of the comparison: step time only, no latencies of nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import SAGEConv

from gnnperf.core import NodeType
from gnnperf.gnn.data.features import FORWARD_EDGE_TYPES
from gnnperf.gnn.data.numbers import DEVICE_NAMES, LINK_NAMES, WORK_NAMES
from gnnperf.gnn.data.prepare import PreparedData, Step
from gnnperf.gnn.data.vocabulary import FIELDS, Vocabulary
from research.baselines.descent import DESCENT_SPACE, DESCENT_START, Problem, descend, repeatable
from research.baselines.step_head import Reduction, StepHead, joined, one_step
from research.baselines.trees import WORK, joint_codes, work_values
from research.baselines.tuning import Fitted, Range, Settings

# GraphSAGE over one homogeneous graph with a pooled step head.
#
# Kaufman et al. 2021 (MLSys), "A learned performance model for tensor processing units": GraphSAGE, a reduction over
# the nodes of a kernel, a feed-forward layer to its run time; here the "kernel" is the step. Singh et al. 2021 (arXiv
# 2108.12489), a graph model for Halide, uses graph convolutions and features of schedules.

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
        for column, embedding in enumerate(self.words):
            state = state + embedding(graph.codes[:, column])
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


# Few steps, so few weights that decay fast.
POOLED_START: Mapping[str, float] = {**DESCENT_START, "weight_decay": 0.1, "hidden_channels": 32}
POOLED_SPACE: Mapping[str, Range] = {**DESCENT_SPACE, "hidden_channels": Range(16, 96, whole=True)}


@dataclass(frozen=True)
class PooledSage:
    """GraphSAGE -> step time: tuning.Tunable.

    Attributes:
        name: names the settings it is tuned to.
        start, space: of the search.
    """

    name: str = "graphsage_pooled"
    start: Settings = field(default_factory=lambda: POOLED_START)
    space: Mapping[str, Range] = field(default_factory=lambda: POOLED_SPACE)

    def bench(self, data: PreparedData) -> PooledBench:
        return PooledBench(data)


class PooledBench:
    """Training and validation steps as graphs, and what they have to answer.

    Args:
        data: the runs.
    """

    def __init__(self, data: PreparedData) -> None:
        self.vocabulary = data.vocabulary
        self.train = [as_graph(step, data.vocabulary) for step in data.steps["train"]]
        self.val = [as_graph(step, data.vocabulary) for step in data.steps["val"]]
        self.train_target = targets(data.steps["train"], self.train)
        self.val_target = targets(data.steps["val"], self.val)

    def fit(self, settings: Settings, seed: int) -> Fitted:
        """Least absolute error of log step times."""
        with repeatable(seed):
            network = GraphSage(self.vocabulary, int(settings["hidden_channels"]))
            val, val_target = batch(self.val), self.val_target

            def loss(rows: Tensor) -> Tensor:
                answer = network(batch([self.train[i] for i in rows.tolist()]))  # [batch_size]
                return (answer - self.train_target[rows]).abs().mean()

            def val_error() -> float:
                return float((network(val) - val_target).abs().mean())

            error = descend(network, Problem(len(self.train), loss, val_error), settings, seed)
        return Fitted(PooledAnswer(network, self.vocabulary), error)


@dataclass(frozen=True)
class PooledAnswer:
    """Answers of a fitted network.

    Attributes:
        network: in evaluation mode.
        vocabulary: words of the training runs.
    """

    network: GraphSage
    vocabulary: Vocabulary

    def latency_us(self, step: Step) -> None:
        """It has none."""

    @torch.no_grad()
    def step_us(self, step: Step) -> float:
        """base step * exp(answer)."""
        graph = as_graph(step, self.vocabulary)
        return math.exp(float(self.network.eval()(graph)[0]) + float(graph.reduction.log_base_step[0]))


def as_graph(step: Step, vocabulary: Vocabulary) -> Homogeneous:
    return homogeneous(step.data, vocabulary, one_step(step, work_values(step.data, "base_us")))


def targets(steps: Sequence[Step], graphs: Sequence[Homogeneous]) -> Tensor:
    """[num_steps] float32 log(step / base step)."""
    base = torch.cat([g.reduction.log_base_step for g in graphs])
    return torch.tensor([math.log(step.step_us) for step in steps]) - base
