from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import cluster, prepared
from toys import two_rank_graph

from gnnperf.core.schema import Relation
from gnnperf.gnn.checkpoint import make_checkpoint
from gnnperf.gnn.data.features import features
from gnnperf.gnn.models.gnn import TypedGNN
from gnnperf.gnn.models.message_passing import ModelConfig
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.hardware.placement import Placement
from gnnperf.predict.gnn import GnnPredictor, with_links_of

COMM = (4, 11)  # nodes that cross a link


def one_host() -> ExecutionGraph:
    return replace(two_rank_graph(), placement=Placement(1))


def crossed(graph: ExecutionGraph) -> dict[int, str]:
    edges = graph.edges[(graph.edges["relation"] == Relation.CROSSES).to_numpy()]
    names = graph.nodes["op_name"].astype(object)
    return {int(src): str(names[dst]) for src, dst in zip(edges["src"], edges["dst"], strict=True)}


def test_ranks_on_two_nodes_talk_over_the_link_between_them() -> None:
    graph, apart = one_host(), replace(cluster(), ranks_per_node=1)
    assert crossed(with_links_of(graph, cluster())) == dict.fromkeys(COMM, "intra")
    result = with_links_of(graph, apart).validate()
    assert crossed(result) == dict.fromkeys(COMM, "inter")
    assert result.num_nodes == graph.num_nodes + 1  # the new link comes last
    new = result.edges[(result.edges["src"] == graph.num_nodes).to_numpy()]
    assert new["relation"].astype(str).tolist() == ["connects", "connects"]
    assert new["dst"].tolist() == [15, 16]  # the devices


def test_and_back() -> None:
    apart = with_links_of(one_host(), replace(cluster(), ranks_per_node=1))
    assert crossed(with_links_of(apart, cluster())) == dict.fromkeys(COMM, "intra")


def test_what_is_not_known_stays() -> None:
    unsaid, together = two_rank_graph(), one_host()
    assert with_links_of(unsaid, replace(cluster(), ranks_per_node=1)) is unsaid
    assert with_links_of(together, cluster()) is together


@given(st.integers(-1, 2))
def test_the_rule_is_that_of_traces(size: int) -> None:
    nodes = one_host().nodes
    graph = replace(one_host(), nodes=nodes.assign(group_size=nodes["group_size"].where(nodes["group_size"] < 0, size)))
    link = "intra" if size in (0, 1) else "inter"
    assert set(crossed(with_links_of(graph, replace(cluster(), ranks_per_node=1))).values()) == {link}


def test_the_network_sees_the_link_requested_about(tmp_path: Path) -> None:
    """Features of a graph on one host, requested on two, are those of the graph traced on two."""
    data, apart = prepared(tmp_path), replace(cluster(), ranks_per_node=1)
    network = TypedGNN(ModelConfig(hidden_channels=8), data.vocabulary)
    predictor = GnnPredictor(make_checkpoint(network, ModelConfig(hidden_channels=8), data, {}))
    graph = one_host()
    answer = predictor.predict(graph, apart)
    assert answer.graph is graph and len(answer.latency_us) == graph.num_nodes
    base = predictor.analytic.predict(with_links_of(graph, apart), apart)
    assert answer.latency_us[[0, 14]] == pytest.approx(base.latency_us[[0, 14]])  # an untrained network is silent
    made = features(with_links_of(graph, apart), apart, base, data.vocabulary, data.floors)
    same = features(graph, cluster(), predictor.analytic.predict(graph, cluster()), data.vocabulary, data.floors)
    assert not np.array_equal(made["comm"].x.numpy(), same["comm"].x.numpy())
    assert len(made["link"].x) == len(same["link"].x) + 1
