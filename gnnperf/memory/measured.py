"""The measured peak in a run's card, and what of a prediction it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gnnperf.memory.peak import PeakMemory

_ADDED_UP = "profiler allocations"  # record/peak_memory.py, HostMemory
_METHODS = (_ADDED_UP, "max_memory_allocated")


@dataclass(frozen=True)
class Measured:
    """One rank's peak as its recorder counted it.

    Attributes:
        method: how; decides what was counted.
        peak_bytes: the most of a step.
        held_between_steps_bytes: of it what stays; None where the method does not tell.
    """

    method: str
    peak_bytes: int
    held_between_steps_bytes: int | None = None

    def counted_bytes(self, peak: PeakMemory) -> int:
        """Of a prediction, what this method counts: on a CPU what is asked for and Python knows; CUDA counts all."""
        return peak.as_recorded_bytes if self.method == _ADDED_UP else peak.peak_bytes

    def error(self, peak: PeakMemory) -> float:
        """Signed relative error of a prediction: counted / measured - 1."""
        return self.counted_bytes(peak) / self.peak_bytes - 1.0


def measured_peaks(card: Mapping[str, object] | None) -> dict[int, Measured]:
    """Rank -> measured peak; without those whose card says none."""
    found: dict[int, Measured] = {}
    ranks = (card or {}).get("ranks")
    for entry in ranks if isinstance(ranks, list) else ():
        facts = entry.get("peak_memory") if isinstance(entry, dict) else None
        if isinstance(facts, dict) and isinstance(facts.get("peak_bytes"), int) and facts["peak_bytes"] > 0:
            held = facts.get("held_between_steps_bytes")
            method = facts.get("method")
            if isinstance(entry.get("rank"), int) and method in _METHODS:
                found[entry["rank"]] = Measured(method, facts["peak_bytes"], held if isinstance(held, int) else None)
    return found
