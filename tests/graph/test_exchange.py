"""Uneven exchanges: the message of the even one that takes as long, from the split sizes of a call."""

from __future__ import annotations

from typing import Any

import pytest

from gnnperf.core.schema import NodeType
from gnnperf.graph.build import build_graph
from tests.traces import Event, annotation, mark, op, run_of, trace

BASE = "c10d::alltoall_base_"


def exchange(sent: list[int], received: list[int], width: int = 3) -> list[Event]:
    """A call of one rank with parts of so many rows of `width` float32, and gloo's range for it."""
    rows, got = sum(sent) * width, sum(received) * width
    stated: dict[str, Any] = {"collective": "all_to_all", "in_elements": float(rows), "out_elements": float(got),
              "comm_dtype": "float32"}  # fmt: skip
    values = f'["","","","{received}","{sent}","True","-1"]'
    return [
        mark(0, 0, 200), op("aten::mm", 10, 40), op(BASE, 50, 60, input_values=values, **stated),
        annotation("gloo:all_to_all", 55, 120, thread=9, input_values='[""]', **stated), op("aten::add", 125, 130),
    ]  # fmt: skip


def message_bytes(*ranks: list[Event]) -> float:
    tables = (trace(*events, rank=n, world_size=len(ranks), backend="gloo") for n, events in enumerate(ranks))
    nodes = build_graph(run_of(*tables)).nodes
    return float(nodes.loc[nodes["node_type"] == NodeType.COLLECTIVE, "message_bytes"].iloc[0])


def test_the_busiest_rank_rules_and_what_stays_does_not_count() -> None:
    """Rank 0 keeps 5 rows and sends 7, rank 1 sends 2: 7 rows of 12 bytes cross, as of an even exchange of 14 rows."""
    assert message_bytes(exchange([5, 7], [5, 2]), exchange([2, 9], [7, 9])) == 7 * 12 * 2


def test_three_ranks_where_one_receives_most() -> None:
    """Rows to rank 0: 4 + 6; every rank sends less than that: 10 rows, as of an even exchange of 15."""
    first, second, third = [1, 1, 1], [4, 8, 2], [6, 3, 1]
    received = [list(column) for column in zip(first, second, third, strict=True)]
    ranks = [exchange(s, r) for s, r in zip((first, second, third), received, strict=True)]
    assert message_bytes(*ranks) == 10 * 12 * 3 / 2
    back = [exchange(r, s) for s, r in zip((first, second, third), received, strict=True)]
    assert message_bytes(*back) == message_bytes(*ranks)  # gradients go back the same way


def test_even_parts_that_are_stated_are_the_even_message() -> None:
    assert message_bytes(exchange([4, 4], [4, 4]), exchange([4, 4], [4, 4])) == 8 * 12


def test_without_split_sizes_the_largest_sender_rules() -> None:
    assert message_bytes(exchange([], []), exchange([], [])) == 0.0
    plain = [exchange([5, 7], [5, 2]), exchange([2, 9], [7, 9])]
    for events in plain:
        events[2].columns["input_values"] = '["","","","[]","[]","True","-1"]'
    assert message_bytes(*plain) == 12 * 12


@pytest.mark.parametrize("cut", ['["","","","[5, ...","[5, ...', '["","","","[5, 7, 1]","[5, 7]","True"]', "[]"])
def test_a_list_that_was_cut_off_states_nothing(cut: str) -> None:
    ranks = [exchange([5, 7], [5, 2]), exchange([2, 9], [7, 9])]
    for events in ranks:
        events[2].columns["input_values"] = cut
    assert message_bytes(*ranks) == 12 * 12


def test_lists_of_tensors_are_parts_too() -> None:
    """c10d::alltoall_(outputs, inputs, ...): 7 x 3 of rank 0's elements cross."""
    ranks = [exchange([5, 7], [5, 2]), exchange([2, 9], [7, 9])]
    dims = ("[[[5,3],[2,3]],[[5,3],[7,3]],[]]", "[[[7,3],[9,3]],[[2,3],[9,3]],[]]")
    for events, shapes in zip(ranks, dims, strict=True):
        events[2].name = "c10d::alltoall_"
        events[2].columns |= {"input_dims": shapes, "input_values": '["","",""]'}
    assert message_bytes(*ranks) == 7 * 12 * 2


def test_a_group_of_some_ranks_has_its_own_places() -> None:
    """Ranks 2 and 3 of four: rank 2 is the group's first."""
    ranks = [exchange([5, 7], [5, 2]), exchange([2, 9], [7, 9])]
    for events in ranks:
        for event in (events[2], events[3]):
            event.columns |= {"group": "[2,3]", "group_size": 2}
    tables = (trace(*events, rank=n, world_size=4, backend="gloo") for n, events in zip((2, 3), ranks, strict=True))
    nodes = build_graph(run_of(*tables)).nodes
    assert nodes.loc[nodes["node_type"] == NodeType.COLLECTIVE, "message_bytes"].tolist() == [7 * 12 * 2]
