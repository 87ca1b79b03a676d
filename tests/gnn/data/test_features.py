"""Graphs as the network's input: features, labels, edge types, collectives with untraced peers."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from synthetic import cluster
from torch_geometric.data import Batch, HeteroData
from toys import edges_of, make_graph, two_rank_graph
from traces import all_reduce, call, kernel, mark, op, run_of, trace

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import EVIDENCE_COLUMNS, WORK_TYPES, InputError, NodeType, Relation
from gnnperf.gnn.data.features import FORWARD_EDGE_TYPES, PLACEMENT, RELATION_ENDS, features, joined_by_parts, reverse
from gnnperf.gnn.data.floors import fit_floors
from gnnperf.gnn.data.numbers import WORK_NAMES
from gnnperf.gnn.data.runs import IsolatedLabels
from gnnperf.gnn.data.vocabulary import fit_vocabulary
from gnnperf.graph import ExecutionGraph, build_graph, load_graph

TOY = two_rank_graph()
VOCABULARY, FLOORS = fit_vocabulary([TOY.nodes]), fit_floors([TOY.nodes])


def of(graph: ExecutionGraph) -> HeteroData:
    return features(graph, cluster(), AnalyticPredictor().predict(graph, cluster()), VOCABULARY, FLOORS)


def test_every_node_type_and_every_edge_type_is_there() -> None:
    data = of(TOY)
    assert set(data.node_types) == set(map(str, WORK_TYPES))
    assert set(data.edge_types) == {*FORWARD_EDGE_TYPES, *map(reverse, FORWARD_EDGE_TYPES)}
    assert set(Relation) == {*RELATION_ENDS, *PLACEMENT}
    assert data["memory"].x.shape == (0, data["host"].x.shape[1])
    assert data["memory"].num_nodes == 0
    assert [data[t].num_nodes for t in ("host", "compute", "comm", "collective")] == [8, 2, 4, 1]


def test_edges_point_at_the_right_nodes_both_ways() -> None:
    data = of(TOY)
    launches = data["host", "launches", "compute"].edge_index
    assert launches.tolist() == [[1, 5], [0, 1]]  # the two T4, the two gemms
    assert data["compute", "rev_launches", "host"].edge_index.tolist() == [[0, 1], [1, 5]]
    total = sum(data[t].edge_index.shape[1] for t in FORWARD_EDGE_TYPES)
    assert total == (~TOY.edges["relation"].isin(PLACEMENT)).sum()


def test_targets_by_hand() -> None:
    """The gemms only take 9/10 of what they were recorded with, 8/10 in steady steps."""
    recorded_us = TOY.nodes["latency_us"].to_numpy()
    isolated = IsolatedLabels(0.9 * recorded_us, 0.8 * recorded_us)
    base = AnalyticPredictor().predict(TOY, cluster())
    data = features(TOY, cluster(), base, VOCABULARY, FLOORS, isolated)
    gemm = data["compute"]
    assert torch.allclose(gemm.base_us * gemm.target.double().exp(), 0.9 * gemm.latency_us, rtol=1e-5)
    assert torch.allclose(gemm.base_us * gemm.steady_target.double().exp(), 0.8 * gemm.latency_us, rtol=1e-5)
    assert gemm.latency_us.tolist() == [100.0, 120.0]
    assert torch.isnan(data["comm"].target).all()  # a base of 0 can only be predicted as 0
    shares = torch.cat([data[t].time_share for t in ("host", "compute", "collective")])
    assert shares.sum().item() == pytest.approx(11)  # mean 1 over the labeled nodes
    assert (gemm.time_share[1] / gemm.time_share[0]).item() == pytest.approx(1.2)


def test_a_prediction_has_no_targets() -> None:
    data = of(TOY)
    assert torch.isnan(data["compute"].target).all() and torch.isnan(data["compute"].steady_target).all()


def test_labels_do_not_leak_into_features() -> None:
    host = (
        TOY.nodes["node_type"] == NodeType.HOST
    )  # the name of a runtime call is known before the run, a kernel's is not
    names = TOY.nodes["event_name"].astype(object).where(host, "other")
    labels = {"latency_us": np.nan, "start_us": np.nan, "blocked_us": 3.0, **dict.fromkeys(EVIDENCE_COLUMNS, 7)}
    other = replace(TOY, nodes=TOY.nodes.assign(event_name=names, **labels))
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


@pytest.mark.parametrize(
    ("src", "relation", "dst", "message"),
    [
        ({"node_type": NodeType.DEVICE}, Relation.FOLLOWS, {"node_type": NodeType.HOST}, "edge type"),
        ({"node_type": NodeType.COMM}, Relation.CROSSES, {"node_type": NodeType.LINK, "op_name": "carrier pigeon"},
         "unknown link class 'carrier pigeon'"),
    ],
)  # fmt: skip
def test_an_edge_no_one_foresaw_is_refused(
    src: dict[str, object], relation: str, dst: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        of(make_graph([src, dst], [(0, 1, relation)]))


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


def one_rank_of(world_size: int) -> ExecutionGraph:
    """An all-reduce and a kernel after it on its stream."""
    events = [mark(0, 0, 1000)]
    for corr, at in enumerate((1.0, 11.0), start=1):
        events += [op("c10d::allreduce_", at, at + 8), call("cudaLaunchKernel", at + 2, at + 4, corr=corr)]
    works = [all_reduce(100, 180, size=world_size), kernel("after", 185, 190, stream=20)]
    for corr, work in enumerate(works, start=1):
        work.columns["correlation"] = corr
    return build_graph(run_of(trace(*events, *works, rank=0, world_size=world_size)))


def test_the_part_joins_instead_of_the_wait() -> None:
    graph = one_rank_of(4)
    (wait,) = np.flatnonzero(graph.nodes["segment"] == "peer_wait").tolist()
    (collective,) = np.flatnonzero(graph.nodes["node_type"] == "collective").tolist()
    arrive = int(np.flatnonzero(graph.nodes["segment"] == "arrive")[0])
    assert edges_of(graph, "joins") == {(wait, collective)}
    given = joined_by_parts(graph)
    assert edges_of(given, "joins") == {(arrive, collective)}
    assert edges_of(given, "follows") == edges_of(graph, "follows")
    assert len(given.edges) == len(graph.edges)


def test_a_wait_without_a_part_joins_nothing() -> None:
    graph = one_rank_of(4)
    (wait,) = np.flatnonzero(graph.nodes["segment"] == "peer_wait").tolist()
    cut = replace(graph, edges=graph.edges[graph.edges["dst"] != wait].reset_index(drop=True))
    assert edges_of(joined_by_parts(cut), "joins") == set()


def test_graphs_whose_ranks_were_all_traced_stay() -> None:
    graph = two_rank_graph()
    assert joined_by_parts(graph) is graph


def test_the_network_is_reported_the_link_of_such_a_collective() -> None:
    """Next to a link of 100 GB/s, half of it: the collective's own number moves by ln 2."""
    graph = one_rank_of(4).step(0).for_predictors()
    slower = replace(cluster().intra, bandwidth_bytes_per_s=cluster().intra.bandwidth_bytes_per_s / 2)
    given = []
    for requested in (cluster(), replace(cluster(), intra=slower)):
        data = features(graph, requested, AnalyticPredictor().predict(graph, requested), VOCABULARY, FLOORS)
        assert data["comm", "joins", "collective"].edge_index.tolist() == [[0], [0]]
        given.append(data["collective"].x[0].double().numpy())
    link = WORK_NAMES.index("log_link_bytes_per_s")
    assert given[0][link] == pytest.approx(np.log(cluster().intra.sustained_bytes_per_s), rel=1e-6)
    assert given[0][link] - given[1][link] == pytest.approx(np.log(2.0), abs=1e-5)


