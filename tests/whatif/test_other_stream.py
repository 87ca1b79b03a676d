"""Kernels on a stream of their own, bounded by the tensors that are followed."""

from __future__ import annotations

import pytest
from toys import make_graph

from gnnperf.core.errors import InputError
from gnnperf.core.schema import NodeType, Relation, Segment
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.schedule import schedule
from gnnperf.whatif.streams import MoveToStream

A, COPY, B, LAST = 4, 5, 6, 7
ALL_FEEDS = ((A, B), (COPY, LAST), (B, LAST))


def graph(feeds: tuple[tuple[int, int], ...]) -> ExecutionGraph:
    """Launches of 1 us each; kernels a 10, copy 30, b 20, last 5 on one stream."""
    launch = {"node_type": NodeType.HOST, "thread": 0, "segment": Segment.T4, "latency_us": 1.0}
    kernel = {"node_type": NodeType.COMPUTE, "device": 0, "stream": 0}
    works = [("aten::a", 10.0), ("aten::copy_", 30.0), ("aten::b", 20.0), ("aten::last", 5.0)]
    rows: list[dict[str, object]] = [{**launch, "op_name": name} for name, _ in works]
    rows += [{**kernel, "op_name": name, "latency_us": us} for name, us in works]
    edges = [(n, n + 1, Relation.FOLLOWS) for n in (0, 1, 2, 4, 5, 6)]
    edges += [(n, n + 4, Relation.LAUNCHES) for n in range(4)]
    return make_graph(rows, edges + [(a, b, Relation.FEEDS) for a, b in feeds])


def end_us(of: ExecutionGraph) -> float:
    return schedule(of, of.nodes["latency_us"].to_numpy(), of.edges["lag_us"].fillna(0.0).to_numpy()).makespan_us


def test_the_copy_runs_with_what_does_not_need_it() -> None:
    """10 + 30 + 20 + 5; next to: the copy from 1 to 31, b from 10 to 30, last from 31 to 36."""
    assert end_us(graph(ALL_FEEDS)) == 65.0
    result = MoveToStream("aten::copy_")(graph(ALL_FEEDS))
    assert end_us(result.graph) == 36.0
    assert result.graph.nodes["stream"].to_numpy()[[A, COPY, B, LAST]].tolist() == [0, 1, 0, 0]
    assert result.touched.tolist() == [n == COPY for n in range(8)]
    follows = result.graph.edges[result.graph.edges["relation"] == Relation.FOLLOWS]
    assert (A, B) in {tuple(pair) for pair in follows[["src", "dst"]].to_numpy()}


def test_it_waits_for_what_it_takes() -> None:
    """Now the copy takes what a makes: from 10 to 40, then last."""
    result = MoveToStream("aten::copy_")(graph(((A, COPY), *ALL_FEEDS)))
    assert end_us(result.graph) == 45.0


def test_a_chain_gains_nothing() -> None:
    result = MoveToStream("aten::copy_")(graph(((A, COPY), (COPY, B), (B, LAST))))
    assert end_us(result.graph) == 65.0


def test_without_tensors_nothing_moves() -> None:
    with pytest.raises(InputError, match=r"no tensor of theirs is followed.*execution trace"):
        MoveToStream("aten::copy_")(graph(()))
    with pytest.raises(InputError, match=r"no work of 'aten::conv2d' on a stream.*aten::a"):
        MoveToStream("aten::conv2d")(graph(ALL_FEEDS))
    with pytest.raises(InputError, match=r"in backward|no work"):
        MoveToStream("aten::copy_", phase="backward")(graph(ALL_FEEDS))
