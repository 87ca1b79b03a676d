"""The graph and its schedule: counts by hand, against closed formulas, ranks requested."""

from itertools import pairwise

import numpy as np
import pytest

from gnnperf.core import NodeType, OpFamily
from gnnperf.generate.recommendation.build import build_recommendation
from gnnperf.generate.recommendation.network import dense_parameters, top_widths
from gnnperf.generate.recommendation.plan import Interaction, Optimizer, RecommendationPlan, Recommender, Split
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.schedule import schedule
from tests.generate.recommendation.plans import DIM, TABLES, mixed, model, on, over, plan
from tests.generate.transformer.plans import step_us


def _transfers(graph: ExecutionGraph) -> list[tuple[str, float, int]]:
    result = graph.nodes[(graph.nodes["node_type"] == NodeType.COLLECTIVE).to_numpy()]
    return list(zip(result["collective"], result["message_bytes"], result["group_size"], strict=True))


def _kernels(graph: ExecutionGraph, rank: int) -> list[str]:
    nodes = graph.nodes
    return nodes["op_name"][((nodes["node_type"] == NodeType.COMPUTE) & (nodes["rank"] == rank)).to_numpy()].tolist()


def test_parameters_and_flops_of_the_perceptrons() -> None:
    """13-32-16 and (16 + 10)-24-1; 2 FLOPs per weight and sample, backward twice that but for the first layer."""
    assert top_widths(model()) == (16 + 10, 24, 1)
    weights = [(13, 32), (32, 16), (26, 24), (24, 1)]
    assert dense_parameters(model()) == sum((i + 1) * o for i, o in weights)
    nodes = build_recommendation(plan(2)).nodes
    is_product = (nodes["family"] == OpFamily.GEMM) & nodes["op_name"].isin(["aten::mm", "aten::addmm"])
    expected = 3 * sum(2 * i * o for i, o in weights) - 2 * 13 * 32
    assert nodes["flops"][is_product.to_numpy()].sum() == 1024 * expected


def test_interaction_by_cat_and_by_dot() -> None:
    cat = Recommender(TABLES, (32, DIM), (24, 1), interaction=Interaction.CAT)
    assert top_widths(cat)[0] == DIM * (1 + len(TABLES))
    assert top_widths(model())[0] == DIM + 5 * 4 // 2


def test_collectives_of_whole_tables_by_hand() -> None:
    """Tables 0 and 2 on rank 0, 1 and 3 on rank 1: columns 32 and 32; indices 3 and 11, of which rank 1 has more."""
    result = _transfers(build_recommendation(plan(2)))
    samples = 512
    vectors = 2 * samples * 32 * 4.0
    assert result[:3] == [("all_to_all", 2 * samples * 2 * 4.0, 2), ("all_to_all", 2 * samples * 11 * 8.0, 2),
                         ("all_to_all", vectors, 2)]  # fmt: skip
    gradients = [4.0 * (i + 1) * o for i, o in ((26, 24), (24, 1), (13, 32), (32, 16))]
    assert result[3:] == [("all_reduce", gradients[0] + gradients[1], 2), ("all_to_all", vectors, 2),
                         ("all_reduce", gradients[2] + gradients[3], 2)]  # fmt: skip


def test_collectives_of_every_way_to_hold_a_table() -> None:
    result = _transfers(build_recommendation(mixed(4)))
    assert [kind for kind, *_ in result] == [
        *["all_to_all"] * 3, "reduce_scatter", "all_reduce", "all_to_all", "all_gather", "all_reduce", "all_reduce",
    ]  # fmt: skip
    by_kind = {kind: size for kind, size, _ in result}
    assert by_kind["reduce_scatter"] == 1024 * DIM * 4.0
    assert by_kind["all_gather"] == 256 * DIM * 4.0
    assert by_kind["all_reduce"] == 7 * DIM * 4.0  # the last: the replicated table's gradient


def test_what_the_ranks_do_differs_by_their_tables() -> None:
    graph = build_recommendation(plan(4, on(0), on(0), on(1), on(1)))
    held = [_kernels(graph, rank).count("planned::batched_lookup") for rank in range(4)]
    assert held == [1, 1, 0, 0]
    assert [_kernels(graph, rank).count("planned::batched_lookup_update") for rank in range(4)] == held


def test_one_rank_has_no_collectives_and_updates_in_place() -> None:
    graph = build_recommendation(plan(1))
    assert _transfers(graph) == []
    kernels = _kernels(graph, 0)
    assert kernels.count("planned::batched_lookup") == kernels.count("planned::batched_lookup_update") == 1
    assert np.isfinite(step_us(graph))


