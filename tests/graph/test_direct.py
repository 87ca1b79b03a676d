"""Sends and receives between host threads (gloo): paired by channel, released by what releases them."""

from collections.abc import Hashable

import pandas as pd
import pytest
from toys import edges_of
from traces import Event, annotation, call, counts, kernel, mark, op, run_of, trace

from gnnperf.graph import ExecutionGraph, build_graph
from gnnperf.schedule.longest_path import schedule


def message(
    kind: str, called: float, returned: float, until: float, channel: str = "[0>1]", elements: int = 64
) -> list[Event]:
    """c10d::send or c10d::recv_ from `called` to `returned`; its range begins 1 us before that and ends at `until`."""
    name = "c10d::send" if kind == "send" else "c10d::recv_"
    stated = {"collective": kind, "in_elements": float(elements), "comm_dtype": "float32"}
    return [op(name, called, returned, **(stated | {"group": channel, "group_size": 2})),
            annotation(f"gloo:{kind}", returned - 1, until, **stated)]  # fmt: skip


def graph_of(*ranks: list[Event]) -> ExecutionGraph:
    size = len(ranks)
    return build_graph(
        run_of(*(trace(mark(0, 0, 400), *e, rank=r, world_size=size, backend="gloo") for r, e in enumerate(ranks)))
    )


def comm(graph: ExecutionGraph, rank: int, segment: str) -> pd.Series:
    nodes = graph.nodes
    return nodes[(nodes["rank"] == rank) & (nodes["segment"] == segment) & (nodes["node_type"] == "comm")].iloc[0]


def transfer(graph: ExecutionGraph) -> pd.Series:
    result = graph.nodes[graph.nodes["node_type"] == "collective"]
    assert len(result) == 1
    return result.iloc[0]


def gap_before(graph: ExecutionGraph, rank: int, name: str) -> pd.Series:
    nodes = graph.nodes
    return nodes[(nodes["rank"] == rank) & (nodes["segment"] == "T1") & (nodes["op_name"] == name)].iloc[0]


def sources(graph: ExecutionGraph, relation: str, node: Hashable) -> set[int]:
    return {src for src, dst in edges_of(graph, relation) if dst == node}


SENDER = [op("aten::mm", 10, 100), *message("send", 110, 130, 135), op("aten::add", 140, 160)]
RECEIVER = [*message("recv", 20, 30, 180), op("aten::mm", 190, 290)]


def test_a_receiver_waits_for_its_sender() -> None:
    """Posted at 20, sent from 110: the transfer takes 110 to 180, the receiver's gap 180 to 190 is its own 10 us."""
    graph = graph_of(SENDER, RECEIVER)
    result = transfer(graph)
    assert result[["collective", "group_size", "message_bytes", "start_us", "latency_us"]].tolist() == [
        "send_recv", 2, 256.0, 110.0, 70.0,
    ]  # fmt: skip
    gap = gap_before(graph, 1, "aten::mm")
    assert gap[["blocked_us", "latency_us", "start_us"]].tolist() == [150.0, 10.0, 180.0]
    assert comm(graph, 1, "exit")["latency_us"] == 0.0
    assert (counts(graph)["collectives_matched"], counts(graph)["collectives_without_all_peers"]) == (1, 0)
    assert not (graph.nodes["segment"] == "peer_wait").any()


def test_a_sender_goes_on_before_the_message_has_come() -> None:
    """The receiver was there: at 135 the system has taken what is sent from 110; no transfer releases the sender."""
    graph = graph_of(SENDER, RECEIVER)
    leaves, arrives = comm(graph, 0, "exit"), comm(graph, 0, "arrive")
    assert leaves[["start_us", "latency_us"]].tolist() == [110.0, 25.0]
    assert sources(graph, "releases", leaves.name) == set()
    assert sources(graph, "follows", leaves.name) == {arrives.name}
    assert sources(graph, "waits", leaves.name) == {comm(graph, 1, "arrive").name}
    gap = gap_before(graph, 0, "aten::add")
    assert gap[["blocked_us", "latency_us"]].tolist() == [5.0, 5.0]


@pytest.mark.parametrize(("until", "leaves_us", "blocked_us"), [(120, [100, 20], 100.0), (40, [10, 30], 20.0)])
def test_a_send_waits_for_a_receiver_that_comes_late_or_is_eager(
    until: float, leaves_us: list[float], blocked_us: float
) -> None:
    """Sent from 10, received from 100 to 140: the system takes the message until 120, or until 40 and needs no one."""
    graph = graph_of(
        [*message("send", 10, 20, until), op("aten::add", until + 10, until + 20)],
        [op("aten::mm", 10, 90), *message("recv", 100, 110, 140), op("aten::mul", 150, 160)],
    )
    leaves = comm(graph, 0, "exit")
    assert transfer(graph)[["start_us", "latency_us"]].tolist() == [100.0, 40.0]
    assert leaves[["start_us", "latency_us"]].tolist() == leaves_us
    assert gap_before(graph, 0, "aten::add")[["blocked_us", "latency_us"]].tolist() == [blocked_us, 10.0]
    waits = {comm(graph, 1, "arrive").name} if until > 100 else set()
    assert (sources(graph, "waits", leaves.name), sources(graph, "releases", leaves.name)) == (waits, set())


