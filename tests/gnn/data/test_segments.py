"""Segments of a graph: a partition of its work, and the whole graph's answers for every inner node."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from synthetic import cluster
from torch_geometric.data import HeteroData
from toys import make_graph

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import NodeType, Relation, Segment
from gnnperf.gnn import WORK, Step, TypedGNN, features, outputs_of
from gnnperf.gnn.data.floors import fit_floors
from gnnperf.gnn.data.module import Examples, batch_of
from gnnperf.gnn.data.normalizer import fit_normalizer
from gnnperf.gnn.data.segments import SegmentedGraph
from gnnperf.gnn.data.vocabulary import fit_vocabulary
from gnnperf.graph.execution_graph import ExecutionGraph
from tests.gnn.models.test_gnn import network

LAUNCHES = 12


def long_run(seed: int) -> ExecutionGraph:
    """Two ranks of 12 launches each; rank 1 waits for a kernel of rank 0 after every fourth of its own."""
    draw, kernels = np.random.default_rng(seed), list[list[int]]()
    rows, edges = list[dict[str, object]](), list[tuple[int, int, str]]()
    for rank in (0, 1):
        host = [_add(rows, _host(rank, draw)) for _ in range(LAUNCHES)]
        kernels.append([_add(rows, _kernel(rank, draw)) for _ in range(LAUNCHES)])
        edges += [(a, b, Relation.FOLLOWS) for a, b in itertools.pairwise(host)]
        edges += [(a, b, Relation.FOLLOWS) for a, b in zip(kernels[-1], kernels[-1][1:], strict=False)]
        edges += [(a, b, Relation.LAUNCHES) for a, b in zip(host, kernels[-1], strict=True)]
        edges += [(kernels[-1][0], kernels[-1][-1], Relation.FEEDS)]  # far in time: the halo is not only a margin
    edges += [(kernels[0][at], kernels[1][at + 1], Relation.WAITS) for at in range(3, LAUNCHES - 1, 4)]
    device = [_add(rows, {"node_type": NodeType.DEVICE, "rank": r, "device": r, "step": -1, "op_name": "V100"})
              for r in (0, 1)]  # fmt: skip
    edges += [(k, device[rank], Relation.RUNS_ON) for rank in (0, 1) for k in kernels[rank]]
    return replace(make_graph(rows, edges, ranks=(0, 1)), fingerprint=f"long{seed}")


def _add(rows: list[dict[str, object]], row: dict[str, object]) -> int:
    rows.append(row)
    return len(rows) - 1


def _host(rank: int, draw: np.random.Generator) -> dict[str, object]:
    return {"rank": rank, "node_type": NodeType.HOST, "thread": 0, "op_name": "aten::mm", "segment": Segment.T4,
            "latency_us": float(draw.uniform(5, 10)), "start_us": 0.0}  # fmt: skip


def _kernel(rank: int, draw: np.random.Generator) -> dict[str, object]:
    size = int(draw.integers(2, 9)) * 128
    return {"rank": rank, "node_type": NodeType.COMPUTE, "device": rank, "stream": 0, "op_name": "aten::mm",
            "family": "gemm", "dtype": "float32", "input_dims": f"[[{size},{size}],[{size},{size}]]",
            "flops": 2.0 * size**3, "bytes": 12.0 * size**2, "latency_us": float(draw.uniform(50, 90)),
            "start_us": 0.0}  # fmt: skip


GRAPH = long_run(0)
VOCABULARY, FLOORS = fit_vocabulary([GRAPH.nodes]), fit_floors([GRAPH.nodes])


def data_of(graph: ExecutionGraph) -> HeteroData:
    raw = features(graph, cluster(), AnalyticPredictor().predict(graph, cluster()), VOCABULARY, FLOORS)
    data = fit_normalizer([raw]).apply(raw)
    for node_type in data.node_types:
        data[node_type].x = data[node_type].x.double()
    return data


DATA = data_of(GRAPH)
NUM_WORK = sum(len(DATA[t].x) for t in WORK)


def exact(**settings: float) -> TypedGNN:
    """Arithmetic that is exact, near enough."""
    return network(VOCABULARY, **settings).double()


@given(max_nodes=st.integers(2, 60), num_hops=st.integers(0, 4))
def test_windows_are_a_partition_in_order_of_time(max_nodes: int, num_hops: int) -> None:
    whole = SegmentedGraph(DATA, num_hops)
    windows = whole.windows(max_nodes)
    rows = np.concatenate(windows)
    assert sorted(rows) == list(range(NUM_WORK))  # work types come first
    place = np.argsort(rows)  # of every row
    first, timed = whole.first, ("follows", "launches", "waits")
    for src, relation, dst in DATA.edge_types:
        if relation in timed:
            ends = DATA[src, relation, dst].edge_index.numpy()
            assert (place[ends[0] + first[src]] < place[ends[1] + first[dst]]).all()


def test_segments_hold_no_more_than_requested_for_unless_one_node_does() -> None:
    whole = SegmentedGraph(DATA, 1)
    sizes = [whole.cut(w)[0].num_nodes for w in whole.windows(20)]
    assert len(sizes) > NUM_WORK / 20
    assert max(s for s in sizes if s is not None) <= 20
    assert all(len(w) == 1 for w in SegmentedGraph(DATA, 1).windows(2))  # their halos cannot be left out


@pytest.mark.parametrize("num_layers", [0, 1, 2, 3])
@pytest.mark.parametrize("max_nodes", [10, 25])
def test_inner_nodes_are_predicted_as_in_the_whole_graph(num_layers: int, max_nodes: int) -> None:
    model = exact(num_layers=num_layers)
    together, apart = model(DATA), outputs_of(model, DATA, max_nodes)
    for node_type in WORK:
        for part in ("residual", "scheduled_residual"):
            one, two = getattr(together[node_type], part), getattr(apart[node_type], part)
            assert torch.allclose(one, two, rtol=0, atol=1e-12), node_type


def test_a_halo_of_fewer_hops_than_layers_would_not_do() -> None:
    model = exact(num_layers=3)
    model.num_layers = 2
    right, wrong = model(DATA), outputs_of(model, DATA, 25)
    assert not torch.allclose(right["compute"].residual, wrong["compute"].residual, atol=1e-6)


def test_every_label_is_learned_from_once_in_a_pass() -> None:
    whole = SegmentedGraph(DATA, 2)
    parts = [whole.cut(w) for w in whole.windows(20)]
    for node_type in WORK:
        stores = [data[node_type] for data, _ in parts]
        rows = torch.cat([s.node_id[torch.isfinite(s.target)] for s in stores])
        assert sorted(rows.tolist()) == sorted(DATA[node_type].node_id[torch.isfinite(DATA[node_type].target)].tolist())
        assert all(torch.equal(inner[node_type][torch.isfinite(s.target)],
                               torch.ones(int(torch.isfinite(s.target).sum()), dtype=torch.bool))
                   for (_, inner), s in zip(parts, stores, strict=True))  # fmt: skip


def test_a_whole_graph_stays_as_it_is_and_a_segment_joins_a_batch_with_others() -> None:
    step = Step("a", GRAPH, DATA, cluster(), AnalyticPredictor().predict(GRAPH, cluster()), 1.0)
    small = Examples([step], max_nodes=1000, num_hops=2)
    assert len(small) == 1
    assert small[0] is DATA
    cut = Examples([step], max_nodes=20, num_hops=2)
    batch = batch_of([cut[0], DATA])
    assert batch.num_graphs == 2
    assert all(len(batch[t].x) == len(cut[0][t].x) + len(DATA[t].x) for t in WORK)


def test_every_edge_type_is_there_as_in_the_whole_graph() -> None:
    segment = SegmentedGraph(DATA, 1).segment(np.array([0]))
    assert segment.edge_types == DATA.edge_types
    assert all(segment[t].edge_index.shape[0] == 2 for t in segment.edge_types)
