"""Waiting for a collective where it is issued, or later."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from gnnperf.core.errors import InputError
from gnnperf.core.schema import Evidence, Relation
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.graph.tables import EdgeList, concat_tables
from gnnperf.whatif import Block, apply
from gnnperf.whatif.waits import WaitLater
from research.evaluation.step_times import step_times_us
from tests.whatif.loops import EXIT, ISSUE, OPT, loop


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


@pytest.mark.parametrize("transfer_us", [0.0, 10.0, 22.0, 100.0])
def test_a_step_is_never_shorter_for_waiting_earlier(transfer_us: float) -> None:
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


def shaped(graph: ExecutionGraph, shapes: dict[int, str]) -> ExecutionGraph:
    """The loop with shapes of these nodes of every rank and step."""
    dims = graph.nodes["input_dims"].astype(object).to_numpy(copy=True)
    for base in (0, 11, 23, 34):  # two ranks, then the transfer; two steps
        for node, text in shapes.items():
            dims[base + node] = text
    return replace(graph, nodes=graph.nodes.assign(input_dims=pd.Categorical(dims)))


TAKEN = {ISSUE: "[[[16]]]", OPT: "[[16],[16]]"}


def test_by_shape_undoes_waiting_at_the_issue() -> None:
    blocked = Block()(shaped(loop(), TAKEN)).graph
    assert step_times_us(blocked) == pytest.approx([85.0, 85.0])
    result = WaitLater()(blocked)
    assert step_times_us(result.graph) == pytest.approx([63.0, 63.0])
    assert any("results of 4 parts: no tensor is followed (no feeds edges)" in s for s in result.unknown)


def test_by_feeds() -> None:
    """Nothing has the message's shape; the edge says who takes it."""
    blocked = Block()(shaped(loop(), {ISSUE: "[[[16]]]"})).graph
    with pytest.raises(InputError, match=r"nobody takes a result.*until=optimizer"):
        WaitLater("all_reduce")(blocked)
    feeds = EdgeList()
    base = np.array([0, 11, 23, 34])
    feeds.add(base + ISSUE, base + OPT, Relation.FEEDS,
              evidence=Evidence.ID)  # fmt: skip
    followed = replace(blocked, edges=concat_tables([blocked.edges, feeds.table()]))
    result = WaitLater("all_reduce")(followed)
    assert step_times_us(result.graph) == pytest.approx([63.0, 63.0])
    assert not any("no tensor is followed" in sentence for sentence in result.unknown)


def test_at_a_place_that_is_reported() -> None:
    blocked = Block()(loop()).graph
    result = WaitLater(until="optimizer")(blocked)
    assert step_times_us(result.graph) == pytest.approx([63.0, 63.0])
    assert "whether results are needed earlier than at optimizer: the edit states it" in result.unknown


def test_what_waits_there_already_stays() -> None:
    with pytest.raises(InputError, match="nobody takes"):
        WaitLater(until="optimizer")(loop())


def test_there_and_back() -> None:
    graph = shaped(loop(), TAKEN)
    result = apply(graph, [Block(), WaitLater()])
    waits = [
        {tuple(pair) for pair in g.edges.loc[g.edges["relation"] == Relation.WAITS, ["src", "dst"]].to_numpy()}
        for g in (graph, result.graph)
    ]
    assert waits[0] == waits[1]
    assert result.touched[EXIT]


def test_refusals() -> None:
    with pytest.raises(InputError, match="no broadcast"):
        WaitLater("broadcast")(loop())
    with pytest.raises(InputError, match="start, backward, optimizer"):
        WaitLater(until="end")
