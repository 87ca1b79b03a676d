"""Memory and time of training on one graph of a million nodes, cut into segments: an epoch, and answers for all nodes.

The graph is the planned step of a transformer on 64 ranks. no one ran it: labels are the analytical answer times noise,
which says nothing of accuracy and all of memory, as the whole way from the graph to the trained network is that of a
recorded run.
"""

from __future__ import annotations

import resource
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from gnnperf.analytic import AnalyticPredictor
from gnnperf.generate.transformer import (
    Parallelism,
    Schedule,
    Transformer,
    TransformerPlan,
    build_plan,
    every_rank,
)
from gnnperf.gnn import build_model, fit
from gnnperf.gnn.data.module import StepDataModule
from gnnperf.gnn.data.prepare import DataConfig, PreparedData, prepare
from gnnperf.gnn.data.runs import RunGraph
from gnnperf.gnn.data.splits import Split
from gnnperf.gnn.training.config import TrainConfig, TrainerConfig
from gnnperf.gnn.training.evaluate import isolated_prediction
from gnnperf.hardware import load_device
from gnnperf.predict.target import choose_target

WAYS = Parallelism(tensor=4, pipeline=2, data=8)
LAYERS = {"big": 14, "small": 2}  # of the graph to train on, and of the one to validate on
NOISE = 0.2  # standard deviation of log(label / analytic)
MAX_NODES_PER_BATCH = 50_000
GIB = 2**30


def planned(run: str) -> RunGraph:
    """The step of a transformer, with labels."""
    model = Transformer(layers=LAYERS[run], hidden=1024, heads=16, sequence=1024, vocabulary=50257)
    plan = TransformerPlan(run, model, WAYS, Schedule(4 * WAYS.data, 1))
    graph = build_plan(plan, every_rank(WAYS))
    cluster = choose_target(graph, load_device("a100_sxm_80gb"), None).cluster
    analytic_us = AnalyticPredictor().predict(graph, cluster).latency_us
    latency_us = analytic_us * np.exp(NOISE * np.random.default_rng(0).standard_normal(graph.num_nodes))
    nodes = graph.nodes.assign(latency_us=latency_us)
    label = replace(graph.steps[0], makespan_us=1e6)
    return RunGraph(run, replace(graph, nodes=nodes, steps=(label,)), cluster)


def data_of(folder: Path, config: DataConfig) -> PreparedData:
    """One graph to train on, one to validate on."""
    return prepare(replace(config, cache_dir=str(folder)), Split("none", ("big",), ("small",), ()), planned)


def configuration(out: Path) -> TrainConfig:
    """The default network, one epoch."""
    made = TrainConfig(out=str(out), trainer=TrainerConfig(max_epochs=1, progress_bar=False))
    made.data = DataConfig(max_nodes_per_batch=MAX_NODES_PER_BATCH)
    return made


def peak_gib() -> float:
    """The largest resident set of this process until now."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB


def main() -> None:
    """Print nodes, segments, and the peak after each stage."""
    with tempfile.TemporaryDirectory() as folder:
        config, begin = configuration(Path(folder) / "out"), time.perf_counter()
        data = data_of(Path(folder), config.data)
        step = data.steps["train"][0]
        print(f"{step.graph.num_nodes:,} nodes, {len(step.graph.edges):,} edges, {len(step.graph.ranks)} ranks")
        print(f"to validate on: {data.steps['val'][0].graph.num_nodes:,} nodes")
        begin = given("plan, analytical answer, features", begin)
        module = StepDataModule(data, config.data, config.model.num_layers, config.seed)
        sizes = [module.train[i].data.num_nodes or 0 for i in range(len(module.train))]
        print(f"{len(sizes)} segments of {min(sizes):,} to {max(sizes):,} nodes, {sum(sizes):,} with their halos")
        begin = given("cutting all segments once", begin)
        network = fit(config, data, build_model(config, data))
        begin = given("an epoch and its validation", begin)
        answers_us = isolated_prediction(network, step).usual_us
        given(f"answers for {int(np.isfinite(answers_us).sum()):,} nodes", begin)


def given(stage: str, begin: float) -> float:
    """Print how long a stage took; returns when the next one begins."""
    now = time.perf_counter()
    print(f"{stage}: {now - begin:.0f} s, peak {peak_gib():.1f} GiB", flush=True)
    return now


if __name__ == "__main__":
    main()
