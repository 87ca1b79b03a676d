"""Lines between machines that a token bucket limits, in the second pass and backwards. By hand, and by property."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys import make_graph

from gnnperf.core import Relation
from gnnperf.graph import ExecutionGraph, Isolated
from gnnperf.hardware.contention import Bucket, Contention
from gnnperf.schedule import isolated_us, schedule_with_contention
from gnnperf.schedule.resource_demands import resource_demands
from tests.schedule.test_contention import LINKS, arrive, host, run, transfer

# one byte a microsecond; 40 bytes pass at once, ten times as fast: a full bucket spares 36 us
BUCKET = Bucket(size_bytes=40.0, limit_bytes_per_s=1e6, at_once_bytes_per_s=1e7)
APART = replace(LINKS, ranks_per_node=1, outer_bucket=BUCKET)


def sends(*begins_and_sizes: tuple[float, float]) -> ExecutionGraph:
    """All-reduces of two ranks, (us of host before it, bytes), 10 us longer than their bytes take; each by itself."""
    rows: list[dict[str, object]] = []
    edges: list[tuple[int, int, str]] = []
    for begin, size in begins_and_sizes:
        at = len(rows)
        rows += [host(begin), arrive(0), arrive(1), {**transfer(10.0 + size, message_bytes=size), "group_size": 2}]
        edges += [(at, at + 1, Relation.WAITS), (at, at + 2, Relation.WAITS),
                  (at + 1, at + 3, Relation.JOINS), (at + 2, at + 3, Relation.JOINS)]  # fmt: skip
    return make_graph(rows, edges, ranks=(0, 1))


def one_after_another(*gaps_and_sizes: tuple[float, float]) -> ExecutionGraph:
    graph = sends(*gaps_and_sizes)
    chain = [(4 * i + 3, 4 * i + 4, str(Relation.WAITS)) for i in range(len(gaps_and_sizes) - 1)]
    retained = graph.edges[["src", "dst", "relation"]].itertuples(index=False, name=None)
    rows = [{str(k): v for k, v in row.items()} for row in graph.nodes.drop(columns="node_id").to_dict("records")]
    return make_graph(rows, [*retained, *chain], ranks=(0, 1))


def served_us(graph: ExecutionGraph, contention: Contention = APART, **options: object) -> list[float]:
    latency_us = run(graph, contention, **options).latency_us
    return [float(us) for us in latency_us[3::4]]


@pytest.mark.parametrize(("size", "expected_us"), [(0.0, 10.0), (30.0, 13.0), (40.0, 14.0), (100.0, 110.0 - 36.0)])
def test_what_a_full_bucket_holds_passes_at_once(size: float, expected_us: float) -> None:
    assert served_us(sends((0.0, size))) == pytest.approx([expected_us])


def test_a_second_transfer_finds_what_came_meanwhile() -> None:
    """The first sends 60 in 10 + 24 us: 40 - 60 + 34 = 14 tokens, and 5 more after a pause of 5 us."""
    assert served_us(one_after_another((0.0, 60.0), (0.0, 60.0))) == pytest.approx([34.0, 70 - 0.9 * 14])
    assert served_us(one_after_another((0.0, 60.0), (5.0, 60.0))) == pytest.approx([34.0, 70 - 0.9 * 19])
    assert served_us(one_after_another((0.0, 60.0), (26.0, 60.0))) == pytest.approx([34.0, 34.0])


def test_two_at_once_share_the_line_and_its_bucket() -> None:
    """The first has 34 us left, the second all of its 70: 68 at half rate, then the second 36 by itself."""
    assert served_us(sends((0.0, 60.0), (0.0, 60.0))) == pytest.approx([68.0, 104.0])


def test_a_burst_is_spared_one_bucket_only() -> None:
    """A hundred messages that come together take what their bytes take, but for one full bucket."""
    result = run(sends(*[(0.0, 20.0)] * 100), replace(APART, outer_bucket=None)).schedule.makespan_us
    limited = run(sends(*[(0.0, 20.0)] * 100), APART).schedule.makespan_us
    assert result == pytest.approx(100 * 30.0)
    assert limited == pytest.approx(result - 36.0)


@pytest.mark.parametrize(
    ("before", "size", "expected_us"),
    [
        (30.0, 60.0, 34.0),  # 40 - 60 tokens and 65 us until the next copy's: full again
        (0.0, 100.0, 110.0 - 0.9 * 15.0),  # 40 - 100 tokens and 75 us: 15
    ],
)
def test_copies_of_a_step_begin_with_what_the_one_before_left(before: float, size: float, expected_us: float) -> None:
    """The thread waits for the transfer and works 1 us: of two copies the second is given."""
    rows = [host(before), arrive(0), arrive(1), {**transfer(10.0 + size, size), "group_size": 2}, host(1.0)]
    edges = [(0, 1, Relation.WAITS), (0, 2, Relation.WAITS), (1, 3, Relation.JOINS), (2, 3, Relation.JOINS),
             (3, 4, Relation.WAITS)]  # fmt: skip
    result = run(make_graph(rows, edges, ranks=(0, 1)), APART, num_unrolled=2)
    assert result.latency_us[3] == pytest.approx(expected_us)


def test_no_bucket_within_a_machine_nor_for_a_size_that_is_not_known() -> None:
    graph = sends((0.0, 60.0))
    assert served_us(graph, replace(APART, ranks_per_node=2)) == [70.0]
    assert served_us(graph, replace(APART, ranks_per_outer_link=0)) == [70.0]
    assert served_us(graph, replace(APART, outer_bucket=None)) == [70.0]
    unknown = replace(graph, nodes=graph.nodes.assign(message_bytes=np.nan))
    assert served_us(unknown) == [70.0]


def test_what_was_measured_in_place_takes_tokens_and_keeps_its_latency() -> None:
    graph = sends((0.0, 60.0), (0.0, 60.0))
    latency = np.nan_to_num(graph.nodes["latency_us"].to_numpy())
    isolated = Isolated(np.arange(graph.num_nodes) > 3, APART)
    result = schedule_with_contention(graph, latency, np.zeros(len(graph.edges)), isolated)
    assert result.latency_us[3] == 70.0
    assert result.latency_us[7] == pytest.approx(105.0)  # 70 us at half rate, then 35: no token was left


def bytes_on_lines(kind: str, ranks: tuple[int, ...], per_node: int, per_line: int, **known: int) -> float:
    """Of a message of 60 bytes a rank: what one line at one byte a microsecond needs, in us."""
    joint = {**transfer(1e3, message_bytes=60.0), "collective": kind, "group_size": len(ranks), **known}
    rows = [*[arrive(rank, kind) for rank in ranks], joint]
    graph = make_graph(rows, [(part, len(ranks), Relation.JOINS) for part in range(len(ranks))], ranks=ranks)
    contention = replace(APART, ranks_per_node=per_node, ranks_per_outer_link=per_line)
    result = resource_demands(graph, np.nan_to_num(graph.nodes["latency_us"].to_numpy()), contention).line_us
    assert not result[: len(ranks)].any()
    return float(result[len(ranks)])


@pytest.mark.parametrize("values", [True, False])  # of a group whose ranks are not given, those that are traced count
@pytest.mark.parametrize(
    ("kind", "ranks", "per_node", "per_line", "expected"),
    [
        ("all_reduce", 2, 1, 1, 60.0),
        ("all_reduce", 4, 2, 2, 90.0),  # 2 (n - 1) / n: one ring over one line
        ("all_reduce", 4, 2, 1, 45.0),  # over two
        ("all_gather", 4, 1, 1, 180.0),
        ("all_to_all", 2, 1, 1, 30.0),
        ("all_to_all", 4, 2, 2, 60.0),  # of each of two ranks, half leaves
        ("all_to_all", 4, 2, 1, 30.0),
        ("broadcast", 4, 2, 2, 60.0),
        ("send_recv", 2, 1, 1, 60.0),
        ("unheard_of", 2, 1, 1, 0.0),
    ],
)
def test_bytes_on_a_line(kind: str, ranks: int, per_node: int, per_line: int, expected: float, values: bool) -> None:
    known = {"group_first": 0, "group_stride": 1} if values else {}
    assert bytes_on_lines(kind, tuple(range(ranks)), per_node, per_line, **known) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kind", "ranks", "expected"),
    [
        ("all_reduce", (0, 2, 4, 6), 45.0),  # two on a machine, each with a line of its own
        ("all_to_all", (0, 2, 4, 6), 30.0),
        ("all_to_all", (0, 1, 4), 40.0),  # uneven: two on a line send 20 each to the other machine
        ("all_to_all", (0, 4), 30.0),
    ],
)
def test_bytes_on_a_line_of_groups_with_gaps(kind: str, ranks: tuple[int, ...], expected: float) -> None:
    """Four ranks on a machine, two on a line."""
    assert bytes_on_lines(kind, ranks, 4, 2) == pytest.approx(expected)
    if len(set(np.diff(ranks))) == 1:
        known = {"group_first": 0, "group_stride": ranks[1]}
        assert bytes_on_lines(kind, ranks, 4, 2, **known) == pytest.approx(expected)


def test_a_recorded_transfer_that_detected_tokens_would_take_longer_isolated() -> None:
    graph = sends((0.0, 60.0))
    nodes = graph.nodes.assign(latency_us=[0.0, 0.0, 0.0, 34.0], start_us=[0.0, 0.0, 0.0, 5.0])
    assert isolated_us(replace(graph, nodes=nodes), APART)[3] == pytest.approx(70.0)


TRANSFERS = st.lists(st.tuples(st.floats(0.0, 200.0), st.floats(0.0, 200.0)), min_size=1, max_size=6)


@given(TRANSFERS, st.booleans())
def test_there_and_back(transfers: list[tuple[float, float]], chained: bool) -> None:
    graph = (one_after_another if chained else sends)(*transfers)
    isolated = np.nan_to_num(graph.nodes["latency_us"].to_numpy())
    result = run(graph, APART)
    seen = graph.nodes.assign(latency_us=result.latency_us, start_us=result.schedule.start_us)
    np.testing.assert_allclose(isolated_us(replace(graph, nodes=seen), APART), isolated, rtol=1e-9, atol=1e-6)


@given(TRANSFERS, st.booleans())
def test_no_transfer_is_spared_more_than_a_full_bucket(transfers: list[tuple[float, float]], chained: bool) -> None:
    graph = (one_after_another if chained else sends)(*transfers)
    isolated = np.nan_to_num(graph.nodes["latency_us"].to_numpy())[3::4]
    sizes = np.array([size for _, size in transfers])
    assert (np.array(served_us(graph)) >= isolated - 0.9 * np.minimum(sizes, 40.0) - 1e-9).all()
