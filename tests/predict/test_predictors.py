"""The ladder: first answer that is not NaN."""

from __future__ import annotations

import numpy as np

from gnnperf.core.schema import Source
from gnnperf.graph.prediction import uncovered_ops
from gnnperf.hardware.contention import Contention
from gnnperf.predict.predictors import Predictors
from tests.predict.answers import GEMM_0, GEMM_1, Fixed
from tests.toys import make_graph, two_rank_graph

NETWORK = Fixed({GEMM_0: 70.0, GEMM_1: np.nan}, source=Source.GNN, warnings=("network",))


def test_network_where_it_answers_else_analytic() -> None:
    fallback_order = Predictors((NETWORK, Fixed({GEMM_0: 1.0, GEMM_1: 90.0}, warnings=("network", "analytic"))))
    merged = fallback_order.predict(two_rank_graph(), None)  # type: ignore[arg-type]
    assert merged.latency_us[[GEMM_0, GEMM_1]].tolist() == [70.0, 90.0]
    assert merged.source[[GEMM_0, GEMM_1]].tolist() == [Source.GNN, Source.ANALYTIC]
    assert merged.uncovered_ops == {}
    assert merged.warnings == ("network", "analytic")


def test_node_without_any_answer_is_uncovered_and_named() -> None:
    fallback_order = Predictors((NETWORK, Fixed({GEMM_1: np.nan})))
    merged = fallback_order.predict(two_rank_graph(), None)  # type: ignore[arg-type]
    assert np.isnan(merged.latency_us[GEMM_1])
    assert merged.source[GEMM_1] == Source.UNCOVERED
    assert merged.uncovered_ops == {"aten::mm": 1}


def test_only_latencies_of_ops_isolated_are_left_to_stretch() -> None:
    """The network answers for a rank in place; the analytical model, which fills its gap, for the isolated op."""
    fallback_order = Predictors((NETWORK, Fixed({GEMM_1: 90.0}, contention=Contention(memory_slowdown=2.0))))
    merged = fallback_order.predict(two_rank_graph(), None)  # type: ignore[arg-type]
    assert merged.isolated is not None
    assert np.flatnonzero(merged.isolated.nodes).tolist() == [GEMM_1]
    assert merged.isolated.contention.memory_slowdown == 2.0
    both_in_place = Predictors((NETWORK, Fixed())).predict(two_rank_graph(), None)  # type: ignore[arg-type]
    assert both_in_place.isolated is None


def test_single_rung_is_itself() -> None:
    graph = two_rank_graph()
    isolated = Predictors((Fixed(),)).predict(graph, None)  # type: ignore[arg-type]
    assert np.array_equal(isolated.latency_us, Fixed().predict(graph, None).latency_us)  # type: ignore[arg-type]


def test_uncovered_ops_are_named_by_event_or_peer_wait_where_there_is_no_op() -> None:
    rows: list[dict[str, object]] = [
        {"node_type": "compute", "event_name": "triton_kernel"},
        {"node_type": "host", "segment": "peer_wait", "op_name": "c10d::allreduce_"},
        {"node_type": "compute"},
        {"node_type": "device", "op_name": "GPU"},  # hardware is no work
    ]
    graph = make_graph(rows, [])
    assert uncovered_ops(graph, np.full(4, np.nan)) == {"(unnamed)": 1, "peer_wait": 1, "triton_kernel": 1}
