"""Waiting for a collective where it is needed: the reverse of waiting where it is issued."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from gnnperf.core.errors import InputError
from gnnperf.core.schema import Evidence, Relation
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.graph.tables import EdgeList, concat_tables
from gnnperf.whatif import Block, apply
from gnnperf.whatif.waits import WaitLater
from research.evaluation.step_times import step_times_us
from tests.whatif.loops import EXIT, ISSUE, OPT, loop


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
    assert "whether results are needed earlier than at optimizer: it was told" in result.unknown


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
