"""Which stretch of host time each profiler event opens in."""

from __future__ import annotations

import numpy as np
import pytest
from traces import MAIN, Event, annotation, call, kernel, mark, op, run_of, trace

from gnnperf.core.schema import EventKind
from gnnperf.graph.build import build_graph
from gnnperf.graph.event_columns import rank_events
from gnnperf.graph.host import host_pieces
from gnnperf.graph.node_tables import opened_events


def opened(
    *events: Event, kind: EventKind = EventKind.CPU_OP, marks_us: tuple[float, ...] = ()
) -> list[tuple[int, str, float, int]]:
    """(thread, segment, begin in us, number opened) of each piece."""
    ranks = rank_events(trace(*events), 0)
    pieces = host_pieces(ranks, MAIN, np.array([round(m * 1000) for m in marks_us], dtype=np.int64))
    count = opened_events(ranks, pieces, kind)
    rows = zip(pieces.thread, pieces.segment, pieces.begin_ns / 1000, count, strict=True)
    return [(int(t), str(s), float(b), int(n)) for t, s, b, n in rows]


def test_an_op_opens_in_the_gap_before_it_and_its_children_open_in_it() -> None:
    result = opened(
        op("aten::linear", 0, 10), op("aten::t", 1, 3), op("aten::transpose", 1, 2),
        op("aten::relu", 15, 20),
    )  # fmt: skip
    assert result == [(MAIN, "T5", 0, 2), (MAIN, "T1", 10, 1), (MAIN, "T5", 15, 0)]


def test_back_to_back_ops_open_in_the_gap_of_no_length() -> None:
    result = opened(op("aten::a", 0, 10), op("aten::b", 10, 20), op("aten::c", 20, 30))
    assert [row[3] for row in result] == [0, 1, 0, 1, 0]


def test_children_are_counted_where_they_open_between_launches() -> None:
    result = opened(
        op("aten::linear", 0, 100), op("aten::t", 5, 10), call("cudaLaunchKernel", 20, 30, corr=1),
        op("aten::add", 40, 60), call("cudaLaunchKernel", 45, 50, corr=2), op("aten::view", 70, 80),
    )  # fmt: skip
    assert [(row[1], row[3]) for row in result] == [("T2", 1), ("T4", 0), ("T5", 1), ("T4", 0), ("T3", 1)]


def test_scopes_and_annotations_open_in_gaps_and_are_counted_by_kind() -> None:
    events = (
        op("aten::a", 0, 10), annotation("phase", 11, 40), op("autograd::engine::evaluate_function: Mm", 12, 39),
        op("aten::b", 15, 30),
    )  # fmt: skip
    assert [row[3] for row in opened(*events)] == [0, 2, 0]
    assert [row[3] for row in opened(*events, kind=EventKind.ANNOTATION)] == [0, 1, 0]


def test_threads_do_not_count_each_others_events() -> None:
    result = opened(op("aten::a", 0, 10), op("aten::b", 20, 30), op("aten::x", 12, 14, thread=2),
                   op("aten::y", 16, 18, thread=2))  # fmt: skip
    assert sorted((t, s, n) for t, s, _, n in result) == [
        (MAIN, "T1", 1), (MAIN, "T5", 0), (MAIN, "T5", 0), (2, "T1", 1), (2, "T5", 0), (2, "T5", 0)
    ]  # fmt: skip


@pytest.mark.parametrize(("kind", "total"), [("opened_ops", 2), ("opened_ranges", 1)])
def test_nodes_transfer_the_counts(kind: str, total: int) -> None:
    graph = build_graph(run_of(trace(
        mark(0, 0, 100), op("aten::mm", 10, 60), call("cudaLaunchKernel", 20, 30, corr=1),
        kernel("gemm", 35, 50, corr=1), op("aten::empty", 70, 80), mark(1, 100, 200), op("aten::mm", 110, 160),
    )))  # fmt: skip
    host = graph.nodes[graph.nodes["node_type"] == "host"]
    assert int(host[host["step"] == 0][kind].sum()) == total
    assert (graph.nodes.loc[graph.nodes["node_type"] != "host", kind] == 0).all()
