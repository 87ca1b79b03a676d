"""A sleep delays a step by what slack does not absorb."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from toys import make_graph

from gnnperf.core.errors import InputError
from gnnperf.core.schema import NodeType, Relation, Segment
from gnnperf.graph.execution_graph import StepLabel
from gnnperf.whatif import Place
from gnnperf.whatif.declared import gap_at
from research.evaluation.pauses import Pause
from research.evaluation.step_times import step_times_us
from tests.whatif.loops import GAP_BW, GAP_MM, GAP_OPT, loop


@pytest.mark.parametrize(
    ("rank", "place", "sleep_us", "expected"),
    [
        (0, Place.START, 4.0, 63.0),  # rank 0 then arrives when rank 1 does
        (0, Place.START, 9.0, 68.0),
        (1, Place.START, 4.0, 67.0),
        (0, Place.BACKWARD, 5.0, 63.0),  # backward ends 7 before the transfer
        (0, Place.BACKWARD, 10.0, 66.0),
        (1, Place.OPTIMIZER, 4.0, 67.0),
    ],
)
def test_by_hand(rank: int, place: Place, sleep_us: float, expected: float) -> None:
    result = Pause(rank, place, sleep_us)(loop())
    assert step_times_us(result.graph) == pytest.approx([expected, expected])
    assert result.touched.sum() == 2
    assert not result.unknown


def test_places() -> None:
    graph = loop(1)
    assert [int(gap_at(graph, 0, place)[0]) for place in Place] == [GAP_MM, GAP_BW, GAP_OPT]


@given(
    rank=st.sampled_from([0, 1]),
    place=st.sampled_from(list(Place)),
    sleep_us=st.floats(0, 200),
    steps=st.integers(1, 3),
)
def test_a_sleep_delays_by_between_nothing_and_its_length(rank: int, place: Place, sleep_us: float, steps: int) -> None:
    graph = loop(steps)
    delay = step_times_us(Pause(rank, place, sleep_us)(graph).graph).sum() - step_times_us(graph).sum()
    assert -1e-6 <= delay <= steps * sleep_us + 1e-6


def test_no_sleep_changes_nothing_and_touches_nothing() -> None:
    graph = loop()
    result = Pause(0, Place.START, 0.0)(graph)
    assert result.graph is graph
    assert not result.touched.any()


def test_the_inverse_takes_the_sleep_out() -> None:
    graph, pause = loop(), Pause(1, Place.OPTIMIZER, 40.0)
    back = pause.inverse()(pause(graph).graph)
    assert_frame_equal(back.graph.nodes, graph.nodes)
    assert not back.unknown


def test_a_gap_shorter_than_the_sleep_taken_out_is_stated() -> None:
    result = Pause(0, Place.BACKWARD, -5.0)(loop())
    assert result.graph.nodes["latency_us"].min() == 0.0
    assert "2 of 2 gaps are shorter than the sleep of 5 us" in result.unknown[0]


def test_the_input_stays_as_it_was() -> None:
    graph = loop()
    before = graph.nodes.copy(), graph.edges.copy()
    Pause(0, Place.START, 10.0)(graph)
    assert_frame_equal(graph.nodes, before[0])
    assert_frame_equal(graph.edges, before[1])


def test_an_unknown_rank_and_a_missing_place_are_refused() -> None:
    with pytest.raises(InputError, match=r"rank 7 is not in the graph.*0, 1"):
        Pause(7, Place.START, 1.0)(loop())
    graph = loop(1)
    phase = graph.nodes["phase"].cat.add_categories([]).where(graph.nodes["phase"] != "optimizer", "other")
    with pytest.raises(InputError, match="no place 'optimizer'"):
        Pause(0, Place.OPTIMIZER, 1.0)(replace(graph, nodes=graph.nodes.assign(phase=phase)))


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
    edges = [(n, n + 1, Relation.FOLLOWS) for n in range(4)] + [(1, 5, Relation.WAITS), (5, 2, Relation.WAITS)]
    label = StepLabel(0, "ProfilerStep#0", None, 5.0, (0.0,), (5.0,))
    graph = make_graph(rows, edges, steps=(label,))
    assert gap_at(graph, 0, Place.BACKWARD).tolist() == [1]
    assert gap_at(graph, 0, Place.OPTIMIZER).tolist() == [3]
    assert np.isclose(step_times_us(Pause(0, Place.BACKWARD, 10.0)(graph).graph), 16.0).all()
