"""What nodes wait for in the step before keeps its ends when nodes come and go."""

from dataclasses import replace

import numpy as np
import pytest
from toys import make_graph

from gnnperf.core.schema import NodeType, Relation
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.schedule import schedule
from gnnperf.whatif.units import remove


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
