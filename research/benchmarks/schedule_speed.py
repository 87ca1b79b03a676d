"""Nodes scheduled per second: start times, slack and critical path of a large synthetic graph, after warm-up."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, Relation, Segment
from gnnperf.graph import EdgeList, ExecutionGraph, Isolated, StepLabel, node_table
from gnnperf.hardware import Contention
from gnnperf.schedule import schedule, schedule_with_contention
from research.benchmarks._frame import run_main

NUM_LAUNCHES = 200_000  # per rank: a host chain of three pieces and one kernel each
NUM_RANKS = 2
REPEATS = 7
CONTENDED_REPEATS = 3


def big_graph() -> ExecutionGraph:
    """Ranks of host chains that launch kernels on one stream; every 1,000th kernel is waited for."""
    tables, edges = [], EdgeList()
    for rank in range(NUM_RANKS):
        base = rank * 4 * NUM_LAUNCHES
        host = np.arange(3 * NUM_LAUNCHES) + base
        kernel = np.arange(NUM_LAUNCHES) + base + 3 * NUM_LAUNCHES
        segments = np.array([str(Segment.T1), str(Segment.T4), str(Segment.T3)], dtype=object)
        tables.append(
            node_table(3 * NUM_LAUNCHES, node_type=str(NodeType.HOST), rank=rank, step=0, thread=0,
                       segment=np.tile(segments, NUM_LAUNCHES))
        )  # fmt: skip
        tables.append(
            node_table(NUM_LAUNCHES, node_type=str(NodeType.COMPUTE), rank=rank, step=0, stream=0, device=rank)
        )
        edges.add(host[:-1], host[1:], Relation.FOLLOWS)
        edges.add(kernel[:-1], kernel[1:], Relation.FOLLOWS, "stream")
        edges.add(host[1::3], kernel, Relation.LAUNCHES, "launch")
        edges.add(kernel[:-1:1000], host[3::3][::1000], Relation.WAITS)
    nodes = pd.concat(tables, ignore_index=True)
    nodes = nodes.assign(
        node_id=np.arange(len(nodes)), node_type=nodes["node_type"].astype("category"),
        segment=nodes["segment"].astype("category"),
    )  # fmt: skip
    label = StepLabel(0, "window", None, 1.0, (0.0,) * NUM_RANKS, (1.0,) * NUM_RANKS)
    return ExecutionGraph("big", nodes, edges.table(), (label,), tuple(range(NUM_RANKS)), NUM_RANKS)


def main() -> None:
    """Print the median rate over repeats."""
    graph = big_graph()
    rng = np.random.default_rng(0)
    latency, lag = rng.lognormal(2.0, 1.0, graph.num_nodes), np.ones(len(graph.edges))
    schedule(graph, latency, lag)  # warm-up: compiles
    seconds = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        schedule(graph, latency, lag)
        seconds.append(time.perf_counter() - begin)
    rate = graph.num_nodes / np.array(seconds) / 1e6
    print(f"{graph.num_nodes:,} nodes, {len(graph.edges):,} edges: median {np.median(rate):.1f} million nodes/s "
          f"(min {rate.min():.1f}, max {rate.max():.1f}, {REPEATS} repeats)")  # fmt: skip
    for cores in (graph.num_nodes, 1):
        print(f"with the second pass, {cores:,} cores for both ranks: {contended_s(graph, latency, lag, cores):.1f} s")


def contended_s(graph: ExecutionGraph, latency_us: np.ndarray, lag_us: np.ndarray, cores: int) -> float:
    """Seconds of the second pass where every node of every thread and stream shares cores; median, after warm-up."""
    isolated = Isolated(
        np.ones(graph.num_nodes, dtype=bool), Contention(ranks_per_node=NUM_RANKS, cores_per_node=cores)
    )
    seconds = []
    for _ in range(1 + CONTENDED_REPEATS):
        begin = time.perf_counter()
        schedule_with_contention(graph, latency_us, lag_us, isolated)
        seconds.append(time.perf_counter() - begin)
    return float(np.median(seconds[1:]))


if __name__ == "__main__":
    run_main(main)
