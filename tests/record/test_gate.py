"""The gate before a recording."""

from __future__ import annotations

from collections.abc import Sequence

from gnnperf.record.gate import Gate, fastest


def probe(*found: Sequence[float]) -> list[Sequence[float]]:
    """What the probe finds, one after another, the last first."""
    return list(reversed(found))


def test_it_waits_until_the_machine_is_as_fast_as_at_its_best() -> None:
    gate = Gate(max_drift=0.03, patience_s=60.0)
    assert gate.wait(probe([100.0, 100.0]).pop) == [100.0, 100.0]  # nothing better is known
    found = probe([104.0, 100.0], [100.0, 120.0], [102.0, 102.5], [0.0, 0.0])
    assert gate.wait(found.pop) == [102.0, 102.5]
    assert found == [[0.0, 0.0]]


def test_what_earlier_recordings_found_counts() -> None:
    gate = Gate(0.03, fastest([[100.0], [99.0, 101.0], [98.0, 103.0]]), patience_s=60.0)
    assert gate.wait(probe([110.0, 101.0], [99.0, 101.0]).pop) == [99.0, 101.0]


def test_patience_ends() -> None:
    gate = Gate(max_drift=0.03, patience_s=0.0)
    gate.wait(probe([100.0]).pop)
    assert gate.wait(probe([150.0], [140.0]).pop)[0] >= 140.0


def test_a_run_of_fewer_ranks_forgets_no_core() -> None:
    gate = Gate(max_drift=0.03, patience_s=60.0)
    gate.wait(probe([100.0, 100.0]).pop)
    assert gate.wait(probe([90.0]).pop) == [90.0]
    assert gate.wait(probe([92.0, 110.0], [92.0, 100.0]).pop) == [92.0, 100.0]
    assert gate.wait(probe([95.0], [91.0]).pop) == [91.0]
