"""NeuSight's measured models as rows: what was run, where, how long it took, what was predicted and by whom."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.generate.transformer.items import Op
from gnnperf.generate.transformer.plan import Parallelism
from gnnperf.graph import ExecutionGraph, Prediction, Predictor
from gnnperf.hardware import ClusterSpec, DeviceSpec, default_cluster, match_device
from gnnperf.schedule import schedule, schedule_with_contention
from research.listed import Owned, Part, Section, build_listed, listed_program, sections
from research.listed.operator_list import ListedOp, read_operator_list
from research.tables.model_labels import (
    ModelLabel,
    layers_of,
    node_times,
    operator_list_path,
    read_model_labels,
)

# As NeuSight divided them: it trained on these, and so did every constant of gnnperf that float32 without TF32 uses.
SEEN = ("Tesla P4", "Tesla P100-PCIE-16GB", "Tesla V100-PCIE-32GB", "Tesla T4", "NVIDIA A100-PCIE-40GB")
WAYS = {"dp4": Parallelism(data=4), "tp4": Parallelism(tensor=4), "pp4_1": Parallelism()}
FUSED = "fusion"


@dataclass(frozen=True)
class Row:
    """One measured model on one GPU, or on four."""

    label: ModelLabel
    device: DeviceSpec
    layers: int
    ops: tuple[ListedOp, ...] = field(repr=False)

    @property
    def seen(self) -> bool:
        """Whether constants and peers were fitted on op tables of that GPU."""
        return self.label.device in SEEN

    @property
    def cluster(self) -> ClusterSpec:
        """The shipped machine with that GPU."""
        return default_cluster(self.device)

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """Of its list."""
        return sections(self.ops, self.layers, self.label.run.training)

    def graph(self, part: Part) -> ExecutionGraph:
        """The passes as a graph.

        One micro-batch on a pipeline (pp4_1) keeps one stage busy at a time: the stages follow each other as on one
        GPU, and what is sent between them is left out.
        """
        run = self.label.run
        ways = WAYS.get(run.variant)
        return build_listed(run.name, self.ops, self.layers, part, run.training, ways)

    def program(self, part: Part) -> tuple[Owned, ...]:
        """What the graph is made of, with the nodes of the list."""
        return listed_program(self.sections, part)

    def summed_nodes_us(self, mirror: Path) -> float:
        """The floor: measured times of the nodes, each as often as the model has it; NaN: not measured."""
        times = node_times(mirror, self.label)
        if times is None:
            return float("nan")
        return float(sum(times.sum(axis=1).reindex(names(s)).sum() * s.repeats for s in self.sections))


def names(section: Section) -> list[str]:
    """Of its nodes."""
    return [call.op.name for call in section.calls]


def rows(mirror: Path) -> tuple[list[Row], Counter[str]]:
    """Rows that have a list of operators and a GPU of the catalog; and how many were left out, by reason."""
    result, left_out = [], Counter[str]()
    for label in read_model_labels(mirror):
        device, path = match_device(label.device), operator_list_path(mirror, label.run)
        if label.run.variant == FUSED:
            left_out["torch.compile (fusion): no list of the kernels that it makes"] += 1
        elif device is None or not label.device.startswith(("NVIDIA", "Tesla")):
            left_out[f"{label.device}: no closed forms for this maker's GPUs, or not in the catalog"] += 1
        elif not path.is_file():
            left_out["no list of operators in the mirror"] += 1
        else:
            result.append(Row(label, device, layers_of(mirror, label.run.model), read_operator_list(path)))
    return result, left_out


@dataclass(frozen=True)
class Answered:
    """A predictor's answer: times of the passes in us, and op names without one."""

    forward_us: float
    total_us: float
    uncovered: tuple[str, ...]


def answer(row: Row, predictor: Predictor) -> Answered:
    """Makespans of the forward pass and of all passes, scheduled with the host's launches."""
    forward = predictor.predict(row.graph(Part.FORWARD), row.cluster)
    both = predictor.predict(row.graph(Part.BOTH), row.cluster) if row.label.run.training else forward
    return Answered(makespan_us(forward), makespan_us(both), tuple(both.uncovered_ops))


def makespan_us(result: Prediction) -> float:
    """From the first host segment to the end of all work; NaN if an op has no answer: it is never taken as 0."""
    if result.uncovered_ops:
        return float("nan")
    if result.isolated is None:
        return float(schedule(result.graph, result.scheduled_us, result.lag_us).makespan_us)
    together = schedule_with_contention(result.graph, result.scheduled_us, result.lag_us, result.isolated)
    return float(together.schedule.makespan_us)


def kernels_us(row: Row, predictor: Predictor) -> pd.DataFrame:
    """[num_nodes] forward_us and backward_us by name of the list: the node's kernels, once."""
    part = Part.BOTH if row.label.run.training else Part.FORWARD
    graph = row.graph(part)
    given = predictor.predict(graph, row.cluster)
    compute = (graph.nodes["node_type"] == "compute").to_numpy()
    owned = [each for each in row.program(part) if isinstance(each.item, Op)]
    backward = (graph.nodes["phase"].astype(str) == "backward").to_numpy()[compute]
    us = given.latency_us[compute]  # [num_ops]; NaN stays NaN in the sums
    nodes = pd.Index([each.node for each in owned], name="node")
    table = pd.DataFrame({"forward_us": us * ~backward, "backward_us": us * backward}, index=nodes)
    total = table.fillna(np.inf).groupby("node").sum().replace(np.inf, np.nan)  # unknown parts leave no sum
    often = {name: s.repeats for s in row.sections for name in names(s)}
    return total.div(total.index.map(often).to_numpy(float), axis=0)
