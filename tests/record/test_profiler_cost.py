"""The profiler's own cost, measured on this machine."""

import time

import pytest
import torch

from gnnperf.graph import ProfilerCost, cost_of_card
from gnnperf.record import profiler_cost
from gnnperf.record.profiler_cost import measure


@pytest.fixture(scope="module")
def measured() -> dict[str, float]:
    if torch.cuda.is_available():
        torch.cuda.init()  # the calls of a process that has no CUDA context cost nothing
    return measure()


def test_every_kind_of_event_has_a_cost_of_microseconds(measured: dict[str, float]) -> None:
    assert 0.0 <= measured["op_us"] < 100.0  # about 1 on a quiet machine
    assert 0.0 <= measured["range_us"] < 100.0
    assert 1.0 < measured["step_us"] < 10_000.0
    assert (measured["call_us"] > 0.0) == torch.cuda.is_available()


def test_it_rests_on_hundreds_of_op_events(measured: dict[str, float]) -> None:
    # per layer and step at least: linear, t, addmm, relu forward; as many backward; an update
    assert measured["op_events"] > 10 * 10


def test_a_card_transfers_it(measured: dict[str, float]) -> None:
    result = cost_of_card({"ranks": [{"profiler_cost": measured}]})
    assert result == ProfilerCost(
        **{kind: measured[kind] for kind in ("op_us", "range_us", "call_us", "step_us")},
        provenance=result.provenance if result else "",
    )


def test_it_leaves_random_numbers_gradients_and_modes_isolated() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    with torch.no_grad():
        measure()
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.rand(2), expected)


def test_a_section_is_timed_once_per_step(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = iter(range(0, 10**9, 1_000))  # every look at the clock takes 1 us
    monkeypatch.setattr(time, "thread_time_ns", lambda: next(now_ns))
    runs: list[str] = []
    result = profiler_cost._run({"ops": lambda: runs.append("ops"), "ranges": lambda: runs.append("ranges")}, 3)
    assert result == {"ops": [1.0] * 3, "ranges": [1.0] * 3}
    assert runs == ["ops", "ranges"] * 3
