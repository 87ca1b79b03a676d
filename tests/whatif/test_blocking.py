"""Waiting for a collective where it is issued, or later."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pandas.testing import assert_frame_equal

from gnnperf.core.errors import InputError
from gnnperf.whatif import Block, apply
from research.evaluation.reference_run import WaitAs
from research.evaluation.step_times import step_times_us
from tests.whatif.loops import loop


def test_the_gap_after_the_issue_waits() -> None:
    """Transfer until 54, then 2 + 20 + 3 + 5 + 1."""
    result = Block("all_reduce")(loop())
    assert step_times_us(result.graph) == pytest.approx([85.0, 85.0])
    assert len(result.graph.edges) == len(loop().edges)
    assert "beside" in result.unknown[0]


def test_twice_is_once() -> None:
    once = Block()(loop())
    twice = apply(loop(), [Block(), Block()])
    assert step_times_us(twice.graph) == pytest.approx(step_times_us(once.graph))
    assert twice.touched.tolist() == once.touched.tolist()


def test_the_other_way_round_needs_the_other_programs_waits() -> None:
    blocked = Block()(loop()).graph
    result = WaitAs(loop(1))(blocked)
    assert step_times_us(result.graph) == pytest.approx([63.0, 63.0])
    assert step_times_us(WaitAs(blocked)(loop()).graph) == pytest.approx([85.0, 85.0])


def test_a_step_is_never_shorter_for_waiting_earlier() -> None:
    for transfer_us in (0.0, 10.0, 22.0, 100.0):
        graph = loop(transfer_us=transfer_us)
        assert (step_times_us(Block()(graph).graph) >= step_times_us(graph) - 1e-9).all()


def test_the_input_stays_as_it_was() -> None:
    graph = loop()
    before = graph.edges.copy()
    Block()(graph)
    assert_frame_equal(graph.edges, before)


def test_a_collective_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match=r"no broadcast.*all_reduce"):
        Block("broadcast")(loop())
    with pytest.raises(InputError, match="no all_reduce in backward"):
        Block("all_reduce", "backward")(loop())


def test_parts_that_no_one_issued_stay_and_are_stated() -> None:
    graph = loop(1)
    edges = graph.edges[graph.edges["relation"] != "launches"].reset_index(drop=True)
    result = Block()(replace(graph, edges=edges))
    assert_frame_equal(result.graph.edges, edges)
    assert result.unknown[1].startswith("who issued 2 of 2 parts")


def test_waits_that_the_other_program_does_not_have_stay() -> None:
    graph = loop(1)
    edges = graph.edges[graph.edges["relation"] != "waits"].reset_index(drop=True)
    result = WaitAs(replace(graph, edges=edges))(graph)
    assert np.isclose(step_times_us(result.graph), 63.0).all()
    assert result.unknown[1].startswith("where the other program waits for 2 of 2 parts")
