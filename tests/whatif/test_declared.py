"""Declared latencies on the loop of two ranks.

Rank 1 arrives after 5 + 14 + 5 us, the transfer takes 30; backward ends at 51; 3 + 5 + 1 come after both: 63.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from gnnperf.core import InputError, NodeType, Relation, Segment
from gnnperf.graph.execution_graph import ExecutionGraph, StepLabel
from gnnperf.whatif import Edit, Edited, InputStall, OpLatency, Place, Straggler, apply
from gnnperf.whatif.declared import DeclarePause, ScaleNodes, gap_at
from research.evaluation.interventions import step_times_us
from tests.toys import make_graph, two_rank_graph
from tests.whatif.loops import GAP_BW, GAP_MM, GAP_OPT, loop


def on_recording(edited: Edited) -> ExecutionGraph:
    """The edited graph with the declared changes of latencies made to the recorded ones."""
    latency_us = edited.latency_change.of(edited.graph.nodes["latency_us"].to_numpy())
    return replace(edited.graph, nodes=edited.graph.nodes.assign(latency_us=latency_us))


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (OpLatency("aten::mm", factor=2.0), 77.0),
        (OpLatency("aten::mm", factor=2.0, rank=0), 69.0),  # rank 0 arrives last, after 5 + 20 + 5
        (OpLatency("aten::mm", us=4.0), 53.0),
        (OpLatency("aten::bw", factor=0.0, phase="backward"), 63.0),  # next to the transfer
        (OpLatency("all_reduce", factor=2.0), 93.0),
        (OpLatency("c10d::allreduce_", us=10.0), 60.0),  # the transfer ends at 34, backward at 51
        (Straggler(1, 2.0), 120.0),  # backward ends at 102, the transfer at 78
        (Straggler(1, 2.0, "device"), 99.0),  # backward ends at 85
        (Straggler(1, 2.0, "host"), 81.0),  # backward ends at 68, the transfer at 64
        (Straggler(1, 1.0), 63.0),
        (InputStall(4.0), 67.0),
        (InputStall(4.0, rank=0), 63.0),  # rank 0 then arrives when rank 1 does
        (InputStall(9.0, rank=0), 68.0),
    ],
)
def test_by_hand(edit: Edit, expected: float) -> None:
    result = apply(loop(), [edit])
    assert step_times_us(on_recording(result)) == pytest.approx([expected, expected])
    assert result.touched.any()


def test_a_predictor_is_reported_what_is_declared() -> None:
    edited = apply(loop(1), [OpLatency("aten::mm", us=7.0), Straggler(0, 3.0), InputStall(2.0, rank=0)])
    values = np.full(edited.graph.num_nodes, np.nan)
    values[0] = 1.0
    result = edited.latency_change.of(values)
    assert result[0] == 1.0 * 3.0 + 2.0  # the first gap of rank 0: slower, then the stall
    assert result[1] == 7.0 * 3.0
    assert np.isnan(result[2])  # nothing given it
    assert any("transfers" in sentence for sentence in edited.unknown)  # what a straggler does to them is not known


def test_a_later_declaration_replaces_an_earlier_factor() -> None:
    both = [OpLatency("aten::mm", factor=5.0), OpLatency("aten::mm", us=4.0)]
    assert step_times_us(on_recording(apply(loop(), both))) == pytest.approx([53.0, 53.0])
    assert step_times_us(on_recording(apply(loop(), both[::-1]))) == pytest.approx([69.0, 69.0])


@given(st.floats(0.1, 10.0), st.floats(0.0, 100.0), st.integers(0, 1))
def test_stalls_and_factors_commute(factor: float, us: float, rank: int) -> None:
    edits: list[Edit] = [Straggler(rank, factor), InputStall(us), OpLatency("aten::bw", factor=factor)]
    one, other = (on_recording(apply(loop(1), order)).nodes["latency_us"] for order in (edits, edits[::-1]))
    np.testing.assert_allclose(one, other)


@given(st.floats(0.1, 10.0), st.floats(0.1, 10.0))
def test_factors_compose(first: float, second: float) -> None:
    two = apply(loop(1), [Straggler(1, first), Straggler(1, second)])
    one = apply(loop(1), [Straggler(1, first * second)])
    np.testing.assert_allclose(on_recording(two).nodes["latency_us"], on_recording(one).nodes["latency_us"])


def test_identities_change_nothing() -> None:
    graph = loop()
    same = apply(graph, [Straggler(0, 1.0), InputStall(0.0), OpLatency("aten::mm", factor=1.0)])
    assert_frame_equal(on_recording(same).nodes, graph.nodes)
    assert_frame_equal(same.graph.edges, graph.edges)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (OpLatency("mm", factor=2.0), "e.g. aten::mm"),
        (OpLatency("aten::nn", factor=2.0), "aten::mm"),
        (OpLatency("aten::mm", factor=2.0, phase="backward"), "phase backward"),
        (OpLatency("aten::mm", factor=2.0, rank=3), "rank 3"),
        (Straggler(3, 2.0), "rank 0, 1"),
        (InputStall(2.0, rank=3), "rank 3 is not in the graph"),
    ],
)
def test_no_place(edit: Edit, message: str) -> None:
    with pytest.raises(InputError, match=message):
        edit(loop())


def test_bad_settings() -> None:
    for make in (
        lambda: OpLatency("aten::mm"),
        lambda: OpLatency("aten::mm", factor=1.0, us=1.0),
        lambda: OpLatency("aten::mm", factor=-1.0),
        lambda: Straggler(0, 0.0),
        lambda: Straggler(0, 1.0, "gpu"),
        lambda: InputStall(-1.0),
        lambda: DeclarePause(-1.0, 0),
        lambda: DeclarePause(1.0, 0, "end"),
    ):
        with pytest.raises(InputError, match=r"bad value|one of factor, us"):
            make()


@pytest.mark.parametrize(
    ("rank", "place", "us", "expected"),
    [
        (0, "start", 4.0, 63.0),  # rank 0 then arrives when rank 1 does
        (0, "start", 9.0, 68.0),
        (0, "backward", 5.0, 63.0),  # backward ends 7 before the transfer
        (0, "backward", 10.0, 66.0),
        (1, "optimizer", 4.0, 67.0),
    ],
)
def test_a_pause_by_hand(rank: int, place: str, us: float, expected: float) -> None:
    result = DeclarePause(us, rank, place)(loop())
    assert step_times_us(on_recording(result)) == pytest.approx([expected, expected])
    assert result.touched.sum() == 2


def test_only_given_nodes_are_scaled_and_factors_multiply() -> None:
    graph = two_rank_graph()
    edited = apply(graph, (ScaleNodes((3, 10), (0.5, 2.0)), ScaleNodes((3,), (0.5,))))
    factor = edited.latency_change.factor
    assert (factor[3], factor[10]) == (0.25, 2.0)
    assert (np.delete(factor, [3, 10]) == 1.0).all()
    assert np.flatnonzero(edited.touched).tolist() == [3, 10]
    assert not ScaleNodes((), ())(graph).touched.any()


@pytest.mark.parametrize(
    ("nodes", "factors"),
    [((1,), ()), ((1, 1), (1.0, 1.0)), ((1,), (-0.1,)), ((1,), (float("nan"),)), ((-1,), (1.0,)), ((18,), (1.0,))],
)
def test_nodes_that_cannot_be_scaled(nodes: tuple[int, ...], factors: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="nodes"):
        ScaleNodes(nodes, factors)(two_rank_graph())


def test_places() -> None:
    graph = loop(1)
    assert [int(gap_at(graph, 0, place)[0]) for place in Place] == [GAP_MM, GAP_BW, GAP_OPT]
    phase = graph.nodes["phase"].where(graph.nodes["phase"] != "optimizer", "other")
    with pytest.raises(InputError, match="no place 'optimizer'"):
        gap_at(replace(graph, nodes=graph.nodes.assign(phase=phase)), 0, Place.OPTIMIZER)


def test_the_gradient_of_the_loss_belongs_to_backward_and_zero_grad_not_to_the_optimizer_step() -> None:
    """zero_grad | forward | ones_like | backward | step."""
    ops = [
        ("zero_", "optimizer"),
        ("mm", "forward"),
        ("ones_like", "forward"),
        ("bw", "backward"),
        ("add_", "optimizer"),
    ]
    rows: list[dict[str, object]] = []
    for op, phase in ops:
        host = {"node_type": NodeType.HOST, "thread": 0, "op_name": f"aten::{op}", "phase": phase, "latency_us": 1.0}
        rows += [{**host, "segment": Segment.T1}, {**host, "segment": Segment.T5}]
    label = StepLabel(0, "ProfilerStep#0", None, 10.0, (0.0,), (10.0,))
    graph = make_graph(rows, [(n, n + 1, Relation.FOLLOWS) for n in range(9)], steps=(label,))
    assert gap_at(graph, 0, Place.BACKWARD).tolist() == [4]
    assert gap_at(graph, 0, Place.OPTIMIZER).tolist() == [8]


def test_backward_on_a_thread_of_its_own_begins_where_the_main_thread_forks() -> None:
    """main |mm T5|T1 fork|          |T1 join|opt T1|opt T5|, autograd |bw T5|."""
    main = {"node_type": NodeType.HOST, "thread": 0, "latency_us": 1.0}
    rows: list[dict[str, object]] = [
        {**main, "op_name": "aten::mm", "segment": Segment.T5},
        {**main, "op_name": "aten::opt", "segment": Segment.T1, "phase": "optimizer"},
        {**main, "op_name": "aten::opt", "segment": Segment.T1, "phase": "optimizer"},
        {**main, "op_name": "aten::opt", "segment": Segment.T1, "phase": "optimizer"},
        {**main, "op_name": "aten::opt", "segment": Segment.T5, "phase": "optimizer"},
        {**main, "thread": 1, "op_name": "aten::bw", "segment": Segment.T5, "phase": "backward"},
    ]  # fmt: skip
    edges: list[tuple[int, int, str]] = [(n, n + 1, Relation.FOLLOWS) for n in range(4)]
    edges += [(1, 5, Relation.WAITS), (5, 2, Relation.WAITS)]
    label = StepLabel(0, "ProfilerStep#0", None, 5.0, (0.0,), (5.0,))
    graph = make_graph(rows, edges, steps=(label,))
    assert gap_at(graph, 0, Place.BACKWARD).tolist() == [1]
    assert gap_at(graph, 0, Place.OPTIMIZER).tolist() == [3]
    assert np.isclose(step_times_us(on_recording(DeclarePause(10.0, 0, "backward")(graph))), 16.0).all()
