"""Traces of one GPU, predicted for another one on which the same workload was recorded as well.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.benchmarks other_hardware

Workloads that the catalog of public files has on two GPUs under one file name. The trace of the first is predicted
for the second, as `predict.py trace=... hardware=...` does (no checkpoint, host work of the trace moved to the
target's host, target's links), and held to what the second recorded. Nothing was fitted on either. Next to it: the
same with host work by the model; the second's own trace predicted for itself, which knows its kernels by name; the
first's recording as it is; and times the ratio of memory bandwidths. Device time: kernels and copies of all streams,
added up. Host time: host segments, added up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import permutations
from pathlib import PurePosixPath

import numpy as np

from gnnperf.core import NodeType
from gnnperf.graph import ExecutionGraph, build_graph
from gnnperf.hardware import DeviceSpec
from gnnperf.predict import Request, StepPrediction, choose_step, step_us
from gnnperf.predict.api import predicted
from gnnperf.predict.request import TraceEvidence
from gnnperf.predict.target import choose_target
from gnnperf.trace import read_run
from gnnperf.trace.public.catalog import Entry, load_catalog
from research.benchmarks._frame import print_head, print_row, run_main
from research.benchmarks._public_runs import mirror

KINETO = "kineto"
DEVICE_TYPES = (NodeType.COMPUTE, NodeType.MEMORY)


@dataclass(frozen=True)
class Times:
    """Of one step, us."""

    step: float
    device: float
    host: float

    def scaled(self, factor: float) -> Times:
        """Everything times a factor."""
        return Times(self.step * factor, self.device * factor, self.host * factor)


@dataclass(frozen=True)
class Recorded:
    """One recording."""

    graph: ExecutionGraph
    device: DeviceSpec
    times: Times


def main() -> None:
    """Print one block per workload and direction."""
    print_head("workload", "from -> to", "answer", "step", "device time", "host time")
    for name, entries in sorted(pairs(load_catalog()).items()):
        runs = [recorded(entry) for entry in entries]
        for source, target in permutations(runs, 2):
            for label, times in answers(source, target):
                way = f"{source.device.name} -> {target.device.name}"
                parts = ((getattr(each, part) for each in (times, target.times)) for part in ("step", "device", "host"))
                print_row(name, way, label, *(compared(*pair) for pair in parts))


def pairs(entries: Iterable[Entry]) -> dict[str, tuple[Entry, ...]]:
    """File name -> traces of that name in one repository, each of another GPU: the same workload on several."""
    result: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        if entry.kind == KINETO and entry.gpu:
            result.setdefault((entry.repo, PurePosixPath(entry.path).name), []).append(entry)
    several = {key: every for key, every in result.items() if len({e.gpu for e in every}) == len(every) > 1}
    return {name.split(".json")[0]: tuple(every) for (_, name), every in several.items()}


def recorded(entry: Entry) -> Recorded:
    """A recording as a graph, and what it measured."""
    graph = build_graph(read_run(mirror() / entry.name))
    label = choose_step(graph, None)
    nodes = graph.step(label.step).nodes
    times = Times(step_us(label), *_sums(nodes["node_type"].to_numpy(str), nodes["latency_us"]))
    return Recorded(graph, choose_target(graph, None, None).cluster.device, times)


def answers(source: Recorded, target: Recorded) -> Iterator[tuple[str, Times]]:
    """Predictions and baselines of the target's step."""
    ratio = source.device.memory_bandwidth_bytes_per_s / target.device.memory_bandwidth_bytes_per_s
    yield "measured", target.times
    yield "predicted", given(predicted(source.graph, Request(hardware=target.device)))
    blind = Request(hardware=target.device, evidence=TraceEvidence.none)
    yield "predicted, evidence=none", given(predicted(source.graph, blind))
    yield "predicted from its own trace", given(predicted(target.graph, Request(hardware=target.device)))
    yield "the other recording", source.times
    yield "the other recording x bandwidth", source.times.scaled(ratio)


def given(answer: StepPrediction) -> Times:
    """Of a prediction; what has no answer adds nothing, as in its step time."""
    result = answer.prediction
    return Times(answer.step_time_us, *_sums(result.graph.nodes["node_type"].to_numpy(str), result.latency_us))


def compared(us: float, measured_us: float) -> str:
    """Milliseconds, and the signed error in percent."""
    return f"{us / 1e3:.2f} ({us / measured_us - 1:+.0%})"


def _sums(node_type: np.ndarray, latency_us: Iterable[float]) -> tuple[float, float]:
    us = np.nan_to_num(np.asarray(latency_us, float))  # [num_nodes]
    device = np.isin(node_type, [str(each) for each in DEVICE_TYPES])
    return float(us[device].sum()), float(us[node_type == str(NodeType.HOST)].sum())


if __name__ == "__main__":
    run_main(main)
