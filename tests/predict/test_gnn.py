from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import cluster, toy_run
from toys import DEFAULTS, edges_of, two_rank_graph

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import NODE_COLUMNS, NodeType, Relation, Source
from gnnperf.gnn import Checkpoint, Judged, ModelConfig, PreparedData, TypedGNN, features, make_checkpoint
from gnnperf.gnn.training.evaluate import residuals_of
from gnnperf.gnn.trust import trust_kinds
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.hardware.placement import Placement
from gnnperf.predict.gnn import SILENT, BlendedPredictor, GnnPredictor, with_links_of
from tests.predict.doubled import OTHERS, doubling


@pytest.fixture
def checkpoint() -> Checkpoint:
    """A network that predicts twice the base for compute nodes and the base of all others."""
    return doubling()


def test_base_times_residual(checkpoint: Checkpoint) -> None:
    graph = toy_run(9)
    estimate = GnnPredictor(checkpoint).predict(graph, cluster())
    base = AnalyticPredictor(checkpoint.constants).predict(graph, cluster())
    assert estimate.latency_us[[3, 10]] == pytest.approx(2 * base.latency_us[[3, 10]], rel=1e-5)
    assert estimate.latency_us[0] == pytest.approx(base.latency_us[0])
    assert estimate.latency_us[[4, 15, 16, 17]].tolist() == [0.0] * 4  # arrival, devices, link
    assert np.array_equal(estimate.analytic_latency_us, base.latency_us, equal_nan=True)
    assert np.array_equal(estimate.lag_us, base.lag_us)
    assert (estimate.source == Source.GNN)[:15].tolist() == [n in (3, 10) for n in range(15)]  # then hardware nodes
    assert set(estimate.source) == {Source.GNN, Source.ANALYTIC}  # silent heads give the base, and it is called so
    assert estimate.uncovered_ops == {}
    assert np.isnan(estimate.latency_low_us).all()


def test_an_op_that_was_never_measured_is_left_to_others(checkpoint: Checkpoint) -> None:
    graph = toy_run(9)
    names = graph.nodes["op_name"].astype(object)
    names[3] = "aten::new"
    estimate = GnnPredictor(checkpoint).predict(replace(graph, nodes=graph.nodes.assign(op_name=names)), cluster())
    assert np.isnan(estimate.latency_us[3])
    assert estimate.source[3] == Source.UNCOVERED
    assert estimate.uncovered_ops == {"aten::new": 1}
    assert np.isfinite(np.delete(estimate.latency_us, 3)).all()


def test_waiting_for_untraced_peers_is_not_predicted(checkpoint: Checkpoint) -> None:
    graph = toy_run(9)
    segment = graph.nodes["segment"].astype(object)
    segment[2] = "peer_wait"
    estimate = GnnPredictor(checkpoint).predict(replace(graph, nodes=graph.nodes.assign(segment=segment)), cluster())
    assert estimate.source[2] == Source.UNCOVERED


def test_measured_times_do_not_change_the_prediction(checkpoint: Checkpoint) -> None:
    graph = toy_run(9)
    other = replace(graph, nodes=graph.nodes.assign(latency_us=np.nan, start_us=np.nan, blocked_us=9.0))
    predictor = GnnPredictor(checkpoint)
    assert np.array_equal(
        predictor.predict(graph, cluster()).latency_us, predictor.predict(other, cluster()).latency_us
    )


LIKE, TABLED, NEW_OP, HUGE, NAMELESS = 3, 10, 18, 19, 20  # node ids


def fallback_graph() -> ExecutionGraph:
    """A run of training, its second gemm with shapes of the table, and three kernels on a stream of their own."""
    graph = toy_run(ord("a"))
    kernel = {**DEFAULTS, "node_type": NodeType.COMPUTE, "device": 0, "stream": 1, "family": "gemm", "dtype": "float32"}
    size = graph.nodes.loc[LIKE, ["flops", "bytes", "input_dims"]].to_dict()
    extra = [
        {**kernel, **size, "op_name": "mine::mm"},
        {**kernel, **size, "op_name": "aten::mm", "flops": 1e30},
        {**kernel, "op_name": "mine::secret", "family": "unknown"},
    ]
    rows = pd.DataFrame([{**row, "node_id": graph.num_nodes + i} for i, row in enumerate(extra)])
    nodes = pd.concat([graph.nodes.astype(object), rows.astype(object)], ignore_index=True)[
        [c.name for c in NODE_COLUMNS]
    ]
    nodes.loc[TABLED, "input_dims"] = "[[64,32],[32,16]]"
    return replace(graph, nodes=nodes.astype({c.name: c.dtype for c in NODE_COLUMNS}))


def test_a_new_op_lies_between_network_and_analytical_latency(checkpoint: Checkpoint) -> None:
    estimate = BlendedPredictor(GnnPredictor(checkpoint)).predict(fallback_graph(), cluster())
    base_us = estimate.analytic_latency_us
    assert estimate.latency_us[LIKE] == pytest.approx(2.0 * base_us[LIKE], rel=1e-5)
    assert estimate.latency_us[NEW_OP] == pytest.approx(2.0**OTHERS.usual * base_us[NEW_OP], rel=1e-5)
    assert np.isnan(estimate.latency_us[NAMELESS])
    assert estimate.mean_latency_us is not None
    assert estimate.isolated is not None
    assert not estimate.isolated.nodes[NAMELESS]


