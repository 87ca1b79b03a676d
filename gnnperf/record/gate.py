"""When a recording may begin: neighbors on the same hardware slow a machine down for seconds, then let it go again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest

from gnnperf.record.probe import drift

PATIENCE_S = 60.0


class Gate:
    """Opens when the machine is as fast as it has been at its best.

    Args:
        max_drift: how much slower it may be.
        best_us: [num_cores] the fastest probe of each core so far; fewer, where nothing is known.
        patience_s: how long it stays closed at most.
    """

    def __init__(self, max_drift: float, best_us: Sequence[float] = (), patience_s: float = PATIENCE_S) -> None:
        self._max_drift, self._patience_s = max_drift, patience_s
        self._best_us = list(best_us)

    def wait(self, probe_us: Callable[[], Sequence[float]]) -> list[float]:
        """Probe until no core is slower than its best by more than `max_drift`, or patience ends; the last probe."""
        deadline = time.monotonic() + self._patience_s
        while True:
            found_us = list(probe_us())
            self._best_us = fastest([self._best_us, found_us])
            if drift(self._best_us[: len(found_us)], found_us) <= self._max_drift or time.monotonic() > deadline:
                return found_us


def fastest(probes_us: Iterable[Sequence[float]]) -> list[float]:
    """[num_cores] of each core over probes, which may be of fewer cores."""
    return [min(us for us in of_core if us is not None) for of_core in zip_longest(*probes_us)]