def test_a_send_that_is_waited_for_later_has_left_as_soon_as_its_receiver_came() -> None:
    """isend at 10, receiver at 50, wait from 200 to 210: nothing is left to wait for."""
    graph = graph_of(
        [*message("send", 10, 20, 205), op("aten::mm", 30, 200), op("aten::add", 210, 220)],
        [*message("recv", 50, 60, 90), op("aten::mul", 100, 110)],
    )
    assert comm(graph, 0, "exit")[["start_us", "latency_us"]].tolist() == [50.0, 0.0]
    gap = gap_before(graph, 0, "aten::add")
    assert gap[["blocked_us", "latency_us"]].tolist() == [0.0, 10.0]
    assert sources(graph, "waits", gap.name) == {comm(graph, 0, "exit").name}


def test_a_message_that_came_while_its_rank_was_busy_has_no_measured_transfer() -> None:
    """irecv at 10, sent from 20, waited for at 200: it came at some time before."""
    graph = graph_of(
        [*message("send", 20, 30, 35), op("aten::add", 40, 60)],
        [*message("recv", 10, 15, 205), op("aten::mm", 20, 200), op("aten::mul", 210, 220)],
    )
    assert pd.isna(transfer(graph)["latency_us"])
    assert transfer(graph)["start_us"] == 20.0
    assert gap_before(graph, 1, "aten::mul")[["blocked_us", "latency_us"]].tolist() == [0.0, 10.0]


def test_two_ranks_that_send_to_each_other_wait_in_one_gap_and_in_no_cycle() -> None:
    """isend, irecv, then both waits, as in a ring."""
    ranks = []
    for rank, (out, into) in enumerate((("[0>1]", "[1>0]"), ("[1>0]", "[0>1]"))):
        at = 10.0 * rank
        ranks.append([
            *message("send", at + 10, at + 20, 45, out), *message("recv", at + 22, at + 30, at + 80, into),
            op("aten::add", at + 90, at + 100),
        ])  # fmt: skip
    graph = graph_of(*ranks)
    result = graph.nodes[graph.nodes["node_type"] == "collective"]
    assert sorted(result["start_us"].tolist()) == [22.0, 32.0]  # the later of isend and irecv on either channel
    gap = gap_before(graph, 1, "aten::add")
    assert len(sources(graph, "waits", gap.name)) == 2


def test_messages_of_one_channel_are_paired_in_order_and_channels_apart() -> None:
    first = [*message("send", 10, 20, 25, elements=1), *message("send", 30, 40, 45, elements=2)]
    other = message("send", 12, 20, 25, channel="[2>1]", elements=3)
    receiver = [
        *message("recv", 50, 60, 70, channel="[2>1]", elements=3), *message("recv", 80, 90, 100, elements=1),
        *message("recv", 110, 120, 130, elements=2),
    ]  # fmt: skip
    result = graph_of(first, receiver, other)
    table = result.nodes[result.nodes["node_type"] == "collective"]
    assert dict(zip(table["message_bytes"], table["start_us"], strict=True)) == {12.0: 50.0, 4.0: 80.0, 8.0: 110.0}
    assert counts(result)["collectives_inconsistent"] == 0


def test_a_message_whose_peer_was_not_traced_waits_for_it() -> None:
    graph = build_graph(run_of(trace(mark(0, 0, 400), *RECEIVER, rank=1, world_size=2, backend="gloo")))
    wait = graph.nodes[graph.nodes["segment"] == "peer_wait"]
    assert wait["blocked_us"].tolist() == [160.0]
    assert transfer(graph)["collective"] == "recv"


def test_a_longer_forward_of_the_first_stage_delays_the_second() -> None:
    """mm of rank 0 takes 50 us more: so does the pipeline; of rank 1's wait nothing is left to hide it."""
    graph = graph_of(SENDER, RECEIVER)
    latency, lag = graph.nodes["latency_us"].fillna(0.0).to_numpy().copy(), graph.edges["lag_us"].fillna(0.0).to_numpy()
    before = schedule(graph, latency, lag).makespan_us
    latency[((graph.nodes["op_name"] == "aten::mm") & (graph.nodes["rank"] == 0)).to_numpy().nonzero()[0][-1]] += 50.0
    assert schedule(graph, latency, lag).makespan_us - before == pytest.approx(50.0)


def test_kernels_of_a_send_and_its_receive_are_one_transfer() -> None:
    """NCCL: 50 to 120 and 80 to 130. Both hold their streams: 40 us from the last arrival to the earliest end."""
    ranks = []
    for rank, (kind, begin, end) in enumerate((("send", 50, 120), ("recv", 80, 130))):
        stated = {"collective": kind, "group": "[0>1]", "group_size": 2, "in_elements": 64.0, "comm_dtype": "float32"}
        events = [
            mark(0, 0, 300), op(f"c10d::{kind}", 5, 30), call("cudaLaunchKernelExC", 10, 20, corr=1),
            kernel("ncclDevKernel_SendRecv", begin, end, corr=1, **stated),
        ]  # fmt: skip
        ranks.append(trace(*events, rank=rank, world_size=2))
    graph = build_graph(run_of(*ranks))
    assert transfer(graph)[["collective", "start_us", "latency_us"]].tolist() == ["send_recv", 80.0, 40.0]
    assert [comm(graph, rank, "exit")["latency_us"] for rank in (0, 1)] == [0.0, 10.0]
    assert sources(graph, "releases", comm(graph, 0, "exit").name) == {transfer(graph).name}
