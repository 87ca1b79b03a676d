"""Collectives over ranks: matching, the three moments, untraced peers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from toys import edges_of
from traces import Event, all_reduce, annotation, call, counts, kernel, mark, op, run_of, trace

from gnnperf.core import NodeType
from gnnperf.graph import ExecutionGraph, build_graph, rank_events
from gnnperf.graph.matching import CommPart, is_consistent, match
from gnnperf.graph.node_tables import message_bytes
from gnnperf.trace.table import TraceTable


def rank_of(rank: int, *kernels: Event, world_size: int = 2, end: float = 1000) -> TraceTable:
    """One step; the n-th kernel is launched at 10 n by an all-reduce op."""
    events: list[Event] = [mark(0, 0, end)]
    for n, event in enumerate(kernels):
        at = 1.0 + 10 * n
        events += [op("c10d::allreduce_", at, at + 8), call("cudaLaunchKernel", at + 2, at + 4, corr=n + 1)]
        event.columns["correlation"] = n + 1
    return trace(*events, *kernels, rank=rank, world_size=world_size)


def of_type(graph: ExecutionGraph, node_type: str) -> pd.DataFrame:
    return graph.nodes[graph.nodes["node_type"] == node_type]


def moments(graph: ExecutionGraph) -> tuple[list[float], list[float], list[float], list[float]]:
    """arrivals, (start and latency of the one transfer), exits' starts, exits' latencies."""
    comm, transfer = of_type(graph, "comm"), of_type(graph, "collective")
    arrive, leave = comm[comm["segment"] == "arrive"], comm[comm["segment"] == "exit"]
    return (
        arrive["start_us"].tolist(), transfer[["start_us", "latency_us"]].iloc[0].tolist(),
        leave["start_us"].tolist(), leave["latency_us"].tolist(),
    )  # fmt: skip


def test_arrival_transfer_exit() -> None:
    """rank 0: 100 to 180, rank 1: 150 to 190. Last arrival 150, earliest end 180: transfer 30, exits 0 and 10."""
    graph = build_graph(run_of(rank_of(0, all_reduce(100, 180)), rank_of(1, all_reduce(150, 190))))
    assert moments(graph) == ([100.0, 150.0], [150.0, 30.0], [180.0, 180.0], [0.0, 10.0])
    collective = of_type(graph, "collective").iloc[0]
    assert (collective["rank"], collective["step"], collective["group_size"]) == (-1, 0, 2)
    assert (collective["collective"], collective["message_bytes"]) == ("all_reduce", 1024.0)
    assert counts(graph)["collectives_matched"] == 1
    row, comm = int(of_type(graph, "collective").index[0]), of_type(graph, "comm")
    assert edges_of(graph, "joins") == {(int(n), row) for n in comm.index[comm["segment"] == "arrive"]}
    assert edges_of(graph, "releases") == {(row, int(n)) for n in comm.index[comm["segment"] == "exit"]}


def test_a_transfer_whose_clocks_disagree_is_the_shortest_part() -> None:
    """rank 0 ends at 145, before rank 1 begins at 150: 45 and 40 us long."""
    graph = build_graph(run_of(rank_of(0, all_reduce(100, 145)), rank_of(1, all_reduce(150, 190))))
    assert moments(graph)[1] == [150.0, 40.0]


def test_a_root_that_leaves_a_broadcast_early_is_not_released_by_it() -> None:
    """rank 0 sends from 100 to 120 and goes on; rank 1 receives from 150 to 190."""
    parts = all_reduce(100, 120, kind="broadcast"), all_reduce(150, 190, kind="broadcast")
    graph = build_graph(run_of(rank_of(0, parts[0]), rank_of(1, parts[1])))
    arrivals, transfer, exits, exit_us = moments(graph)
    assert (arrivals, transfer) == ([100.0, 150.0], [150.0, 40.0])
    assert (exits, exit_us) == ([100.0, 190.0], [20.0, 0.0])
    assert counts(graph)["collectives_inconsistent"] == 0
    comm = of_type(graph, "comm")
    (root_arrive, root_exit), (_, other_exit) = comm.index[comm["rank"] == 0], comm.index[comm["rank"] == 1]
    assert {dst for _, dst in edges_of(graph, "releases")} == {other_exit}
    assert (root_arrive, root_exit) in edges_of(graph, "follows")


def test_parts_are_matched_from_the_tail_where_a_window_lost_its_head() -> None:
    """rank 1 lost the first of three; sizes 1, 2, 3 elements tell which is which."""
    first = rank_of(0, *(all_reduce(100 * n, 100 * n + 50, elements=float(n)) for n in (1, 2, 3)))
    second = rank_of(1, *(all_reduce(100 * n + 10, 100 * n + 60, elements=float(n)) for n in (2, 3)))
    graph = build_graph(run_of(first, second))
    result = of_type(graph, "collective")
    complete = result[result["latency_us"].notna()]
    assert dict(zip(complete["message_bytes"], complete["start_us"], strict=True)) == {8.0: 210.0, 12.0: 310.0}
    assert result.loc[result["latency_us"].isna(), "message_bytes"].tolist() == [4.0]
    assert counts(graph)["collectives_matched"] == 2
    assert counts(graph)["collectives_without_all_peers"] == 1


def test_groups_and_kinds_are_matched_apart() -> None:
    tables = [
        rank_of(r, all_reduce(100, 150, group="[0,1]"), all_reduce(200, 250, group="[0,1]", kind="all_gather"),
                all_reduce(300, 350, group="other", size=2))
        for r in (0, 1)
    ]  # fmt: skip
    result = of_type(build_graph(run_of(*tables)), "collective")
    assert sorted(result["collective"].tolist()) == ["all_gather", "all_reduce", "all_reduce"]
    assert result["start_us"].tolist() == [100.0, 200.0, 300.0]


def part(
    rank: int, begin: int, end: int, *, size: float = 4.0, kind: str = "all_reduce", group_size: int = 2
) -> CommPart:
    return CommPart(rank, 0, 0, begin, begin, end, (kind, "g"), size, group_size)


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ((part(0, 0, 100_000), part(1, 50_000, 110_000)), True),
        ((part(0, 0, 100_000), part(1, 50_000, 110_000, size=8.0)), False),  # sizes differ
        ((part(0, 0, 100_000), part(1, 50_000, 110_000, size=np.nan)), True),  # unknown agrees with anything
        ((part(0, 0, 100_000), part(1, 200_000, 300_000)), False),  # 100 us apart: clocks agree to 50
        ((part(0, 0, 100_000), part(1, 140_000, 300_000)), True),
        ((part(0, 0, 9, kind="all_to_all"), part(1, 0, 9, size=8.0, kind="all_to_all")), True),  # uneven by nature
    ],
)
def test_consistency(group: tuple[CommPart, ...], expected: bool) -> None:
    assert is_consistent(group) is expected


def test_inconsistent_sizes_are_counted() -> None:
    graph = build_graph(run_of(rank_of(0, all_reduce(100, 180)), rank_of(1, all_reduce(150, 190, elements=9.0))))
    assert counts(graph)["collectives_inconsistent"] == 1


def test_sends_of_two_ranks_are_not_one_collective() -> None:
    parts = [part(0, 0, 100, kind="send"), part(1, 0, 100, kind="send"), part(0, 200, 300, kind="recv")]
    assert sorted(len(g) for g in match(parts)) == [1, 1, 1]


def test_the_wait_for_untraced_peers_is_a_node_without_a_label() -> None:
    """One of 4 ranks was traced: wait and transfer are 80 us together and cannot be distinguished."""
    graph = build_graph(run_of(rank_of(0, all_reduce(100, 180, size=4), kernel_after(), world_size=4)))
    wait = of_type(graph, "host")[of_type(graph, "host")["segment"] == "peer_wait"].iloc[0]
    assert np.isnan(wait["latency_us"])
    assert (wait["blocked_us"], wait["start_us"], wait["rank"], wait["step"]) == (80.0, 100.0, 0, 0)
    collective = of_type(graph, "collective").iloc[0]
    assert np.isnan(collective["latency_us"])
    assert np.isnan(collective["start_us"])
    assert collective["group_size"] == 4
    arrive, leave = of_type(graph, "comm").index
    node, wait_node = int(collective["node_id"]), int(wait["node_id"])
    assert (arrive, wait_node) in edges_of(graph, "follows")
    assert edges_of(graph, "joins") == {(wait_node, node)}
    assert edges_of(graph, "releases") == {(node, leave)}
    assert counts(graph)["collectives_without_all_peers"] == 1


def kernel_after() -> Event:
    """Work on the collective's stream after it."""
    return kernel("after", 185, 190, stream=20)