@pytest.mark.parametrize("optimizer", list(Optimizer))
def test_everything_is_covered_and_nothing_is_labeled(optimizer: Optimizer) -> None:
    graph = build_recommendation(mixed(4, optimizer=optimizer))
    work = graph.nodes[(graph.nodes["step"] == 0).to_numpy()]
    assert work[["start_us", "latency_us", "blocked_us"]].isna().all().all()
    assert graph.ops_without_cost() == {}
    assert np.isfinite(step_us(graph))


def test_half_products_are_faster_on_large_perceptrons() -> None:
    def large(dtype: str) -> float:
        big = Recommender(TABLES, (2048, DIM), (2048, 2048, 1), dtype=dtype)
        return step_us(build_recommendation(RecommendationPlan("a", big, 65536, 2, (on(0), on(1), on(0), on(1)))))

    assert large("bfloat16") < 0.6 * large("float32")


def test_vectors_travel_with_the_bottom_perceptron() -> None:
    """Transfers of 100 us, the bottom perceptron's kernels 10 us each (2 x (product, ReLU)): hidden, not added."""
    graph = build_recommendation(plan(2))
    nodes = graph.nodes
    moves = (nodes["collective"] == "all_to_all").to_numpy() & (nodes["node_type"] == NodeType.COLLECTIVE).to_numpy()
    vectors = np.flatnonzero(moves)[2:4]  # forward and back
    linear = nodes["op_name"].isin(["aten::addmm", "aten::relu"]).to_numpy() & (nodes["device"] >= 0).to_numpy()
    latency_us = np.where(linear, 10.0, 0.0)
    isolated_us = schedule(graph, latency_us, np.zeros(len(graph.edges))).makespan_us
    latency_us[vectors] = [30.0, 0.0]
    assert isolated_us == pytest.approx(4 * 10.0 + 3 * 10.0)  # the last layer has a sigmoid instead
    assert schedule(graph, latency_us, np.zeros(len(graph.edges))).makespan_us == pytest.approx(isolated_us)
    latency_us[vectors] = [100.0, 50.0]
    assert schedule(graph, latency_us, np.zeros(len(graph.edges))).makespan_us == pytest.approx(100.0 + 30.0 + 50.0)


def test_kernels_wait_for_what_they_await_only() -> None:
    """The bottom perceptron waits for no transfer of vectors; the interaction does."""
    graph = build_recommendation(plan(2))
    kind, rank, names = (graph.nodes[name].astype(str).to_numpy() for name in ("node_type", "rank", "op_name"))
    waits = graph.edges[(graph.edges["lag_class"] == "event").to_numpy()]
    pairs = sorted(zip(waits["src"], waits["dst"], strict=True), key=lambda pair: (pair[1], pair[0]))
    awaiting = [names[d] for s, d in pairs if rank[s] == "0" and (kind[s], kind[d]) == ("comm", "compute")]
    assert awaiting == [
        "fbgemm::permute_2D_sparse_data", "fbgemm::permute_2D_sparse_data", "aten::cat",
        "fbgemm::linearize_index", "aten::_fused_sgd_", "aten::_fused_sgd_",
    ]  # fmt: skip


def test_ranks_requested_for_have_the_collectives_of_all() -> None:
    whole, few = build_recommendation(mixed(4)), build_recommendation(mixed(4), (1, 3))
    assert few.ranks == (1, 3) and few.world_size == 4
    assert _transfers(few) == _transfers(whole)
    for rank in few.ranks:
        assert _kernels(few, rank) == _kernels(whole, rank)


def test_more_even_columns_make_a_shorter_step() -> None:
    """All tables on one of two ranks, or two on each."""
    uneven = plan(2, *[on(0)] * 4, batch=65536)
    even = plan(2, on(0), on(0), on(1), on(1), batch=65536)
    assert step_us(build_recommendation(even)) < step_us(build_recommendation(uneven))


def test_rows_over_all_ranks_spread_the_lookups() -> None:
    graph = build_recommendation(plan(4, over(Split.ROW, 4), on(0), on(0), on(0)))
    for rank in range(4):
        assert "planned::batched_lookup" in _kernels(graph, rank)


def test_buckets_hold_all_gradients() -> None:
    """Perceptrons of several buckets: 1 MiB first, then 25 MiB."""
    wide = Recommender(TABLES, (2048, 1024, DIM), (4096, 2048, 1))
    graph = build_recommendation(RecommendationPlan("a", wide, 64, 2, (on(0), on(1), on(0), on(1))))
    sizes = [size for kind, size, _ in _transfers(graph) if kind == "all_reduce"]
    assert sum(sizes) == 4.0 * dense_parameters(wide)
    assert len(sizes) == 2 + 2
    below, above = list(pairwise((13, *wide.bottom))), list(pairwise(top_widths(wide)))
    assert sizes[0] == 4.0 * sum((i + 1) * o for i, o in above[1:])
    assert sizes[2] == 4.0 * sum((i + 1) * o for i, o in below[1:])
