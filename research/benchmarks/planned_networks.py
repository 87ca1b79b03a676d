"""A planned ResNet-50 against recordings of the same program: torch_tb_profiler's samples on a V100 (2021).

    GNNPERF_DATA_MIRROR=... python -m research.benchmarks planned_networks

The plan is conf/plan/resnet50.yaml, trained as the sample's script does: one replica, batch 32, float32, SGD with
momentum and without weight decay, parameter by parameter, gradients set to zero. Nothing of the recordings is read to
make it. Ops: calls of the plan's ops that the recording has, too, under names of today (torch 1.8 had convolution's
backward in two ops). Kernels: the sum of all kernels of a step; its measured value is the median over steps. Step: the
period. The samples load and copy their batches, which a plan does not know: with no workers (loading inside the step)
the step is no label for it, and is printed to say so. The constants of kernels have seen none of these runs.

Trivial answers: all FLOPs at the device's peak, and at half of it (a share that nothing but this table tells).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import yaml
from rich.console import Console
from rich.table import Table

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import NodeType
from gnnperf.generate import read_plan
from gnnperf.generate.convolutional.build import build_network
from gnnperf.generate.convolutional.plan import ConvolutionalPlan, Gradients, NetworkOptimizer, NetworkReplicas
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import conf_dir, default_cluster, load_device
from gnnperf.schedule import schedule_with_contention
from research.benchmarks._public_runs import graph_recordings, imported

DEVICE = "v100_dgxs_32gb"
RUNS = "kineto-resnet50/"
# The same work under the names of 2021.
NAMES = {
    "aten::cudnn_convolution_backward": "aten::convolution_backward", "aten::add": "aten::add_",
    "aten::clamp_min": "aten::clamp_min_", "aten::fill_": "aten::zero_",
}  # fmt: skip
WITHIN = ("aten::cudnn_convolution_backward_input", "aten::cudnn_convolution_backward_weight")
HALF = 0.5


def sample_plan() -> ConvolutionalPlan:
    """ResNet-50 as the sample trains it."""
    plan = read_plan(yaml.safe_load((conf_dir("plan") / "resnet50.yaml").read_text()), "resnet50")
    assert isinstance(plan, ConvolutionalPlan), "a network"
    training = replace(plan.training, batch=32, optimizer=NetworkOptimizer.ONE_BY_ONE, gradients=Gradients.ZEROED,
                       weight_decay=False)  # fmt: skip
    return replace(plan, training=training, replicas=NetworkReplicas(1))


def calls(graph: ExecutionGraph, step: int) -> Counter[str]:
    """Op -> calls that launch kernels in a step."""
    nodes = graph.nodes[((graph.nodes["step"] == step) & (graph.nodes["node_type"] == NodeType.COMPUTE)).to_numpy()]
    weight = 1.0 / np.maximum(nodes["num_siblings"].to_numpy(float), 1.0)
    result: Counter[str] = Counter()
    for name, share in zip(nodes["op_name"].astype(str), weight, strict=True):
        if name not in WITHIN:
            result[NAMES.get(name, name)] += share
    return Counter({name: round(count) for name, count in result.items()})


def kernels_us(graph: ExecutionGraph) -> float:
    """Sum of measured kernels, the median over steps."""
    compute = (graph.nodes["node_type"] == NodeType.COMPUTE).to_numpy()
    steps, latency_us = graph.nodes["step"].to_numpy(), graph.nodes["latency_us"].to_numpy()
    return float(np.median([np.nansum(latency_us[compute & (steps == label.step)]) for label in graph.steps]))


def predicted_us(graph: ExecutionGraph) -> tuple[float, float]:
    """Predicted sum of kernels, and the step."""
    given = AnalyticPredictor().predict(graph, default_cluster(load_device(DEVICE)))
    assert given.isolated is not None, "the analytical model answers for ops alone"
    compute = (graph.nodes["node_type"] == NodeType.COMPUTE).to_numpy()
    result = schedule_with_contention(graph, given.latency_us, given.lag_us, given.isolated, num_unrolled=4).schedule
    assert result.period_us is not None, "unrolled"
    return float(given.latency_us[compute].sum()), result.period_us


@dataclass(frozen=True)
class Predicted:
    """What the plan answers, in us: kernels, step; and the trivial answers for kernels."""

    kernels_us: float
    step_us: float
    trivial_us: tuple[float, float]


def row(recorded: ExecutionGraph, planned: Counter[str], given: Predicted) -> list[str]:
    """Cells of one recording."""
    result = calls(recorded, recorded.steps[len(recorded.steps) // 2].step)
    measured_us = kernels_us(recorded)
    period_us = float(np.median([s.period_us for s in recorded.steps if s.period_us is not None]))
    errors = [f"{100 * (us / measured_us - 1):+.1f} %" for us in (given.kernels_us, *given.trivial_us)]
    return [f"{100 * (planned & result).total() / planned.total():.1f} %", f"{measured_us / 1e3:.1f}",
            f"{given.kernels_us / 1e3:.1f}", *errors, f"{period_us / 1e3:.1f}", f"{given.step_us / 1e3:.1f}",
            f"{100 * (given.step_us / period_us - 1):+.1f} %"]  # fmt: skip


def main() -> None:
    """Print a row per recording that names its device."""
    graph, console = build_network(sample_plan()), Console(width=150)
    planned = calls(graph, 0)
    flops, peak = float(np.nansum(graph.nodes["flops"])), load_device(DEVICE).flops_per_s["float32"]
    given = Predicted(*predicted_us(graph), (flops / peak * 1e6, flops / (HALF * peak) * 1e6))
    table = Table("recording", "ops", "kernels ms", "predicted", "error", "at peak", "at half", "step ms", "predicted",
                  "error")  # fmt: skip
    for recording in graph_recordings((RUNS,)):
        _, recorded = imported(recording)
        if any(recorded.device_names):
            table.add_row(recording.name[-36:], *row(recorded, planned, given))
    console.print(table)


if __name__ == "__main__":
    main()
