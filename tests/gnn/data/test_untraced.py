"""Collectives whose peers were not traced: the graph of one rank of two, as build_graph makes it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic import cluster
from toys import two_rank_graph
from traces import all_reduce, call, kernel, mark, op, run_of, trace

from gnnperf.analytic import AnalyticPredictor
from gnnperf.gnn.data.features import features, joined_by_parts
from gnnperf.gnn.data.floors import fit_floors
from gnnperf.gnn.data.numbers import WORK_NAMES
from gnnperf.gnn.data.vocabulary import fit_vocabulary
from gnnperf.graph.build import build_graph
from gnnperf.graph.execution_graph import ExecutionGraph


def one_rank_of(world_size: int) -> ExecutionGraph:
    """An all-reduce and a kernel after it on its stream."""
    events = [mark(0, 0, 1000)]
    for corr, at in enumerate((1.0, 11.0), start=1):
        events += [op("c10d::allreduce_", at, at + 8), call("cudaLaunchKernel", at + 2, at + 4, corr=corr)]
    works = [all_reduce(100, 180, size=world_size), kernel("after", 185, 190, stream=20)]
    for corr, work in enumerate(works, start=1):
        work.columns["correlation"] = corr
    return build_graph(run_of(trace(*events, *works, rank=0, world_size=world_size)))


def edges(graph: ExecutionGraph, relation: str) -> list[tuple[int, int]]:
    result = graph.edges[graph.edges["relation"] == relation]
    return list(zip(result["src"].tolist(), result["dst"].tolist(), strict=True))


def test_the_part_joins_instead_of_the_wait() -> None:
    graph = one_rank_of(4)
    (wait,) = np.flatnonzero(graph.nodes["segment"] == "peer_wait").tolist()
    (collective,) = np.flatnonzero(graph.nodes["node_type"] == "collective").tolist()
    arrive = int(np.flatnonzero(graph.nodes["segment"] == "arrive")[0])
    assert edges(graph, "joins") == [(wait, collective)]
    given = joined_by_parts(graph)
    assert edges(given, "joins") == [(arrive, collective)]
    assert edges(given, "follows") == edges(graph, "follows")
    assert len(given.edges) == len(graph.edges)


def test_a_wait_without_a_part_joins_nothing() -> None:
    graph = one_rank_of(4)
    (wait,) = np.flatnonzero(graph.nodes["segment"] == "peer_wait").tolist()
    cut = replace(graph, edges=graph.edges[graph.edges["dst"] != wait].reset_index(drop=True))
    assert edges(joined_by_parts(cut), "joins") == []


def test_graphs_whose_ranks_were_all_traced_stay() -> None:
    graph = two_rank_graph()
    assert joined_by_parts(graph) is graph


def test_the_network_is_reported_the_link_of_such_a_collective() -> None:
    """Next to a link of 100 GB/s, half of it: the collective's own number moves by ln 2."""
    graph = one_rank_of(4).step(0).for_predictors()
    words, floors = fit_vocabulary([two_rank_graph().nodes]), fit_floors([two_rank_graph().nodes])
    slower = replace(cluster().intra, bandwidth_bytes_per_s=cluster().intra.bandwidth_bytes_per_s / 2)
    given = []
    for requested in (cluster(), replace(cluster(), intra=slower)):
        data = features(graph, requested, AnalyticPredictor().predict(graph, requested), words, floors)
        assert data["comm", "joins", "collective"].edge_index.tolist() == [[0], [0]]
        given.append(data["collective"].x[0].double().numpy())
    link = WORK_NAMES.index("log_link_bytes_per_s")
    assert given[0][link] == pytest.approx(np.log(cluster().intra.sustained_bytes_per_s), rel=1e-6)
    assert given[0][link] - given[1][link] == pytest.approx(np.log(2.0), abs=1e-5)
