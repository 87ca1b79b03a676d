"""Alignment of two steps by content."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import make_graph, two_rank_graph

from gnnperf.core.schema import NodeType, Relation, Segment
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.schedule import alignment as module
from gnnperf.schedule.alignment import align, common_subsequence

KEYS = st.lists(st.integers(0, 3), max_size=12)


def longest(a: list[int], b: list[int]) -> int:
    """Length of a longest common subsequence, by the textbook table."""
    table = np.zeros((len(a) + 1, len(b) + 1), dtype=int)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1, j + 1] = table[i, j] + 1 if x == y else max(table[i, j + 1], table[i + 1, j])
    return int(table[-1, -1])


@settings(max_examples=150)
@given(KEYS, KEYS)
def test_a_longest_common_subsequence_is_detected(a: list[int], b: list[int]) -> None:
    at_a, at_b = common_subsequence(np.array(a, dtype=np.int64), np.array(b, dtype=np.int64))
    assert [a[i] for i in at_a] == [b[j] for j in at_b]
    assert (np.diff(at_a) > 0).all()
    assert (np.diff(at_b) > 0).all()
    assert len(at_a) == longest(a, b)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_sequences_too_different_are_matched_by_occurrence(a: list[int], b: list[int]) -> None:
    """Whatever the method, a pair has one key and no element is used twice."""
    at_a, at_b = module._by_occurrence(np.array(a), np.array(b))
    assert [a[i] for i in at_a] == [b[j] for j in at_b]
    assert len(set(at_a)) == len(at_a)
    assert len(set(at_b)) == len(at_b)
    assert len(at_a) == sum(min(a.count(k), b.count(k)) for k in set(a))


def test_outside_the_most_edits_the_fallback_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_EDITS", 2)
    at_a, at_b = common_subsequence(np.array([1, 2, 3, 4]), np.array([9, 8, 3, 2]))
    assert sorted(zip(at_a.tolist(), at_b.tolist(), strict=True)) == [(1, 3), (2, 2)]
    nothing = common_subsequence(np.array([1, 2, 3]), np.array([4, 5, 6]))
    assert nothing.shape == (2, 0)


def lane(keys: list[int], *, thread: int = 0) -> list[dict[str, object]]:
    return [
        {"node_type": NodeType.HOST, "segment": Segment.T5, "thread": thread, "latency_us": 1.0, "content_key": k}
        for k in keys
    ]


def lanes(*lanes_of_keys: list[int]) -> ExecutionGraph:
    return make_graph([row for t, keys in enumerate(lanes_of_keys) for row in lane(keys, thread=t)], [])


def test_steps_are_aligned_lane_by_lane() -> None:
    """Lane 0: A B C D F against A B D E F; equal keys of another lane do not count."""
    a, b = lanes([1, 2, 3, 4, 6], [7]), lanes([1, 2, 4, 5, 6], [3])
    assert align(a, b).tolist() == [0, 1, -1, 2, 4, -1]


def test_a_lane_that_the_other_step_lacks_stays_unaligned() -> None:
    assert align(lanes([1], [2, 3]), lanes([1])).tolist() == [0, -1, -1]


def test_a_collective_matches_the_one_its_parts_join() -> None:
    graph = two_rank_graph()
    keyed = replace(graph, nodes=graph.nodes.assign(content_key=np.arange(graph.num_nodes)))
    matched = align(keyed, keyed)
    assert matched[:15].tolist() == list(range(15))
    assert (matched[15:] == -1).all()  # hardware is not aligned
    # Without its arrivals, a collective has nothing to match by.
    other = keyed.nodes.copy()
    other.loc[other["segment"] == "arrive", "content_key"] = -1
    assert align(keyed, replace(keyed, nodes=other))[14] == -1


def test_a_wait_for_untraced_peers_matches_with_its_arrival() -> None:
    comm = {"node_type": NodeType.COMM, "device": 0, "stream": 0, "latency_us": 0.0}
    rows = [
        {**comm, "segment": Segment.ARRIVE, "content_key": 1}, {**comm, "segment": Segment.EXIT, "content_key": 2},
        {"node_type": NodeType.COLLECTIVE, "rank": -1}, {"node_type": NodeType.HOST, "segment": Segment.PEER_WAIT},
    ]  # fmt: skip
    edges = [(0, 3, Relation.FOLLOWS), (3, 2, Relation.JOINS), (2, 1, Relation.RELEASES)]
    graph = make_graph(rows, edges)
    assert align(graph, graph).tolist() == [0, 1, 2, 3]
