"""Kernels on a stream of their own: what bounds them. Waits for the step before when nodes come and go."""

from dataclasses import replace

import numpy as np
import pytest
from toys import make_graph

from gnnperf.core import InputError, NodeType, Relation, Segment
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.schedule import schedule
from gnnperf.whatif.streams import MoveNodesToStream, MoveToStream, is_unordered
from gnnperf.whatif.units import remove

COPY = {"a": 10.0, "copy_": 30.0, "b": 20.0, "last": 5.0}
A, COPIED, B, LAST = range(4, 8)
ALL_FEEDS = ((A, B), (COPIED, LAST), (B, LAST))

FENCED = {"a": 10.0, "b": 30.0, "c": 20.0, "fence": 5.0, "d": 5.0}  # of the fence no tensor is followed
FIRST, SECOND, THIRD, FENCE, FOURTH, HOST = range(5, 11)


def graph(kernels: dict[str, float], feeds: tuple[tuple[int, int], ...], launch_us: float) -> ExecutionGraph:
    """Launches, then kernels on one stream by name and us, then a gap of no time in which the host waits for all."""
    launch = {"node_type": NodeType.HOST, "thread": 0, "segment": Segment.T4, "latency_us": launch_us}
    kernel = {"node_type": NodeType.COMPUTE, "device": 0, "stream": 0}
    rows: list[dict[str, object]] = [{**launch, "op_name": f"aten::{name}"} for name in kernels]
    rows += [{**kernel, "op_name": f"aten::{name}", "latency_us": us} for name, us in kernels.items()]
    rows.append({**launch, "segment": Segment.T1, "latency_us": 0.0, "op_name": "x"})
    n = len(kernels)
    edges = [(k, k + 1, Relation.FOLLOWS) for k in (*range(n - 1), *range(n, 2 * n - 1))]
    edges += [(k, k + n, Relation.LAUNCHES) for k in range(n)]
    edges += [(n - 1, 2 * n, Relation.FOLLOWS), (2 * n - 1, 2 * n, Relation.WAITS)]
    return make_graph(rows, edges + [(a, b, Relation.FEEDS) for a, b in feeds])


