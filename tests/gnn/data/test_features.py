from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import cluster
from torch_geometric.data import Batch, HeteroData
from toys import make_graph, two_rank_graph

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core.errors import InputError
from gnnperf.core.schema import EVIDENCE_COLUMNS, NodeType, Relation
from gnnperf.gnn.data.features import FORWARD_EDGE_TYPES, RELATION_ENDS, features, reverse
from gnnperf.gnn.data.floors import fit_floors
from gnnperf.gnn.data.runs import IsolatedLabels
from gnnperf.gnn.data.vocabulary import fit_vocabulary
from gnnperf.graph.execution_graph import ExecutionGraph

TOY = two_rank_graph()
VOCABULARY, FLOORS = fit_vocabulary([TOY.nodes]), fit_floors([TOY.nodes])


def of(graph: ExecutionGraph) -> HeteroData:
    return features(graph, cluster(), AnalyticPredictor().predict(graph, cluster()), VOCABULARY, FLOORS)


def test_every_node_type_and_every_edge_type_is_there() -> None:
    data = of(TOY)
    assert set(data.node_types) == set(map(str, NodeType))
    assert set(data.edge_types) == {*FORWARD_EDGE_TYPES, *map(reverse, FORWARD_EDGE_TYPES)}
    assert set(Relation) == set(RELATION_ENDS)
    assert data["memory"].x.shape == (0, data["host"].x.shape[1])
    assert data["memory"].num_nodes == 0
    assert [data[t].num_nodes for t in ("host", "compute", "comm", "collective", "device", "link")] == [
        8,
        2,
        4,
        1,
        2,
        1,
    ]


def test_edges_point_at_the_right_nodes_both_ways() -> None:
    data = of(TOY)
    launches = data["host", "launches", "compute"].edge_index
    assert launches.tolist() == [[1, 5], [0, 1]]  # the two T4, the two gemms
    assert data["compute", "rev_launches", "host"].edge_index.tolist() == [[0, 1], [1, 5]]
    total = sum(data[t].edge_index.shape[1] for t in FORWARD_EDGE_TYPES)
    assert total == len(TOY.edges)


def test_targets_by_hand() -> None:
    """The gemms only take 9/10 of what they were recorded with, 8/10 in steady steps."""
    recorded_us = TOY.nodes["latency_us"].to_numpy()
    isolated = IsolatedLabels(0.9 * recorded_us, 0.8 * recorded_us, np.full(TOY.num_nodes, 1.25))
    base = AnalyticPredictor().predict(TOY, cluster())
    data = features(TOY, cluster(), base, VOCABULARY, FLOORS, isolated)
    gemm = data["compute"]
    assert torch.allclose(gemm.base_us * gemm.target.double().exp(), 0.9 * gemm.latency_us, rtol=1e-5)
    assert torch.allclose(gemm.base_us * gemm.steady_target.double().exp(), 0.8 * gemm.latency_us, rtol=1e-5)
    assert gemm.stretch.tolist() == [1.25, 1.25]
    assert gemm.latency_us.tolist() == [100.0, 120.0]
    assert torch.isnan(data["comm"].target).all()  # a base of 0 can only be answered by 0
    shares = torch.cat([data[t].time_share for t in ("host", "compute", "collective")])
    assert shares.sum().item() == pytest.approx(11)  # mean 1 over the labeled nodes
    assert (gemm.time_share[1] / gemm.time_share[0]).item() == pytest.approx(1.2)


def test_a_prediction_has_no_targets() -> None:
    data = of(TOY)
    assert torch.isnan(data["compute"].target).all() and torch.isnan(data["compute"].steady_target).all()
    assert data["compute"].stretch.tolist() == [1.0, 1.0]


def test_labels_do_not_leak_into_features() -> None:
    host = (
        TOY.nodes["node_type"] == NodeType.HOST
    )  # the name of a runtime call is known before the run, a kernel's is not
    names = TOY.nodes["event_name"].astype(object).where(host, "other")
    launch = dict.fromkeys(EVIDENCE_COLUMNS, 7)
    other = replace(TOY, nodes=TOY.nodes.assign(latency_us=np.nan, start_us=np.nan, event_name=names, **launch))
    for node_type in ("host", "compute", "comm", "collective"):
        assert torch.equal(of(TOY)[node_type].x, of(other)[node_type].x)
        assert torch.equal(of(TOY)[node_type].codes, of(other)[node_type].codes)


def test_collation_increments_nothing_but_edges() -> None:
    data = of(TOY)
    batch = Batch.from_data_list([data, data])
    for name in data["host"].keys():  # noqa: SIM118 - a PyG store iterates over values
        if name != "num_nodes":
            assert torch.equal(torch.nan_to_num(batch["host"][name][8:]), torch.nan_to_num(data["host"][name])), name
    assert batch["host", "launches", "compute"].edge_index.tolist() == [[1, 5, 9, 13], [0, 1, 2, 3]]


def test_an_edge_type_no_one_foresaw_is_refused() -> None:
    rows: list[dict[str, object]] = [{"node_type": NodeType.DEVICE}, {"node_type": NodeType.HOST, "latency_us": 1.0}]
    with pytest.raises(InputError, match="edge type"):
        of(make_graph(rows, [(0, 1, Relation.FOLLOWS)]))


def test_an_unknown_link_class_is_refused() -> None:
    with pytest.raises(InputError, match="unknown link class 'carrier pigeon'"):
        of(make_graph([{"node_type": NodeType.LINK, "op_name": "carrier pigeon"}], []))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "node_type": st.sampled_from([NodeType.HOST, NodeType.COMPUTE, NodeType.MEMORY]),
                "flops": st.floats(min_value=0, max_value=1e24) | st.just(np.nan),
                "bytes": st.floats(min_value=0, max_value=1e24) | st.just(np.nan),
                "latency_us": st.floats(min_value=0, max_value=1e12) | st.just(np.nan),
                "input_dims": st.none() | st.just("[[3,4]]"),
            }
        ),
        max_size=5,
    )
)
def test_features_are_finite_whatever_is_unknown(rows: list[dict[str, object]]) -> None:
    data = of(make_graph([*rows, {"node_type": NodeType.LINK, "op_name": "intra"}], []))
    assert all(torch.isfinite(data[t].x).all() for t in data.node_types)