NONE_ALIKE = {"two": ("mine::mm",)}  # program -> ops of its kernels


def test_kernels_of_another_program_keep_what_held_in_left_out_ones(checkpoint: Checkpoint) -> None:
    others = replace(checkpoint.trust, programs={"one": ("aten::mm",), "two": ("mine::mm",)})  # none has both ops
    network = GnnPredictor(replace(checkpoint, trust=others))
    estimate = BlendedPredictor(network).predict(fallback_graph(), cluster())
    base_us = estimate.analytic_latency_us[LIKE]
    assert (estimate.source[LIKE], estimate.reasons[LIKE]) == (Source.GNN_CALIBRATED, "program not in training")
    assert estimate.latency_us[LIKE] == pytest.approx(2.0**OTHERS.usual * base_us, rel=1e-5)
    assert estimate.scheduled_us[LIKE] == pytest.approx(2.0**OTHERS.scheduled * base_us, rel=1e-5)


def test_a_step_of_a_left_out_program_is_predicted_as_one_of_an_unseen_program(
    checkpoint: Checkpoint, data: PreparedData
) -> None:
    """Another network's corrections count as much as this one's would: here they are the same."""
    step = data.steps["test"][0]
    segment, gemm = step.nodes["segment"].astype(object), int(np.argmax(step.nodes["node_type"] == NodeType.COMPUTE))
    segment[2] = "peer_wait"
    base_us = step.base.latency_us.copy()
    base_us[[2, gemm]] = np.nan  # the network starts from a typed floor
    graph = replace(step.graph, nodes=step.nodes.assign(segment=segment))
    step = replace(step, graph=graph, base=step.base.with_latencies(base_us, step.base.source))
    hybrid = BlendedPredictor(GnnPredictor(replace(checkpoint, trust=replace(checkpoint.trust, programs=NONE_ALIKE))))
    kind = trust_kinds(step.nodes, step.stored("base_us"))
    left_out = hybrid.predict_left_out(Judged(step, residuals_of(hybrid.network.network, step), kind, "its program"))
    unseen = hybrid.predict_step(step)
    assert left_out.source.tolist() == unseen.source.tolist()
    assert {Source.GNN_CALIBRATED, Source.ANALYTIC, Source.UNCOVERED} == set(unseen.source)
    assert (unseen.source[2], unseen.source[gemm]) == (Source.UNCOVERED, Source.GNN_CALIBRATED)
    for name in ("latency_us", "scheduled_us"):
        assert getattr(left_out, name) == pytest.approx(getattr(unseen, name), rel=1e-5, nan_ok=True)


def test_a_silent_head_leaves_the_base_and_states_so(checkpoint: Checkpoint) -> None:
    estimate = BlendedPredictor(GnnPredictor(checkpoint)).predict(toy_run(ord("a")), cluster())
    assert estimate.latency_us[0] == pytest.approx(estimate.analytic_latency_us[0])
    assert (estimate.source[0], estimate.reasons[0]) == (Source.ANALYTIC, SILENT)


def test_of_another_device_than_training_nothing_was_learned(checkpoint: Checkpoint) -> None:
    on = cluster()
    estimate = BlendedPredictor(GnnPredictor(checkpoint)).predict(
        toy_run(ord("a")), replace(on, device=replace(on.device, name="another"))
    )
    assert estimate.source[LIKE] == Source.ANALYTIC
    assert estimate.reasons[LIKE] == "device not in training"


COMM = (4, 11)  # nodes that cross a link


def one_host() -> ExecutionGraph:
    return replace(two_rank_graph(), placement=Placement(1))


def crossed(graph: ExecutionGraph) -> dict[int, str]:
    names = graph.nodes["op_name"].astype(object)
    return {src: str(names[dst]) for src, dst in edges_of(graph, Relation.CROSSES)}


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


def test_the_network_sees_the_link_requested_about(data: PreparedData) -> None:
    """Features of a graph on one host, requested on two, are those of the graph traced on two."""
    apart = replace(cluster(), ranks_per_node=1)
    network = TypedGNN(ModelConfig(hidden_channels=8), data.vocabulary)
    predictor = GnnPredictor(make_checkpoint(network, ModelConfig(hidden_channels=8), data, {}))
    graph = one_host()
    estimate = predictor.predict(graph, apart)
    assert estimate.graph is graph and len(estimate.latency_us) == graph.num_nodes
    base = predictor.analytic.predict(with_links_of(graph, apart), apart)
    assert estimate.latency_us[[0, 14]] == pytest.approx(base.latency_us[[0, 14]])  # an untrained network is silent
    made = features(with_links_of(graph, apart), apart, base, data.vocabulary, data.floors)
    same = features(graph, cluster(), predictor.analytic.predict(graph, cluster()), data.vocabulary, data.floors)
    assert not np.array_equal(made["comm"].x.numpy(), same["comm"].x.numpy())
