"""Contention backwards: what recorded latencies would have been of isolated ops. By hand, and back and forth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import make_graph

from gnnperf.core.schema import NodeType, Relation
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.graph.prediction import Isolated
from gnnperf.hardware.contention import Contention
from gnnperf.schedule import schedule_with_contention
from gnnperf.schedule.contention import isolated_us
from tests.schedule.test_contention import GPU, LINKS, ONE_CORE, arrive, host, kernel, thread, transfer


def recorded(rows: list[dict[str, object]], joins: list[tuple[int, int]] = []) -> ExecutionGraph:  # noqa: B006
    return make_graph(rows, [(src, dst, Relation.JOINS) for src, dst in joins], ranks=(0, 1))


def test_a_kernel_that_ran_with_a_transfer_was_slowed_by_it() -> None:
    """10 us by itself, 50 next to the transfer (25 done), 65 by itself: 100 of its own. The transfer: 50 / 1.25."""
    rows = [{**kernel(125.0), "start_us": 0.0}, {**arrive(0), "start_us": 10.0}, {**arrive(1), "start_us": 10.0},
            {**transfer(50.0), "start_us": 10.0}]  # fmt: skip
    result = isolated_us(recorded(rows, [(1, 3), (2, 3)]), GPU)
    assert result.tolist() == pytest.approx([100.0, 0.0, 0.0, 40.0])


def test_threads_that_shared_a_core() -> None:
    """A: 10 us by itself, 20 at half speed; B, 10 us later: 20 at half speed, 10 by itself; then C."""
    rows = [{**thread(30.0), "start_us": 0.0}, {**thread(30.0, 1), "start_us": 10.0}, {**host(4.0), "start_us": 40.0}]
    result = isolated_us(recorded(rows), replace(ONE_CORE, ranks_per_node=2))
    assert result.tolist() == pytest.approx([20.0, 20.0, 4.0])


def test_what_only_touches_does_not_share() -> None:
    rows = [{**thread(30.0), "start_us": 0.0}, {**thread(30.0, 1), "start_us": 30.0}]
    assert isolated_us(recorded(rows), ONE_CORE).tolist() == [30.0, 30.0]


def test_transfers_that_shared_a_link() -> None:
    one = [{**row, "start_us": 0.0} for row in (arrive(0), arrive(1), transfer(100.0))]
    rows = [*one, *one]
    result = isolated_us(recorded(rows, [(0, 2), (1, 2), (3, 5), (4, 5)]), LINKS)
    assert result[[2, 5]].tolist() == pytest.approx([50.0, 50.0])


def test_nodes_without_label_or_start_stay_what_they_are() -> None:
    rows = [{**thread(30.0), "start_us": 0.0}, {**thread(np.nan, 1), "start_us": 10.0},
            {**thread(7.0, 1), "start_us": np.nan}]  # fmt: skip
    result = isolated_us(recorded(rows), ONE_CORE)
    assert result[[0, 2]].tolist() == [30.0, 7.0]
    assert np.isnan(result[1])


def test_nothing_is_shared_where_nothing_can_be() -> None:
    rows = [{**thread(30.0), "start_us": 0.0}, {**thread(30.0, 1), "start_us": 10.0}]
    assert isolated_us(recorded(rows), Contention()).tolist() == [30.0, 30.0]


latencies = st.lists(st.floats(1.0, 1000.0), min_size=6, max_size=6)


@settings(max_examples=60, deadline=None)
@given(latencies, st.sampled_from([1.0, 2.0, 3.0]))
def test_contention_and_back(latency_us: list[float], cores: float) -> None:
    """Six threads' work, two on each of three ranks, that shares cores: scheduled, then observed."""
    rows = [{**thread(latency, rank), "thread": 10 * rank + lane} for (rank, lane), latency in
            zip([(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)], latency_us, strict=True)]  # fmt: skip
    graph = make_graph(rows, [(0, 3, Relation.WAITS), (3, 5, Relation.WAITS)], ranks=(0, 1, 2))
    isolated = np.array([*latency_us, *[0.0] * (graph.num_nodes - 6)])
    shares = Contention(ranks_per_node=3, cores_per_node=cores)
    everything = Isolated(np.ones(graph.num_nodes, dtype=bool), shares)
    result = schedule_with_contention(graph, isolated, np.zeros(len(graph.edges)), everything)
    seen = graph.nodes.assign(latency_us=result.latency_us, start_us=result.schedule.start_us)
    np.testing.assert_allclose(isolated_us(replace(graph, nodes=seen), shares), isolated, rtol=1e-9, atol=1e-6)
    assert (graph.nodes["node_type"] == NodeType.COMPUTE).sum() == 6
