"""A sleep delays a step by what slack does not absorb; a kernel that only counts, in and out again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from toys import make_graph

from gnnperf.core.schema import NodeType, Relation, Segment
from gnnperf.graph.execution_graph import ExecutionGraph, StepLabel
from gnnperf.whatif import Place
from research.evaluation.pairs import Change, Pair, Way, edits
from research.evaluation.pauses import NoSpin, Pause, Spin, spin_us
from research.evaluation.step_times import step_times_us
from tests.whatif.loops import loop


@pytest.mark.parametrize(
    ("rank", "place", "sleep_us", "expected"),
    [
        (0, Place.START, 4.0, 63.0),  # rank 0 then arrives when rank 1 does
        (0, Place.START, 9.0, 68.0),
        (1, Place.START, 4.0, 67.0),
        (0, Place.BACKWARD, 5.0, 63.0),  # backward ends 7 before the transfer
        (0, Place.BACKWARD, 10.0, 66.0),
        (1, Place.OPTIMIZER, 4.0, 67.0),
    ],
)
def test_by_hand(rank: int, place: Place, sleep_us: float, expected: float) -> None:
    result = Pause(rank, place, sleep_us)(loop())
    assert step_times_us(result.graph) == pytest.approx([expected, expected])
    assert result.touched.sum() == 2
    assert not result.unknown


@given(
    rank=st.sampled_from([0, 1]),
    place=st.sampled_from(list(Place)),
    sleep_us=st.floats(0, 200),
    steps=st.integers(1, 3),
)
def test_a_sleep_delays_by_between_nothing_and_its_length(rank: int, place: Place, sleep_us: float, steps: int) -> None:
    graph = loop(steps)
    delay = step_times_us(Pause(rank, place, sleep_us)(graph).graph).sum() - step_times_us(graph).sum()
    assert -1e-6 <= delay <= steps * sleep_us + 1e-6


def test_the_inverse_takes_the_sleep_out() -> None:
    graph = loop()
    back = Pause(1, Place.OPTIMIZER, -40.0)(Pause(1, Place.OPTIMIZER, 40.0)(graph).graph)
    assert_frame_equal(back.graph.nodes, graph.nodes)
    assert not back.unknown


def test_a_gap_shorter_than_the_sleep_taken_out_is_stated() -> None:
    result = Pause(0, Place.BACKWARD, -5.0)(loop())
    assert result.graph.nodes["latency_us"].min() == 0.0
    assert "2 of 2 gaps are shorter than the sleep of 5 us" in result.unknown[0]


SPIN = "at::cuda::(anonymous namespace)::spin_kernel(long)"


def launching(*kernels: tuple[str, float]) -> ExecutionGraph:
    """host |T1 5|T4 5|T1 5|T4 5|... |T1 5 ·waits·|, stream: one kernel per call, from the start of the call."""
    rows: list[dict[str, object]] = []
    edges: list[tuple[int, int, str]] = []
    host = {"node_type": NodeType.HOST, "thread": 0, "latency_us": 5.0, "op_name": "aten::mm"}
    for _ in kernels:
        rows += [{**host, "segment": Segment.T1}, {**host, "segment": Segment.T4}]
    rows.append({**host, "segment": Segment.T1, "op_name": "cudaDeviceSynchronize"})
    sync = len(rows) - 1
    edges += [(n, n + 1, Relation.FOLLOWS) for n in range(sync)]
    for number, (name, latency_us) in enumerate(kernels):
        rows.append({"node_type": NodeType.COMPUTE, "device": 0, "stream": 0, "event_name": name, "op_name": "aten::mm",
                     "latency_us": latency_us})  # fmt: skip
        edges.append((2 * number + 1, len(rows) - 1, Relation.LAUNCHES))
        if number:
            edges.append((len(rows) - 2, len(rows) - 1, Relation.FOLLOWS))
    edges.append((len(rows) - 1, sync, Relation.WAITS))
    return make_graph(rows, edges, steps=(StepLabel(0, "ProfilerStep#0", None, 0.0, (0.0,), (0.0,)),))


GEMMS = (("gemm", 100.0), ("gemm", 100.0))


def test_the_kernel_delays_all_that_follow_on_its_stream() -> None:
    """5 until the first launch, then 40 + 100 + 100 on the stream, then 5."""
    graph = launching(*GEMMS)
    assert step_times_us(graph) == pytest.approx([210.0])
    result = Spin(0, Place.START, 40.0)(graph)
    assert step_times_us(result.graph) == pytest.approx([250.0])
    assert result.touched.sum() == 2  # the kernel and its launch


def test_taken_out_again() -> None:
    slow = launching((SPIN, 40.0), *GEMMS)
    assert spin_us(slow, 0) == 40.0
    result = NoSpin(0)(slow)
    assert step_times_us(result.graph) == pytest.approx([210.0])
    assert result.graph.num_nodes == slow.num_nodes - 3  # the gap, the call and the kernel


def test_its_length_is_that_of_the_recorded_one() -> None:
    pair = Pair(Change.SLEEP, "a", "b", {"rank": 0, "place": "start", "cycles": 20_000_000})
    plain, slow = launching(*GEMMS), launching((SPIN, 40.0), *GEMMS)
    (there,) = edits(pair, Way(plain, slow, True))
    (back,) = edits(pair, Way(slow, plain, False))
    assert step_times_us(there(plain).graph) == pytest.approx([250.0])
    assert step_times_us(back(slow).graph) == pytest.approx([210.0])


def test_before_a_backward_of_another_thread() -> None:
    """The main thread forks at its last gap; the autograd thread launches the second product."""
    graph = launching(*GEMMS)
    thread = graph.nodes["thread"].mask(graph.nodes["node_id"] == 3, 1)
    phase = graph.nodes["phase"].astype("str").mask(graph.nodes["node_id"] == 3, "backward").astype("category")
    edges = graph.edges.assign(relation=graph.edges["relation"].astype("str"))
    edges["relation"] = edges["relation"].mask((edges["src"] == 2) & (edges["dst"] == 3), "waits")
    edges["relation"] = edges["relation"].mask((edges["src"] == 3) & (edges["dst"] == 4), "waits").astype("category")
    forked = replace(
        graph, nodes=graph.nodes.assign(thread=thread, phase=phase), edges=edges.astype({"relation": "category"})
    )
    result = Spin(0, Place.BACKWARD, 40.0)(forked).graph
    spins = result.nodes[(result.nodes["latency_us"] == 40.0)]
    assert result.nodes["latency_us"].tolist()[-3:] == [100.0, 40.0, 100.0]
    assert len(spins) == 1
