"""GraphSAGE with a pooled step head as a row of the comparison: step time only, no latencies of nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gnnperf.gnn.data.prepare import PreparedData, Step
from gnnperf.gnn.data.vocabulary import Vocabulary
from research.baselines.descent import DESCENT_SPACE, DESCENT_START, Problem, descend, repeatable
from research.baselines.pooled_network import GraphSage, Homogeneous, batch, homogeneous
from research.baselines.step_head import one_step
from research.baselines.trees_table import work_values
from research.baselines.tuning import Fitted, Range, Settings

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
        """All steps as homogeneous graphs."""
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
    """One step."""
    return homogeneous(step.data, vocabulary, one_step(step, work_values(step.data, "base_us")))


def targets(steps: Sequence[Step], graphs: Sequence[Homogeneous]) -> Tensor:
    """[num_steps] float32 log(step / base step)."""
    base = torch.cat([g.reduction.log_base_step for g in graphs])
    return torch.tensor([math.log(step.step_us) for step in steps]) - base