DATASET = Path(__file__).parents[3] / "datasets" / "cpu-gloo"


def one_of_each_kind() -> dict[str, str]:
    """Program and division of work -> the smallest recording of it in the embedded data set."""
    result: dict[str, tuple[int, str]] = {}
    for card in sorted(DATASET.glob("*/1/run.json")):
        about = json.loads(card.read_text())
        kind = " ".join([about["workload"], *sorted(about["parallelism"])])
        size = (card.parent / "events.parquet").stat().st_size
        result[kind] = min(result.get(kind, (size, card.parent.parent.name)), (size, card.parent.parent.name))
    return {kind: name for kind, (_, name) in result.items()}


SMALLEST = one_of_each_kind()


@pytest.mark.parametrize("kind", SMALLEST)
def test_graphs_of_recorded_runs_have_no_other(kind: str) -> None:
    graph = load_graph(DATASET / SMALLEST[kind] / "1")
    node_type = graph.nodes["node_type"].astype(str).to_numpy()
    src, dst = (node_type[graph.edges[end].to_numpy()] for end in ("src", "dst"))
    there = set(zip(src, graph.edges["relation"].astype(str), dst, strict=True))
    assert there
    assert {t for t in there if t[1] not in PLACEMENT} <= set(FORWARD_EDGE_TYPES)
