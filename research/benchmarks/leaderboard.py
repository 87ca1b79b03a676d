"""The leaderboard of `gnnperf.datasets`: every baseline of the repository, evaluated by its Evaluator.

    python -m research.benchmarks.leaderboard

Trained on the training part of datasets/cpu-gloo, evaluated on the test part. Learned rows are means over seeds.
`--save` writes docs/benchmarks/leaderboard.json, of which `python -m docs.made.leaderboard` makes the page. Intervals
are quantiles of measured / predicted on the validation part, per node type, so that they hold 90 % there.
"""

import importlib.util
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from gnnperf.datasets import NODE_TYPES, Evaluator, ExecutionGraphs, prepared
from gnnperf.gnn.data.prepare import DataConfig, PreparedData, Step
from gnnperf.gnn.data.step_time import filled_us, step_time_us
from research.baselines.judge import Estimate, Learner
from research.baselines.rows import TRIVIAL
from research.benchmarks._frame import run_main
from research.benchmarks._learned_jobs import experiment, learner
from research.benchmarks._networks import CachedNetwork, Hybrid
from research.benchmarks._recorded_graphs import DATASET
from research.benchmarks._results import ROOT, measured_at

FILE = ROOT / "docs" / "benchmarks" / "leaderboard.json"
LEVEL = 0.9  # of the intervals
AXIS, SEEDS = "demo", (0, 1, 2)
EXAMPLE = "examples/train_gnn.py"
Latencies = Sequence[Mapping[str, Tensor]]


@dataclass(frozen=True)
class Example:
    """The network of examples/train_gnn.py, trained on the training part."""

    epochs: int = 20

    def fit(self, data: PreparedData, seed: int) -> "Fitted":
        """Trained; the example fixes its seed."""
        spec = importlib.util.spec_from_file_location("train_gnn", ROOT / EXAMPLE)
        assert spec is not None and spec.loader is not None, "a Python file"
        script = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(script)
        with redirect_stdout(sys.stderr):
            model = script.trained([step.data for step in data.steps["train"]], self.epochs)
        return Fitted(lambda graph: script.predict(model, graph))


@dataclass(frozen=True)
class Fitted(Estimate):
    """Attributes: predict: of a graph, node type -> latencies."""

    predict: Callable[[HeteroData], dict[str, Tensor]]

    def latency_us(self, step: Step) -> np.ndarray:
        """[num_nodes], NaN at device and link nodes."""
        result = np.full(len(step.nodes), np.nan)
        for node_type, us in self.predict(step.data).items():
            result[step.data[node_type].node_id.numpy()] = us.numpy()
        return result

    def step_us(self, step: Step) -> float:
        """Step time of these latencies."""
        return step_time_us(step, self.latency_us(step))


def learners(folder: Path) -> dict[str, Learner]:
    """Name of the row -> what learns; networks that two rows share are kept in `folder`."""
    network = CachedNetwork(experiment("demo"), folder)
    simpler = {name.replace("_", "-"): learner(name) for name in ("trees", "trees_hops")}
    networks: dict[str, Learner] = {"mlp": experiment("mlp"), "gnn": network, "hybrid": Hybrid(network)}
    return {**TRIVIAL, EXAMPLE: Example(), **simpler, **networks}


def evaluated(estimate: Estimate, data: PreparedData, test: ExecutionGraphs) -> dict[str, float]:
    """Metrics of one fitted model."""
    latencies = {part: [_latencies(estimate, step) for step in data.steps[part]] for part in ("val", "test")}
    on_test = [given for given in latencies["test"] if given is not None]
    if len(on_test) == len(data.steps["test"]):
        ratios = _ratios(data.steps["val"], [given for given in latencies["val"] if given is not None])
        intervals = [{t: (us * ratios[t][0], us * ratios[t][1]) for t, us in given.items()} for given in on_test]
        return Evaluator(test).evaluate(on_test, intervals)
    errors = np.array([estimate.step_us(step) / step.step_us - 1 for step in data.steps["test"]])
    size = np.abs(errors)
    return {"step_error": float(size.mean()), "step_error_median": float(np.median(size)),
            "step_error_max": float(size.max()), "step_signed_error": float(errors.mean())}  # fmt: skip


def _latencies(estimate: Estimate, step: Step) -> dict[str, Tensor] | None:
    """Node type -> latencies, nodes without one of the row's have the base's; None: whole steps only."""
    given = estimate.latency_us(step)
    filled = None if given is None else torch.tensor(filled_us(step, given))  # [num_nodes]
    return None if filled is None else {t: filled[step.data[t].node_id] for t in NODE_TYPES}


def _ratios(steps: Sequence[Step], latencies: Latencies) -> dict[str, tuple[float, float]]:
    """Node type -> quantiles of measured / predicted."""
    result = {}
    for t in NODE_TYPES:
        pairs = [(step.data[t].latency_us, given[t]) for step, given in zip(steps, latencies, strict=True)]
        ratios = torch.cat([(label / us)[(label > 0) & (us > 0)] for label, us in pairs]).numpy()
        low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) if len(ratios) else (1.0, 1.0)
        result[t] = (float(low), float(high))
    return result


def main() -> None:
    data = prepared(DataConfig(str(DATASET), AXIS))
    test = ExecutionGraphs(DATASET.parent, DATASET.name, axis=AXIS, split="test")
    rows = {}
    with TemporaryDirectory() as folder:
        for name, chosen in learners(Path(folder)).items():
            seeds = (0,) if name in (*TRIVIAL, EXAMPLE) else SEEDS
            results = [evaluated(chosen.fit(data, seed), data, test) for seed in seeds]
            rows[name] = {key: float(np.mean([result[key] for result in results])) for key in results[0]}
            print(name, {key: round(value, 4) for key, value in rows[name].items()}, flush=True)
    commit, date = measured_at()
    graphs = {part: len(steps) for part, steps in data.steps.items()}
    given = {"data": DATASET.name, "axis": AXIS, "graphs": graphs, "seeds": len(SEEDS), "commit": commit,
             "date": date, "rows": rows}  # fmt: skip
    if commit:
        FILE.write_text(json.dumps(given, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run_main(main)
