"""The sequence model as a row of the comparison: latencies of nodes, and step times in the better of two ways.

Either the network tells them directly, as Das & Mannarswamy do, or its latencies are scheduled, as everyone else's are.
The validation runs decide: a comparison is with the best that a row can do.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from gnnperf.core import NodeType
from gnnperf.gnn.data.floors import texts_of
from gnnperf.gnn.data.numbers import DEVICE_NAMES, LINK_NAMES, WORK_NAMES
from gnnperf.gnn.data.prepare import PreparedData, Step
from gnnperf.gnn.data.step_time import IsolatedPrediction, contended_step_time_us, in_place_us
from gnnperf.gnn.data.vocabulary import FIELDS, field_column
from gnnperf.graph import ExecutionGraph, lane_keys
from gnnperf.schedule import timed_edges
from research.baselines.descent import DESCENT_SPACE, DESCENT_START, Problem, descend, repeatable
from research.baselines.judge import Answer
from research.baselines.step_head import MAX_RESIDUAL, Reduction, StepHead, joined, one_step
from research.baselines.trees import SHARE_WEIGHT, WORK, work_values
from research.baselines.tuning import Fitted, Range, Settings

# A step as text: per node a group of words in program order, lane by lane.
#
# Das & Mannarswamy, "ML-driven hardware cost model for MLIR" (LLVM Developers' Meeting 2022, arXiv 2302.11405), read a
# program as a sequence of words, ops with the types of their operands: "aten::mm"(tensor<128x192xf32>, ...) gives
# aten::mm, 128x192, f32. Here likewise, and each size also as a word of its own and by its logarithm, so that a size
# never seen is not only "unknown".

UNKNOWN_WORD = 0
MIN_STEPS = 2  # a word of a single training step is read as unknown, so that the unknown word is trained
MAX_ARGUMENTS, MAX_DIMS = 6, 5  # beyond them arguments and dimensions go unread


@dataclass(frozen=True)
class Words:
    """Words of training steps -> codes from 1; 0 is unknown."""

    code: dict[str, int]

    def __len__(self) -> int:
        return len(self.code) + 1


@dataclass(frozen=True)
class Text:
    """Groups of words of n nodes.

    Attributes:
        codes: [num_words] int64, the groups one after the other.
        first: [n] int64 where each group begins.
    """

    codes: np.ndarray
    first: np.ndarray


def fit_words(steps: Sequence[pd.DataFrame]) -> Words:
    """Words of node tables of training steps, in alphabetical order."""
    seen = Counter(word for nodes in steps for word in {w for group in _groups(nodes)[0] for w in group})
    return Words({word: i + 1 for i, word in enumerate(sorted(w for w, n in seen.items() if n >= MIN_STEPS))})


def text_of(nodes: pd.DataFrame, words: Words) -> Text:
    """Text of the rows of a node table, in their order."""
    distinct, rows = _groups(nodes)
    coded = [np.array([words.code.get(w, UNKNOWN_WORD) for w in group], dtype=np.int64) for group in distinct]
    groups = [coded[row] for row in rows]
    first = np.cumsum([0, *(len(g) for g in groups)])[:-1]
    return Text(np.concatenate([np.zeros(0, dtype=np.int64), *groups]), first)


def program_order(graph: ExecutionGraph, rows: np.ndarray, gap: int) -> np.ndarray:
    """[len(rows)] positions in one sequence: lane after lane, `gap` free positions between lanes.

    Within a lane as its edges order them. Nodes without a lane (collectives) are a lane of their own.

    Args:
        graph: one step.
        rows: [n] rows of the node table.
        gap: free positions, so that a convolution does not see over them.
    """
    rank = np.empty(graph.num_nodes, dtype=np.int64)
    rank[timed_edges(graph).order] = np.arange(graph.num_nodes)
    _, lane = np.unique(lane_keys(graph.nodes)[rows], return_inverse=True)  # [n] from 0
    order = np.lexsort((rank[rows], lane))
    position = np.empty(len(rows), dtype=np.int64)
    position[order] = np.arange(len(rows)) + gap * lane[order]
    return position


def _groups(nodes: pd.DataFrame) -> tuple[list[tuple[str, ...]], np.ndarray]:
    """Distinct groups of words, and [num_nodes] which of them each node has."""
    columns = {name: texts_of(field_column(nodes, name)) for name in FIELDS}
    columns |= {
        name: nodes[name].astype(object).fillna("").astype(str).to_numpy() for name in ("node_type", "input_dims")
    }
    table = pd.DataFrame(columns)
    codes = table.groupby(list(table.columns), sort=False).ngroup().to_numpy()  # [num_nodes]
    firsts = table[~pd.Series(codes).duplicated().to_numpy()]
    return [_words({str(k): str(v) for k, v in row.items()}) for row in firsts.to_dict("records")], codes


def _words(row: dict[str, str]) -> tuple[str, ...]:
    """One node's words: what it is, then the types of its arguments."""
    sentences = tuple(f"{name}={row[name]}" for name in ("node_type", *FIELDS) if row[name])
    return (*sentences, f"{row['node_type']} {row['op_name']}", *_size_words(row["input_dims"]))


