"""How long the network takes to answer for a graph of about 10,000 nodes, with the checkpoint loaded.

    python -m research.benchmarks prediction_speed [CHECKPOINT]      default: what `make demo` trained

Next to a recorded window the step of a plan, which has more nodes of fewer distinct ops. Medians of repeats; the first
answer, in which libraries wake up, is left out. All is the answer of mode=hybrid. Timed apart: the analytical answer
that it starts from, the features, and the network; the rest determines the trust weights.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from gnnperf.generate import build_graph_of, read_plan
from gnnperf.gnn import features
from gnnperf.gnn.checkpoint import load_checkpoint
from gnnperf.gnn.data.runs import cluster_for
from gnnperf.gnn.models.segmented import answers_of
from gnnperf.graph import ExecutionGraph, load_graph
from gnnperf.hardware import ClusterSpec, default_cluster, load_device, read_yaml
from gnnperf.predict.gnn import BlendedPredictor, GnnPredictor
from research.benchmarks._frame import run_main

CHECKPOINT = Path("runs/demo/train/checkpoint.pt")
WINDOW = Path("datasets/cpu-gloo/moe_l2_w64_e4_s32_b4_x2_lo/1")
PLAN = Path("conf/plan/gpt2_345m.yaml")
REPEATS = 7


def median_s(work: Callable[[], object]) -> float:
    """Median seconds of a call."""
    work()
    result = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        work()
        result.append(time.perf_counter() - begin)
    return float(np.median(result))


def parts_s(predictor: GnnPredictor, graph: ExecutionGraph, cluster: ClusterSpec) -> Mapping[str, float]:
    """Seconds of the whole answer and of its parts."""
    known, base = predictor.checkpoint, predictor.analytic.predict(graph, cluster)
    data = features(graph, cluster, base, known.vocabulary, known.floors)
    normalized = known.normalizer.apply(data)
    return {
        "all": median_s(lambda: BlendedPredictor(predictor).predict(graph, cluster)),
        "analytical": median_s(lambda: predictor.analytic.predict(graph, cluster)),
        "features": median_s(lambda: features(graph, cluster, base, known.vocabulary, known.floors)),
        "network": median_s(lambda: answers_of(predictor.network, normalized)),
    }


def main(arguments: Sequence[str]) -> None:
    """Print one row per graph."""
    checkpoint = Path(arguments[0]) if arguments else CHECKPOINT
    if not checkpoint.is_file():
        sys.exit(f"{checkpoint}: no such file; run `make demo`, or name a checkpoint")
    torch.set_num_threads(1)
    predictor = GnnPredictor(load_checkpoint(checkpoint))
    window, planned = load_graph(WINDOW), build_graph_of(read_plan(read_yaml(PLAN), str(PLAN)))
    table = Table("graph", "nodes", "all s", "analytical", "features", "network", "all, s per 10,000 nodes")
    for name, graph, cluster in (
        ("recorded window", window, cluster_for(window, None, None)),
        ("planned step", planned, default_cluster(load_device("a100_sxm_80gb"))),
    ):
        result = parts_s(predictor, graph.for_predictors(), cluster)
        per_node = result["all"] * 10_000 / graph.num_nodes
        table.add_row(name, str(graph.num_nodes), *(f"{v:.3f}" for v in result.values()), f"{per_node:.3f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    run_main(main)
