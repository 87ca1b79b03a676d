"""The second pass: overlapping work shares devices, cores and links. By hand, and by property."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys import make_graph

from gnnperf.core import NodeType, Relation, Segment
from gnnperf.graph import ExecutionGraph, Isolated
from gnnperf.hardware.contention import Contention
from gnnperf.schedule import schedule, schedule_with_contention
from gnnperf.schedule.contention import Contended, isolated_us

LINKS = Contention(ranks_per_node=8, ranks_per_inner_link=1, ranks_per_outer_link=1)  # of GPUs
ONE_CORE = Contention(
    ranks_per_node=4, cores_per_node=1.0, inner_core_bytes_per_s=1e9, outer_core_bytes_per_s=1e8, ranks_per_outer_link=4
)
OWN_CORES = replace(ONE_CORE, core_sets=((0,), (1,)))


def run(graph: ExecutionGraph, contention: Contention, **options: object) -> Contended:
    latency = np.nan_to_num(graph.nodes["latency_us"].to_numpy())
    isolated = Isolated(np.ones(graph.num_nodes, dtype=bool), contention)
    return schedule_with_contention(graph, latency, np.zeros(len(graph.edges)), isolated, **options)  # type: ignore[arg-type]


def first_pass_us(graph: ExecutionGraph) -> np.ndarray:
    return schedule(graph, np.nan_to_num(graph.nodes["latency_us"].to_numpy()), np.zeros(len(graph.edges))).start_us


def kernel(latency_us: float, rank: int = 0, stream: int = 0) -> dict[str, object]:
    return {"node_type": NodeType.COMPUTE, "rank": rank, "device": rank, "stream": stream, "latency_us": latency_us}


def thread(latency_us: float, rank: int = 0, node_type: str = NodeType.COMPUTE) -> dict[str, object]:
    return {"node_type": node_type, "rank": rank, "thread": 0, "latency_us": latency_us}


def host(latency_us: float, rank: int = 0) -> dict[str, object]:
    return {"node_type": NodeType.HOST, "segment": Segment.T5, "rank": rank, "thread": 1, "latency_us": latency_us}


def arrive(rank: int, kind: str = "all_reduce") -> dict[str, object]:
    return {"node_type": NodeType.COMM, "segment": Segment.ARRIVE, "rank": rank, "stream": 9, "device": rank,
            "collective": kind, "latency_us": 0.0}  # fmt: skip


def transfer(latency_us: float, message_bytes: float = np.nan) -> dict[str, object]:
    return {"node_type": NodeType.COLLECTIVE, "rank": -1, "collective": "all_reduce", "latency_us": latency_us,
            "message_bytes": message_bytes}  # fmt: skip


def two_transfers(first_us: float, second_us: float, second_at_us: float, **ends: str) -> ExecutionGraph:
    """Two transfers between ranks 0 and 1; the second is reached later."""
    second = ends.get("second", "all_reduce"), ends.get("second_peer", "all_reduce")
    rows = [arrive(0, ends.get("first", "all_reduce")), arrive(1, ends.get("first_peer", "all_reduce")),
            transfer(first_us), host(second_at_us), arrive(0, second[0]), arrive(1, second[1]),
            transfer(second_us)]  # fmt: skip
    edges = [(0, 2, Relation.JOINS), (1, 2, Relation.JOINS), (3, 4, Relation.WAITS), (3, 5, Relation.WAITS),
             (4, 6, Relation.JOINS), (5, 6, Relation.JOINS)]  # fmt: skip
    return make_graph(rows, edges, ranks=(0, 1))


def test_transfers_share_a_link_while_both_are_there() -> None:
    """The first: 20 by itself, 20 at half rate until 60; the second: 20 until 60, then 20 by itself until 80."""
    assert run(two_transfers(50.0, 50.0, 0.0), LINKS).latency_us[[2, 6]].tolist() == [100.0, 100.0]
    assert run(two_transfers(40.0, 40.0, 20.0), LINKS).schedule.end_us[[2, 6]].tolist() == [60.0, 80.0]


@pytest.mark.parametrize(("second", "expected_us"), [(("recv", "send"), 50.0), (("send", "recv"), 100.0)])
def test_opposite_directions_do_not_share(second: tuple[str, str], expected_us: float) -> None:
    """Rank 0 sends to 1 while 1 sends to 0; two sends in one direction share."""
    ends = {"first": "send", "first_peer": "recv", "second": second[0], "second_peer": second[1]}
    result = run(two_transfers(50.0, 50.0, 0.0, **ends), LINKS)
    assert result.latency_us[[2, 6]].tolist() == [expected_us, expected_us]


def test_inner_and_outer_links_are_not_one() -> None:
    """Ranks 0 and 1 in one node of two, 0 and 2 in different ones: the transfers of rank 0 cross different links."""
    rows = [arrive(0), arrive(1), transfer(50.0), arrive(0), arrive(2), transfer(50.0)]
    edges = [(0, 2, Relation.JOINS), (1, 2, Relation.JOINS), (3, 5, Relation.JOINS), (4, 5, Relation.JOINS)]
    graph = make_graph(rows, edges, ranks=(0, 1, 2))
    assert run(graph, replace(LINKS, ranks_per_node=2)).latency_us[[2, 5]].tolist() == [50.0, 50.0]
    assert run(graph, LINKS).latency_us[[2, 5]].tolist() == [100.0, 100.0]


def during_transfer(share: float) -> ExecutionGraph:
    """A thread of rank 0 works 20 + 80 us; from 20 us on a transfer of 40 us needs a share of the core."""
    rows = [thread(20.0), thread(80.0), arrive(0), arrive(1), transfer(40.0, message_bytes=share * 40e-6 * 1e9)]
    edges = [(0, 1, Relation.FOLLOWS), (0, 2, Relation.WAITS), (0, 3, Relation.WAITS), (2, 4, Relation.JOINS),
             (3, 4, Relation.JOINS)]  # fmt: skip
    return make_graph(rows, edges, ranks=(0, 1))


@pytest.mark.parametrize(
    ("share", "cores", "work_us", "transfer_us"),
    [
        (0.5, OWN_CORES, 100.0, 40.0),  # within 40 us the thread gets 40 x 0.5; the transfer is not slowed
        (3.0, OWN_CORES, 120.0, 40.0),  # work stands still while the transfer needs the whole core
        (0.75, ONE_CORE, 140.0, 60.0),  # both ranks on one core: 0.75 on either side is 1.5 of it
    ],
)
def test_a_transfer_takes_its_share_of_the_core_first(
    share: float, cores: Contention, work_us: float, transfer_us: float
) -> None:
    result = run(during_transfer(share), cores).latency_us
    np.testing.assert_allclose(result, [20.0, work_us, 0.0, 0.0, transfer_us])


def test_latencies_measured_in_place_are_not_stretched_but_load_their_core() -> None:
    """The second thread has half of the core for 30 us, and is not slowed itself."""
    graph = make_graph([thread(30.0, 0), thread(50.0, 1)], [], ranks=(0, 1))
    isolated = Isolated(np.arange(graph.num_nodes) != 1, ONE_CORE)
    result = schedule_with_contention(graph, np.array([30.0, 50.0]), np.zeros(0), isolated)
    assert result.latency_us.tolist() == [55.0, 50.0]


def test_more_threads_than_cores_share_them() -> None:
    """30 and 50 us on one core: half rate until 60, then the second has 20 left. With a core each nothing changes."""
    graph = make_graph([thread(30.0, 0), thread(50.0, 1, NodeType.HOST)], [], ranks=(0, 1))
    assert run(graph, ONE_CORE).latency_us.tolist() == [60.0, 80.0]
    for enough in (OWN_CORES, replace(ONE_CORE, cores_per_node=2.0)):
        assert run(graph, enough).latency_us.tolist() == [30.0, 50.0]


def test_pools_of_cores() -> None:
    assert ONE_CORE.pools((0, 3, 4)) == ([0, 0, 1], [1.0, 1.0])
    assert OWN_CORES.pools((0, 1)) == ([0, 1], [1.0, 1.0])
    chained = replace(ONE_CORE, core_sets=((0,), (2,), (0, 1), (1, 3)))
    assert chained.pools((0, 1, 2, 3)) == ([1, 0, 1, 1], [1.0, 3.0])
    assert LINKS.pools((4, 5)) == ([0, 1], [np.inf, np.inf])


def test_overlap_reaches_into_the_next_copy_of_the_step() -> None:
    """A transfer (40 us) begins when a step's thread (100 us) ends, and needs half of the core of the next one's."""
    rows = [thread(100.0), arrive(0), arrive(1), transfer(40.0, message_bytes=0.5 * 40e-6 * 1e9)]
    edges = [(0, 1, Relation.WAITS), (0, 2, Relation.WAITS), (1, 3, Relation.JOINS), (2, 3, Relation.JOINS)]
    graph = make_graph(rows, edges, ranks=(0, 1))
    assert run(graph, OWN_CORES).schedule.makespan_us == 140.0
    result = run(graph, OWN_CORES, num_unrolled=3)
    assert result.schedule.period_us == 120.0
    assert result.latency_us[0] == 120.0


def test_a_faster_link_may_lengthen_a_step() -> None:
    """Graham's anomaly: what the fast link ends earlier begins to share with the critical path.

    A (4 us, then 1 us of host) -> B (10 us); C (1 us) is reached at 4 us, 100 us of host follow. At 1x C runs in
    isolation, and ends at 5. At 1.25x A ends at 3.2 and B begins at 4.2, next to C.
    """

    def makespan_us(speed: float) -> float:
        rows = [arrive(0), arrive(1), transfer(4.0 / speed), host(1.0), arrive(0), arrive(1), transfer(10.0 / speed),
                host(4.0, rank=1), arrive(0), arrive(1), transfer(1.0 / speed), host(100.0, rank=1)]  # fmt: skip
        edges = [(0, 2, Relation.JOINS), (1, 2, Relation.JOINS), (2, 3, Relation.WAITS), (3, 4, Relation.WAITS),
                 (3, 5, Relation.WAITS), (4, 6, Relation.JOINS), (5, 6, Relation.JOINS), (7, 8, Relation.WAITS),
                 (7, 9, Relation.WAITS), (8, 10, Relation.JOINS), (9, 10, Relation.JOINS),
                 (10, 11, Relation.WAITS)]  # fmt: skip
        return run(make_graph(rows, edges, ranks=(0, 1)), LINKS).schedule.makespan_us

    assert makespan_us(1.0) == 105.0
    np.testing.assert_allclose(makespan_us(1.25), 104.2 + 0.75 / 0.625)


LATENCIES = st.floats(0.0, 100.0)


@st.composite
def steps(draw: st.DrawFn) -> ExecutionGraph:
    """Two ranks of work on two lanes each, joined by transfers; kernels wait for earlier work at random."""
    rows: list[dict[str, object]] = []
    edges: list[tuple[int, int, str]] = []
    last: dict[tuple[int, int], int] = {}

    def add(row: dict[str, object], *after: int) -> int:
        rows.append(row)
        edges.extend((node, len(rows) - 1, Relation.WAITS) for node in after)
        return len(rows) - 1

    for _ in range(draw(st.integers(1, 12))):
        if draw(st.booleans()):
            rank, stream = draw(st.integers(0, 1)), draw(st.integers(0, 1))
            before = [last[rank, stream]] if (rank, stream) in last else []
            last[rank, stream] = add(kernel(draw(LATENCIES), rank, stream), *before)
        else:
            stream = draw(st.integers(0, 1))
            parts = [add(arrive(rank), *([last[rank, stream]] if (rank, stream) in last else [])) for rank in (0, 1)]
            joint = add(transfer(draw(LATENCIES), message_bytes=draw(st.floats(0.0, 1e5))))
            edges.extend((part, joint, Relation.JOINS) for part in parts)
            if draw(st.booleans()):
                last[0, stream] = last[1, stream] = joint
    return make_graph(rows, edges, ranks=(0, 1))


CONTENTIONS = st.sampled_from([LINKS, ONE_CORE, OWN_CORES])


@given(steps(), CONTENTIONS, st.integers(1, 3))
def test_never_faster_than_the_first_pass(graph: ExecutionGraph, contention: Contention, copies: int) -> None:
    latency = np.nan_to_num(graph.nodes["latency_us"].to_numpy())
    result = run(graph, contention, num_unrolled=copies)
    assert (result.latency_us >= latency).all()
    if copies == 1:
        assert (result.schedule.start_us >= first_pass_us(graph)).all()


@given(steps(), st.integers(1, 3))
def test_links_that_are_not_shared_are_the_identity(graph: ExecutionGraph, copies: int) -> None:
    free = Contention(ranks_per_node=8, ranks_per_inner_link=0)
    result = run(graph, free, num_unrolled=copies)
    assert result.latency_us.tolist() == np.nan_to_num(graph.nodes["latency_us"].to_numpy()).tolist()


@given(steps(), CONTENTIONS)
def test_without_overlap_it_is_the_first_pass(graph: ExecutionGraph, contention: Contention) -> None:
    """All nodes one after the other, whatever they share."""
    chain = [(node, node + 1, str(Relation.WAITS)) for node in range(graph.num_nodes - 1)]
    joins = graph.edges[(graph.edges["relation"] == Relation.JOINS).to_numpy()]
    retained = [(int(s), int(d), str(Relation.JOINS)) for s, d in zip(joins["src"], joins["dst"], strict=True)]
    rows = graph.nodes.drop(columns="node_id").to_dict("records")
    named = [{str(k): v for k, v in row.items()} for row in rows]
    one_after_another = make_graph(named, chain + retained, ranks=(0, 1))
    bound_to_own = replace(contention, inner_core_bytes_per_s=np.inf)  # an isolated transfer needs one core
    result = run(one_after_another, bound_to_own)
    assert result.latency_us.tolist() == np.nan_to_num(one_after_another.nodes["latency_us"].to_numpy()).tolist()
    assert result.schedule.start_us.tolist() == first_pass_us(one_after_another).tolist()


@given(st.lists(st.floats(0.1, 100.0), min_size=1, max_size=6), st.floats(1.0, 5.0), st.floats(0.0, 5.0))
def test_more_cores_are_never_slower_for_work_that_is_there_from_the_start(
    latencies: list[float], cores: float, more: float
) -> None:
    graph = make_graph([thread(us, rank) for rank, us in enumerate(latencies)], [], ranks=tuple(range(len(latencies))))
    few, many = (replace(ONE_CORE, ranks_per_node=8, cores_per_node=count) for count in (cores, cores + more))
    assert run(graph, many).schedule.makespan_us <= run(graph, few).schedule.makespan_us * (1 + 1e-12)


@given(st.lists(st.floats(0.1, 100.0), min_size=1, max_size=6), st.floats(1.0, 8.0))
def test_bandwidth_is_never_slower_for_transfers_that_are_there_from_the_start(
    latencies: list[float], faster: float
) -> None:
    def end_us(speed: float) -> np.ndarray:
        rows, edges = [], []
        for us in latencies:
            rows += [arrive(0), arrive(1), transfer(us / speed)]
            edges += [(len(rows) - 3, len(rows) - 1, "joins"), (len(rows) - 2, len(rows) - 1, "joins")]
        return run(make_graph(rows, edges, ranks=(0, 1)), LINKS).schedule.end_us

    slow_us = end_us(1.0)
    np.testing.assert_allclose(slow_us.max(), sum(latencies))  # fair sharing keeps the link busy
    assert (end_us(faster) <= slow_us * (1 + 1e-9)).all()


def recorded(rows: list[dict[str, object]], joins: list[tuple[int, int]] = []) -> ExecutionGraph:  # noqa: B006
    return make_graph(rows, [(src, dst, Relation.JOINS) for src, dst in joins], ranks=(0, 1))


def test_threads_that_shared_a_core() -> None:
    """A: 10 us by itself, 20 at half speed; B, 10 us later: 20 at half speed, 10 by itself; then C."""
    rows = [{**thread(30.0), "start_us": 0.0}, {**thread(30.0, 1), "start_us": 10.0}, {**host(4.0), "start_us": 40.0}]
    result = isolated_us(recorded(rows), replace(ONE_CORE, ranks_per_node=2))
    assert result.tolist() == pytest.approx([20.0, 20.0, 4.0])


def test_what_only_touches_and_what_has_nothing_to_share_does_not_share() -> None:
    rows = [{**thread(30.0), "start_us": 0.0}, {**thread(30.0, 1), "start_us": 30.0}]
    assert isolated_us(recorded(rows), ONE_CORE).tolist() == [30.0, 30.0]
    rows[1]["start_us"] = 10.0
    assert isolated_us(recorded(rows), Contention()).tolist() == [30.0, 30.0]


def test_transfers_that_shared_a_link() -> None:
    one = [{**row, "start_us": 0.0} for row in (arrive(0), arrive(1), transfer(100.0))]
    rows = [*one, *one]
    result = isolated_us(recorded(rows, [(0, 2), (1, 2), (3, 5), (4, 5)]), LINKS)
    assert result[[2, 5]].tolist() == pytest.approx([50.0, 50.0])


def test_nodes_without_label_or_start_stay_what_they_are() -> None:
    rows = [{**thread(30.0), "start_us": 0.0}, {**thread(np.nan, 1), "start_us": 10.0},
            {**thread(7.0, 1), "start_us": np.nan}]  # fmt: skip
    result = isolated_us(recorded(rows), ONE_CORE)
    assert result[[0, 2]].tolist() == [30.0, 7.0]
    assert np.isnan(result[1])


latencies = st.lists(st.floats(1.0, 1000.0), min_size=6, max_size=6)


@given(latencies, st.sampled_from([1.0, 2.0, 3.0]))
def test_contention_and_back(latency_us: list[float], cores: float) -> None:
    """Six threads' work, two on each of three ranks, that shares cores: scheduled, then observed."""
    rows = [{**thread(latency, rank), "thread": 10 * rank + lane} for (rank, lane), latency in
            zip([(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)], latency_us, strict=True)]  # fmt: skip
    graph = make_graph(rows, [(0, 3, Relation.WAITS), (3, 5, Relation.WAITS)], ranks=(0, 1, 2))
    isolated = np.array([*latency_us, *[0.0] * (graph.num_nodes - 6)])
    shares = Contention(ranks_per_node=3, cores_per_node=cores)
    result = run(graph, shares)
    seen = graph.nodes.assign(latency_us=result.latency_us, start_us=result.schedule.start_us)
    np.testing.assert_allclose(isolated_us(replace(graph, nodes=seen), shares), isolated, rtol=1e-9, atol=1e-6)
    assert (graph.nodes["node_type"] == NodeType.COMPUTE).sum() == 6