def test_a_group_of_the_ranks_that_were_traced_is_complete_in_a_larger_world() -> None:
    tables = [rank_of(r, all_reduce(100, 150, size=2), world_size=16) for r in (0, 1)]
    assert of_type(build_graph(run_of(*tables)), "collective")["latency_us"].tolist() == [50.0]


def test_without_a_stated_group_size_the_world_is_the_group() -> None:
    tables = [rank_of(r, all_reduce(100, 150, group_size=-1), world_size=2) for r in (0, 1)]
    result = of_type(build_graph(run_of(*tables)), "collective")
    assert (result["group_size"].tolist(), result["latency_us"].tolist()) == ([2], [50.0])


def test_stream_order_runs_from_exit_to_the_next_work() -> None:
    graph = build_graph(run_of(*(rank_of(r, all_reduce(100, 150), kernel_after()) for r in (0, 1))))
    comm, after = of_type(graph, "comm"), of_type(graph, "compute")
    leave = comm.index[comm["segment"] == "exit"]
    assert {(int(a), int(b)) for a, b in zip(leave, after.index, strict=True)} <= edges_of(graph, "follows")


# --- bytes that each rank sends into a collective, from what the trace states of it -----------------------------------


@pytest.mark.parametrize(
    ("kind", "sent", "received", "expected"),
    [
        ("all_to_all", 10.0, np.nan, 40.0),
        ("all_reduce", np.nan, 10.0, 40.0),
        ("all_gather", 10.0, 80.0, 40.0),  # one rank's part
        ("all_gather", np.nan, 80.0, np.nan),  # the whole output states nothing without the group
        ("reduce_scatter", np.nan, 10.0, np.nan),
    ],
)
def test_message_bytes(kind: str, sent: float, received: float, expected: float) -> None:
    table = trace(mark(0, 0, 100), all_reduce(20, 30, size=4))
    events = table.events
    is_comm = events["collective"].notna().to_numpy()
    text = [(kind, "float32") if comm else (None, None) for comm in is_comm]
    changed = events.assign(
        collective=pd.Categorical([t[0] for t in text]),
        in_elements=np.where(is_comm, sent, np.nan), out_elements=np.where(is_comm, received, np.nan),
        comm_dtype=pd.Categorical([t[1] for t in text]),
    )  # fmt: skip
    result = message_bytes(rank_events(replace(table, events=changed), 0), np.arange(len(changed)))
    assert result[is_comm] == pytest.approx([expected], nan_ok=True)


