"""Chosen nodes take a multiple of what is given."""

from __future__ import annotations

import numpy as np
import pytest

from gnnperf.core.errors import InputError
from gnnperf.whatif import apply
from gnnperf.whatif.declared import ScaleNodes
from gnnperf.whatif.edit import on_recording
from tests.toys import two_rank_graph


def test_only_the_chosen_nodes_change() -> None:
    graph = two_rank_graph()
    edited = ScaleNodes((3, 10), (0.5, 2.0))(graph)
    changed = on_recording(edited).nodes["latency_us"] / graph.nodes["latency_us"].where(graph.nodes["latency_us"] > 0)
    assert changed[3] == 0.5
    assert changed[10] == 2.0
    assert changed.drop([3, 10]).dropna().eq(1.0).all()
    assert np.flatnonzero(edited.touched).tolist() == [3, 10]


def test_two_in_a_row_multiply() -> None:
    edited = apply(two_rank_graph(), (ScaleNodes((3,), (0.5,)), ScaleNodes((3,), (0.5,))))
    assert edited.latency_change.factor[3] == 0.25


def test_nothing_chosen_changes_nothing() -> None:
    edited = ScaleNodes((), ())(two_rank_graph())
    assert not edited.touched.any()
    assert (edited.latency_change.factor == 1.0).all()


@pytest.mark.parametrize(
    ("nodes", "factors"), [((1,), ()), ((1, 1), (1.0, 1.0)), ((1,), (-0.1,)), ((1,), (float("nan"),))]
)
def test_what_is_no_choice_is_refused(nodes: tuple[int, ...], factors: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="nodes"):
        ScaleNodes(nodes, factors)


@pytest.mark.parametrize("node", [-1, 18])
def test_a_node_that_is_not_there_is_refused(node: int) -> None:
    with pytest.raises(InputError, match="nodes to scale"):
        ScaleNodes((node,), (1.0,))(two_rank_graph())
