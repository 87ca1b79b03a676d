"""The sequence model as a row of the comparison: latencies of nodes, and step times in the better of two ways.

Either the network tells them directly, as Das & Mannarswamy do, or its latencies are scheduled, as everyone else's are.
The validation runs decide: a comparison is with the best that a row can do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from gnnperf.core import NodeType
from gnnperf.gnn.data.prepare import PreparedData, Step
from gnnperf.gnn.data.step_time import IsolatedPrediction, contended_step_time_us, in_place_us
from research.baselines.descent import DESCENT_SPACE, DESCENT_START, Problem, descend, repeatable
from research.baselines.judge import Answer
from research.baselines.sequence_network import GAP, SequenceNetwork, Sequences, batch
from research.baselines.sequence_text import Words, fit_words, program_order, text_of
from research.baselines.step_head import one_step
from research.baselines.trees import SHARE_WEIGHT
from research.baselines.trees_table import WORK, work_values
from research.baselines.tuning import Fitted, Range, Settings

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
        """All steps as text."""
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
        """The schedule's."""
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
        torch.cat([step.data[t].x for t in WORK]),
        torch.from_numpy(program_order(step.graph, rows, GAP)),
        one_step(step, work_values(step.data, "base_us")),
        torch.from_numpy(work_values(step.data, "target")),
        torch.from_numpy(weight.astype(np.float32)),
    )


def _types(step: Step) -> np.ndarray:
    """[num_work] node types."""
    return np.repeat(WORK, [len(step.data[t].node_id) for t in WORK])