# --- uneven exchanges: the message of the even one that takes as long, from the split sizes of a call -----------------


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


def exchanged_bytes(*ranks: list[Event]) -> float:
    tables = (trace(*events, rank=n, world_size=len(ranks), backend="gloo") for n, events in enumerate(ranks))
    nodes = build_graph(run_of(*tables)).nodes
    return float(nodes.loc[nodes["node_type"] == NodeType.COLLECTIVE, "message_bytes"].iloc[0])


def test_the_busiest_rank_rules_and_what_stays_does_not_count() -> None:
    """Rank 0 keeps 5 rows and sends 7, rank 1 sends 2: 7 rows of 12 bytes cross, as of an even exchange of 14 rows."""
    assert exchanged_bytes(exchange([5, 7], [5, 2]), exchange([2, 9], [7, 9])) == 7 * 12 * 2


def test_three_ranks_where_one_receives_most() -> None:
    """Rows to rank 0: 4 + 6; every rank sends less than that: 10 rows, as of an even exchange of 15."""
    first, second, third = [1, 1, 1], [4, 8, 2], [6, 3, 1]
    received = [list(column) for column in zip(first, second, third, strict=True)]
    ranks = [exchange(s, r) for s, r in zip((first, second, third), received, strict=True)]
    assert exchanged_bytes(*ranks) == 10 * 12 * 3 / 2
    back = [exchange(r, s) for s, r in zip((first, second, third), received, strict=True)]
    assert exchanged_bytes(*back) == exchanged_bytes(*ranks)  # gradients go back the same way


def test_even_parts_that_are_stated_are_the_even_message() -> None:
    assert exchanged_bytes(exchange([4, 4], [4, 4]), exchange([4, 4], [4, 4])) == 8 * 12
    assert exchanged_bytes(exchange([], []), exchange([], [])) == 0.0


@pytest.mark.parametrize("values", ['["","","","[]","[]","True","-1"]', '["","","","[5, ...","[5, ...',
                                    '["","","","[5, 7, 1]","[5, 7]","True"]', "[]"])  # fmt: skip
def test_without_split_sizes_or_with_a_cut_list_the_largest_sender_rules(values: str) -> None:
    ranks = [exchange([5, 7], [5, 2]), exchange([2, 9], [7, 9])]
    for events in ranks:
        events[2].columns["input_values"] = values
    assert exchanged_bytes(*ranks) == 12 * 12


def test_lists_of_tensors_are_parts_too() -> None:
    """c10d::alltoall_(outputs, inputs, ...): 7 x 3 of rank 0's elements cross."""
    ranks = [exchange([5, 7], [5, 2]), exchange([2, 9], [7, 9])]
    dims = ("[[[5,3],[2,3]],[[5,3],[7,3]],[]]", "[[[7,3],[9,3]],[[2,3],[9,3]],[]]")
    for events, shapes in zip(ranks, dims, strict=True):
        events[2].name = "c10d::alltoall_"
        events[2].columns |= {"input_dims": shapes, "input_values": '["","",""]'}
    assert exchanged_bytes(*ranks) == 7 * 12 * 2


def test_a_group_of_some_ranks_has_its_own_places() -> None:
    """Ranks 2 and 3 of four: rank 2 is the group's first."""
    ranks = [exchange([5, 7], [5, 2]), exchange([2, 9], [7, 9])]
    for events in ranks:
        for event in (events[2], events[3]):
            event.columns |= {"group": "[2,3]", "group_size": 2}
    tables = (trace(*events, rank=n, world_size=4, backend="gloo") for n, events in zip((2, 3), ranks, strict=True))
    nodes = build_graph(run_of(*tables)).nodes
    assert nodes.loc[nodes["node_type"] == NodeType.COLLECTIVE, "message_bytes"].tolist() == [7 * 12 * 2]
