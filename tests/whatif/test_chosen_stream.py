"""Chosen kernels on a stream of their own: what is tied by tensors, by fences and by waits of the host."""

from __future__ import annotations

import pytest
from toys import make_graph

from gnnperf.core.errors import InputError
from gnnperf.core.schema import NodeType, Relation, Segment
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.schedule import schedule
from gnnperf.whatif.streams import MoveNodesToStream, is_unordered

A, B, C, FENCE, D = 5, 6, 7, 8, 9
HOST = 10


def graph(*feeds: tuple[int, int]) -> ExecutionGraph:
    """Launches of no time; kernels a 10, b 30, c 20, one that nothing is known about 5, d 5; the host waits for d."""
    launch = {"node_type": NodeType.HOST, "thread": 0, "segment": Segment.T4, "latency_us": 0.0, "op_name": "x"}
    kernel = {"node_type": NodeType.COMPUTE, "device": 0, "stream": 0}
    rows: list[dict[str, object]] = [launch] * 5
    rows += [{**kernel, "op_name": f"aten::{name}", "latency_us": us}
             for name, us in (("a", 10.0), ("b", 30.0), ("c", 20.0), ("fence", 5.0), ("d", 5.0))]  # fmt: skip
    rows += [{**launch, "segment": Segment.T1}]
    edges = [(n, n + 1, Relation.FOLLOWS) for n in (0, 1, 2, 3, 5, 6, 7, 8)]
    edges += [(n, n + 5, Relation.LAUNCHES) for n in range(5)]
    edges += [(4, HOST, Relation.FOLLOWS), (D, HOST, Relation.WAITS)]
    return make_graph(rows, edges + [(a, b, Relation.FEEDS) for a, b in feeds])


def starts_us(of: ExecutionGraph) -> list[float]:
    """Of a, b, c, the fence, d and the host's wait."""
    result = schedule(of, of.nodes["latency_us"].to_numpy(), of.edges["lag_us"].fillna(0.0).to_numpy())
    return [float(result.start_us[node]) for node in (A, B, C, FENCE, D, HOST)]


def test_a_kernel_runs_with_what_it_does_not_need() -> None:
    """b needs a; c, which nothing feeds, begins at 0; the fence waits for both."""
    tied = graph((A, B), (C, D))
    assert starts_us(tied) == [0.0, 10.0, 40.0, 60.0, 65.0, 70.0]
    result = MoveNodesToStream((C,))(tied)
    assert starts_us(result.graph) == [0.0, 10.0, 0.0, 40.0, 45.0, 50.0]
    assert result.graph.nodes["stream"].to_numpy()[[A, B, C, FENCE, D]].tolist() == [0, 0, 1, 0, 0]
    assert is_unordered(tied).tolist() == [node == FENCE for node in range(11)]


def test_it_stays_after_what_nothing_is_known_about() -> None:
    result = MoveNodesToStream((D,))(graph((A, B), (C, D)))
    assert starts_us(result.graph)[4] == 65.0


def test_who_waited_for_the_stream_waits_for_both() -> None:
    """Nothing stands between: d moves, and the host still waits for what ran before it on either stream."""
    every = graph((A, B), (C, D), (A, FENCE))  # nothing is a fence now
    assert starts_us(MoveNodesToStream((D,))(every).graph) == [0.0, 10.0, 40.0, 60.0, 60.0, 65.0]
    assert starts_us(MoveNodesToStream((B,))(every).graph) == [0.0, 10.0, 10.0, 30.0, 35.0, 40.0]
    long = every.nodes.assign(latency_us=every.nodes["latency_us"].where(every.nodes["node_id"] != B, 100.0))
    moved = MoveNodesToStream((B,))(ExecutionGraph(**{**every.__dict__, "nodes": long}))
    assert starts_us(moved.graph)[5] == 110.0


@pytest.mark.parametrize("node", [FENCE, HOST, 99])
def test_what_cannot_move_is_refused(node: int) -> None:
    with pytest.raises(InputError, match="nodes to move"):
        MoveNodesToStream((node,))(graph((A, B), (C, D)))