@cache
def _size_words(text: str) -> tuple[str, ...]:
    """[[128,192],[]] -> 0:128x192, 0.0:128, 0.0~7, 0.1:192, 0.1~7.6: whole type, each size, its log2 to a fifth."""
    try:
        arguments = json.loads(text) if text else []
    except ValueError:
        return ("unreadable",)
    shapes = list(_shapes(arguments))[:MAX_ARGUMENTS]
    return tuple(word for i, shape in enumerate(shapes) for word in _shape_words(i, shape))


def _shape_words(argument: int, shape: Sequence[int]) -> Iterator[str]:
    yield f"{argument}:{'x'.join(map(str, shape))}"
    for dim, size in enumerate(shape[:MAX_DIMS]):
        yield f"{argument}.{dim}:{size}"
        yield f"{argument}.{dim}~{round(5 * math.log2(max(size, 1))) / 5:g}"


def _shapes(arguments: object) -> Iterator[list[int]]:
    """Tensor shapes; lists of tensors are opened, scalars ([]) left out."""
    if isinstance(arguments, list) and arguments and all(isinstance(a, int) for a in arguments):
        yield arguments
    elif isinstance(arguments, list):
        for one in arguments:
            yield from _shapes(one)


# One-dimensional convolutions over a step's text, one of the encoders of Das & Mannarswamy 2022.
#
#     words of a node -> sum of embeddings + its numbers -> convolutions along the lanes -> residual of the node
#                                                                                     \-> reduced: residual of the step
#
# A node's numbers (the network's features, of devices and links too) are added to its text: the same information as the
# network has, except for the edges. What runs when is stated by program order by itself.