def starts_us(of: ExecutionGraph) -> list[float]:
    """Of the kernels and of the host's wait."""
    result = schedule(of, of.nodes["latency_us"].to_numpy(), np.zeros(len(of.edges)))
    return result.start_us[of.num_nodes // 2 :].tolist()


def copying(*feeds: tuple[int, int]) -> ExecutionGraph:
    return graph(COPY, feeds, launch_us=1.0)


def fenced(*feeds: tuple[int, int]) -> ExecutionGraph:
    return graph(FENCED, feeds, launch_us=0.0)


def test_the_copy_runs_with_what_does_not_need_it() -> None:
    """10 + 30 + 20 + 5; next to: the copy from 1 to 31, b from 10 to 30, last from 31 to 36."""
    assert starts_us(copying(*ALL_FEEDS))[-1] == 65.0
    result = MoveToStream("aten::copy_")(copying(*ALL_FEEDS))
    assert starts_us(result.graph) == [0.0, 1.0, 10.0, 31.0, 36.0]
    assert result.graph.nodes["stream"].to_numpy()[[A, COPIED, B, LAST]].tolist() == [0, 1, 0, 0]
    assert result.touched.tolist() == [n == COPIED for n in range(9)]
    follows = result.graph.edges[result.graph.edges["relation"] == Relation.FOLLOWS]
    assert (A, B) in {tuple(pair) for pair in follows[["src", "dst"]].to_numpy()}


@pytest.mark.parametrize(
    ("feeds", "end_us"),
    [
        (((A, COPIED), *ALL_FEEDS), 45.0),  # the copy takes what a makes: from 10 to 40, then last
        (((A, COPIED), (COPIED, B), (B, LAST)), 65.0),  # a chain gains nothing
    ],
)
def test_it_waits_for_what_it_takes(feeds: tuple[tuple[int, int], ...], end_us: float) -> None:
    assert starts_us(MoveToStream("aten::copy_")(copying(*feeds)).graph)[-1] == end_us


def test_without_tensors_nothing_moves() -> None:
    with pytest.raises(InputError, match=r"no tensor of theirs is followed.*execution trace"):
        MoveToStream("aten::copy_")(copying())
    with pytest.raises(InputError, match=r"no work of 'aten::conv2d' on a stream.*aten::a"):
        MoveToStream("aten::conv2d")(copying(*ALL_FEEDS))
    with pytest.raises(InputError, match=r"in backward|no work"):
        MoveToStream("aten::copy_", phase="backward")(copying(*ALL_FEEDS))


def test_a_kernel_runs_with_what_it_does_not_need() -> None:
    """b needs a; c, which nothing feeds, begins at 0; the fence waits for both."""
    tied = fenced((FIRST, SECOND), (THIRD, FOURTH))
    assert starts_us(tied) == [0.0, 10.0, 40.0, 60.0, 65.0, 70.0]
    result = MoveNodesToStream((THIRD,))(tied)
    assert starts_us(result.graph) == [0.0, 10.0, 0.0, 40.0, 45.0, 50.0]
    assert is_unordered(tied).tolist() == [node == FENCE for node in range(11)]
    assert starts_us(MoveNodesToStream((FOURTH,))(tied).graph)[4] == 65.0  # it stays after the fence


def test_who_waited_for_the_stream_waits_for_both() -> None:
    """Nothing stands between: d moves, and the host still waits for what ran before it on either stream."""
    every = fenced((FIRST, SECOND), (THIRD, FOURTH), (FIRST, FENCE))  # nothing is a fence now
    assert starts_us(MoveNodesToStream((FOURTH,))(every).graph) == [0.0, 10.0, 40.0, 60.0, 60.0, 65.0]
    assert starts_us(MoveNodesToStream((SECOND,))(every).graph) == [0.0, 10.0, 10.0, 30.0, 35.0, 40.0]
    long = every.nodes.assign(latency_us=every.nodes["latency_us"].where(every.nodes["node_id"] != SECOND, 100.0))
    assert starts_us(MoveNodesToStream((SECOND,))(replace(every, nodes=long)).graph)[5] == 110.0


@pytest.mark.parametrize("node", [FENCE, HOST, 99])
def test_what_cannot_move_is_refused(node: int) -> None:
    with pytest.raises(InputError, match="nodes to move"):
        MoveNodesToStream((node,))(fenced((FIRST, SECOND), (THIRD, FOURTH)))


def row(*cross_step: tuple[int, int]) -> ExecutionGraph:
    """Four ops of 1, 2, 4 and 8 us in a row on one stream."""
    op = {"node_type": NodeType.COMPUTE, "stream": 0, "device": 0}
    rows = [{**op, "op_name": f"op{n}", "latency_us": 2.0**n} for n in range(4)]
    graph = make_graph(rows, [(n, n + 1, Relation.FOLLOWS) for n in range(3)])
    return replace(graph, cross_step=np.array(cross_step, dtype=np.int64).reshape(-1, 2).T)


def _chosen(*nodes: int) -> np.ndarray:
    return np.isin(np.arange(4), nodes)


def test_waits_for_the_step_before_are_renumbered() -> None:
    """Without op1: op3 is number 2; what op1 waited for, op2 (now 1) waits for; no one waits for op1 any more."""
    graph, _ = remove(row((3, 0), (3, 1), (1, 2)), _chosen(1))
    assert graph.cross_step is not None
    assert graph.cross_step.T.tolist() == [[2, 0], [2, 1]]


def test_what_no_one_is_left_to_wait_for_goes() -> None:
    graph, _ = remove(row((0, 3), (0, 2)), _chosen(3))
    assert graph.cross_step is not None
    assert graph.cross_step.T.tolist() == [[0, 2]]


def test_the_period_of_the_rest_is_that_of_its_ops() -> None:
    graph, _ = remove(row((3, 0)), _chosen(2))
    latency_us = graph.nodes["latency_us"].to_numpy()
    assert schedule(graph, latency_us, np.zeros(len(graph.edges)), num_unrolled=3).period_us == pytest.approx(11.0)


def test_a_window_has_none() -> None:
    graph, _ = remove(replace(row(), cross_step=None), _chosen(0))
    assert graph.cross_step is None
