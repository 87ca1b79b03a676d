"""The bracket of a device clock."""

import numpy as np
import pytest
from traces import Event, call, kernel, op, run_of, trace

from gnnperf.graph.build import build_graph, clock_bracket, correct_clocks
from gnnperf.graph.event_columns import rank_events
from gnnperf.trace.table import TraceTable


def rank(offset_us: float, *, sync: bool = True) -> TraceTable:
    """Launches at 10 and 40, kernels 5 us later; the device's clock is wrong by `offset_us`."""
    events: list[Event] = [
        op("aten::a", 0, 60), call("cudaLaunchKernel", 10, 20, corr=1), call("cudaLaunchKernel", 40, 50, corr=2),
        kernel("a", 15 + offset_us, 35 + offset_us, corr=1), kernel("b", 45 + offset_us, 95 + offset_us, corr=2),
    ]  # fmt: skip
    return trace(*events, *([call("cudaDeviceSynchronize", 70, 100)] if sync else []))


def shift_us(table: TraceTable) -> float:
    return clock_bracket(rank_events(table, 0)).shift_ns / 1000


def test_a_clock_is_moved_into_its_bracket() -> None:
    result = clock_bracket(rank_events(rank(0), 0))  # kernels 5 us after launch; b ends 5 us before return
    assert (result.shift_ns, result.low_ns, result.high_ns) == (0.0, -4_000.0, 5_000.0)
    assert shift_us(rank(-50)) == 46.0  # kernel a: -35 -> 11, its launch began at 10
    assert shift_us(rank(+50)) == -45.0  # kernel b: 145 -> 100, the synchronization returned at 100


def test_launches_are_believed_before_waits() -> None:
    table = trace(
        call("cudaLaunchKernel", 10, 20, corr=1), kernel("a", 12, 90, corr=1), call("cudaDeviceSynchronize", 30, 40)
    )
    assert shift_us(table) == -1.0  # the wait asks for -50, the launch allows -1


def test_without_launches_or_waits_nothing_is_moved() -> None:
    assert shift_us(trace(op("aten::a", 0, 10), kernel("k", -100, -50))) == 0.0
    assert shift_us(rank(+50, sync=False)) == 0.0


def test_correction_moves_device_times_only_and_states_so() -> None:
    run = run_of(rank(-50))
    corrected = correct_clocks(run)
    before, after = run.tables[0].events, corrected.tables[0].events
    device = (before["device"] >= 0).to_numpy()
    moved = (after["start_ns"] - before["start_ns"]).to_numpy()
    assert set(moved[device]) == {46_000}
    assert set(moved[~device]) == {0}
    assert any("rank 0: +46.0 us" in w for w in corrected.warnings)
    assert not correct_clocks(run_of(rank(0))).warnings


@pytest.mark.parametrize("offset_us", [-72.0, -50.0, 0.0, 3.0, 50.0])
def test_after_correction_the_order_of_causes_holds(offset_us: float) -> None:
    nodes = build_graph(run_of(rank(offset_us))).nodes
    start = dict(zip(nodes["event_name"].astype(object), nodes["start_us"], strict=True))
    end = dict(zip(nodes["event_name"].astype(object), nodes["start_us"] + nodes["latency_us"], strict=True))
    assert start["a"] >= 11
    assert end["b"] <= end["cudaDeviceSynchronize"]
    assert np.isfinite(nodes.loc[nodes["node_type"] == "host", "latency_us"]).all()