KERNEL, DILATIONS = 5, (1, 2, 4)
GAP = (KERNEL // 2) * max(DILATIONS)  # no convolution reaches over it
NUM_NUMBERS = len(WORK_NAMES) + len(DEVICE_NAMES) + len(LINK_NAMES)


@dataclass(frozen=True)
class Sequences:
    """One step, or a batch of steps.

    Attributes:
        words: [num_words] int64 codes, node after node.
        first: [num_nodes] int64 where each node's words begin.
        numbers: [num_nodes, NUM_NUMBERS] float32.
        position: [num_nodes] int64 place in one long sequence with gaps between lanes.
        reduction: of the nodes.
        target: [num_nodes] float32 log(latency / base), NaN unlabeled.
        weight: [num_nodes] float32 of the node's error.
    """

    words: Tensor
    first: Tensor
    numbers: Tensor
    position: Tensor
    reduction: Reduction
    target: Tensor
    weight: Tensor


class SequenceNetwork(nn.Module):
    """Text and numbers -> residuals of nodes and of steps."""

    def __init__(self, num_words: int, hidden_channels: int) -> None:
        super().__init__()
        width = hidden_channels
        self.words = nn.EmbeddingBag(num_words, width, mode="sum")
        nn.init.normal_(self.words.weight, std=0.1)  # a dozen of them are summed
        self.numbers = nn.Linear(NUM_NUMBERS, width)
        self.mix = nn.Linear(width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in DILATIONS)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(width, width, KERNEL, padding=(KERNEL // 2) * d, dilation=d) for d in DILATIONS
        )
        self.node = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        nn.init.zeros_(self.node[-1].weight)  # type: ignore[arg-type]  # untrained, it answers the base
        nn.init.zeros_(self.node[-1].bias)  # type: ignore[arg-type]
        self.step = StepHead(width)

    def forward(self, text: Sequences) -> tuple[Tensor, Tensor]:
        """([num_nodes] log(latency / base), [num_steps] log(step / base step))."""
        state = self.words(text.words, text.first) + self.numbers(text.numbers)  # [num_nodes, hidden_channels]
        state = self.mix(torch.relu(state))
        length = int(text.position.max()) + 1
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            placed = state.new_zeros(length, state.shape[1]).index_copy(0, text.position, norm(state))
            seen = convolution(placed.T[None])[0].T  # [length, hidden_channels]
            state = state + torch.relu(seen[text.position])
        residual = MAX_RESIDUAL * torch.tanh(self.node(state)[:, 0] / MAX_RESIDUAL)  # [num_nodes]
        return residual, self.step(state, text.reduction)


def batch(texts: Sequence[Sequences]) -> Sequences:
    """Steps one after the other, a gap between them."""
    words = _starts([len(t.words) for t in texts])
    places = _starts([int(t.position.max()) + 1 + GAP for t in texts])
    return Sequences(
        torch.cat([t.words for t in texts]),
        torch.cat([t.first + start for t, start in zip(texts, words, strict=True)]),
        torch.cat([t.numbers for t in texts]),
        torch.cat([t.position + start for t, start in zip(texts, places, strict=True)]),
        joined([t.reduction for t in texts]),
        torch.cat([t.target for t in texts]),
        torch.cat([t.weight for t in texts]),
    )


def _starts(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[:i]) for i in range(len(sizes))]


SEQUENCE_START: Mapping[str, float] = {**DESCENT_START, "hidden_channels": 48}
SEQUENCE_SPACE: Mapping[str, Range] = {**DESCENT_SPACE, "hidden_channels": Range(16, 96, whole=True)}


@dataclass(frozen=True)
class OpsAsText:
    """Convolutions over the ops as text: tuning.Tunable.

    Attributes:
        name: names the settings it is tuned to.
        start, space: of the search.
    """

    name: str = "ops_as_text"
    start: Settings = field(default_factory=lambda: SEQUENCE_START)
    space: Mapping[str, Range] = field(default_factory=lambda: SEQUENCE_SPACE)

    def bench(self, data: PreparedData) -> SequenceBench:
        return SequenceBench(data)


class SequenceBench:
    """Training and validation steps as text, and what they have to answer.

    Args:
        data: the runs.
    """

    def __init__(self, data: PreparedData) -> None:
        train, val = data.steps["train"], data.steps["val"]
        self.val_steps = val
        self.words = fit_words([step.nodes for step in train])
        self.train, self.val = ([sequence_of(step, self.words) for step in steps] for steps in (train, val))
        self.train_log_step, self.val_log_step = (
            torch.tensor([math.log(step.step_us) for step in steps]) for steps in (train, val)
        )

    def fit(self, settings: Settings, seed: int) -> Fitted:
        """Least absolute log errors, of nodes (weighted as for the network) and of steps, added up."""
        with repeatable(seed):
            network = SequenceNetwork(len(self.words), int(settings["hidden_channels"]))
            val = batch(self.val)

            def loss(rows: Tensor) -> Tensor:
                text = batch([self.train[i] for i in rows.tolist()])
                return error_of(network, text, self.train_log_step[rows])

            def val_error() -> float:
                return float(error_of(network, val, self.val_log_step))

            error = descend(network, Problem(len(self.train), loss, val_error), settings, seed)
        return Fitted(better(network, self.words, self.val_steps), error)


@dataclass(frozen=True)
class _OfNodes:
    """Latencies of a fitted network.

    Attributes:
        network: in evaluation mode.
        words: of the training steps.
    """

    network: SequenceNetwork
    words: Words

    @torch.no_grad()
    def isolated_us(self, step: Step) -> np.ndarray:
        """[num_nodes] base * exp(residual); comm nodes their base, 0 for device and link nodes."""
        residual = self.network.eval()(sequence_of(step, self.words))[0].double().numpy()  # [num_work]
        residual[_types(step) == NodeType.COMM] = 0.0
        result = np.zeros(step.graph.num_nodes)
        result[work_values(step.data, "node_id")] = work_values(step.data, "base_us") * np.exp(residual)
        return result

    def latency_us(self, step: Step) -> np.ndarray:
        """[num_nodes] next to other work."""
        isolated_us = self.isolated_us(step)
        return in_place_us(step, IsolatedPrediction(isolated_us, isolated_us))


@dataclass(frozen=True)
class DirectSteps(_OfNodes):
    """Step times as the network tells them."""

    @torch.no_grad()
    def step_us(self, step: Step) -> float:
        """base step * exp(residual of the step)."""
        text = sequence_of(step, self.words)
        return math.exp(float(self.network.eval()(text)[1][0]) + float(text.reduction.log_base_step[0]))


@dataclass(frozen=True)
class ScheduledSteps(_OfNodes):
    """Step times as the schedule of the latencies."""

    def step_us(self, step: Step) -> float:
        return contended_step_time_us(step, self.isolated_us(step))


def better(network: SequenceNetwork, words: Words, steps: Sequence[Step]) -> Answer:
    """The way of telling step times that errs less on `steps`."""
    direct, scheduled = DirectSteps(network, words), ScheduledSteps(network, words)
    return direct if step_error(direct, steps) < step_error(scheduled, steps) else scheduled


def step_error(answer: Answer, steps: Sequence[Step]) -> float:
    """Mean |log(predicted / measured)| of step times."""
    return float(np.mean([abs(math.log(answer.step_us(step) / step.step_us)) for step in steps]))


def error_of(network: SequenceNetwork, text: Sequences, log_step: Tensor) -> Tensor:
    """Scalar: weighted mean |log error| of labeled nodes plus mean |log error| of steps.

    Args:
        network: to be judged.
        text: a batch.
        log_step: [num_steps] log of the measured step time in us.
    """
    residual, step = network(text)
    labeled = torch.isfinite(text.target)  # [num_nodes]
    weight = text.weight[labeled]
    of_nodes = ((residual[labeled] - text.target[labeled]).abs() * weight).sum() / weight.sum().clamp_min(1e-12)
    of_steps = (step + text.reduction.log_base_step - log_step).abs().mean()
    total: Tensor = of_nodes + of_steps
    return total


def sequence_of(step: Step, words: Words) -> Sequences:
    """One step, its work nodes type by type in WORK order."""
    rows = work_values(step.data, "node_id")  # [num_work]
    text = text_of(step.nodes.iloc[rows], words)
    share = work_values(step.data, "time_share")
    weight = (1 - SHARE_WEIGHT) + SHARE_WEIGHT * np.sqrt(share)
    return Sequences(
        torch.from_numpy(text.codes),
        torch.from_numpy(text.first),
        _numbers(step),
        torch.from_numpy(program_order(step.graph, rows, GAP)),
        one_step(step, work_values(step.data, "base_us")),
        torch.from_numpy(work_values(step.data, "target")),
        torch.from_numpy(weight.astype(np.float32)),
    )


def _numbers(step: Step) -> Tensor:
    """[num_work, NUM_NUMBERS] own features, then the mean device's and link's of the step."""
    own = torch.cat([step.data[t].x for t in WORK])
    hardware = [step.data[str(t)].x.sum(0) / max(len(step.data[str(t)].x), 1) for t in (NodeType.DEVICE, NodeType.LINK)]
    return torch.cat([own, torch.cat(hardware).expand(len(own), -1)], dim=1)


def _types(step: Step) -> np.ndarray:
    """[num_work] node types."""
    return np.repeat(WORK, [len(step.data[t].node_id) for t in WORK])
