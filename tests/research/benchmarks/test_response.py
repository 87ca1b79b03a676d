"""What the makespan does when one kind of node is scaled."""

from __future__ import annotations

import pytest
from traces import Event, all_reduce, call, kernel, mark, op, run_of, trace

from gnnperf.graph.build import build_graph
from gnnperf.graph.execution_graph import ExecutionGraph
from research.benchmarks.response import response, without_waits


def synchronizing(*, peers: int = 1) -> ExecutionGraph:
    """Two steps of 158 us: 15 to the kernel, 100 in it, 3 until the synchronization returns, 40 of host."""
    events: list[Event] = []
    for number, begin in enumerate((0.0, 158.0)):
        events += [
            mark(number, begin, begin + 158), op("aten::mm", begin + 5, begin + 25),
            call("cudaLaunchKernel", begin + 10, begin + 14, corr=number + 1),
            call("cudaDeviceSynchronize", begin + 30, begin + 118), op("aten::item", begin + 128, begin + 138),
        ]  # fmt: skip
        work = (begin + 15, begin + 115)
        events += [
            kernel("gemm", *work, corr=number + 1) if peers == 1 else all_reduce(*work, corr=number + 1, size=peers)
        ]
    return build_graph(run_of(trace(*events, world_size=peers)))


def test_the_base_is_the_recording() -> None:
    assert response(synchronizing()).base_us == pytest.approx(316.0)


def test_without_device_work_the_host_is_left() -> None:
    """A step then takes 33 us until the synchronization returns, and 40 more."""
    result = response(synchronizing()).ratio
    assert result["compute x 0"] == pytest.approx(2 * 73 / 316)
    assert result["compute x 0.5"] == pytest.approx((316 - 100) / 316)
    assert result["compute x 2"] == pytest.approx((316 + 200) / 316)
    assert result["collectives x 10"] == pytest.approx(1.0)


def test_without_wait_edges_the_host_sleeps_for_the_recorded_time() -> None:
    blind = without_waits(synchronizing())
    assert response(blind).base_us == pytest.approx(316.0)
    assert response(blind).ratio["compute x 0"] == pytest.approx(1.0)
    assert blind.validate().edges["relation"].eq("waits").sum() == 0


def test_where_peers_were_not_traced_wait_and_transfer_scale_as_one() -> None:
    result = response(synchronizing(peers=4)).ratio
    assert result["collectives x 0"] == pytest.approx(2 * 73 / 316)
    assert result["collectives x 10"] == pytest.approx((316 + 2 * 900) / 316)
    assert result["compute x 0"] == pytest.approx(1.0)
