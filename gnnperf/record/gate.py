"""When a recording may begin: neighbors on the same hardware slow a machine down for seconds, then let it go again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from gnnperf.record.probe import drift

PATIENCE_S = 20.0


class Gate:
    """Opens when the machine is as fast as it has been at its best."""

    def __init__(self, max_drift: float, patience_s: float = PATIENCE_S) -> None:
        self._max_drift, self._patience_s = max_drift, patience_s
        self._best_us: list[float] = []  # of each core

    def wait(self, probe_us: Callable[[], Sequence[float]]) -> list[float]:
        """Probe until no core is slower than its best by more than `max_drift`, or patience ends; the last probe."""
        deadline = time.monotonic() + self._patience_s
        while True:
            found_us = list(probe_us())
            known_us = [*self._best_us, *found_us[len(self._best_us) :]]
            best_us = [min(pair) for pair in zip(known_us, found_us, strict=False)]
            self._best_us = [*best_us, *known_us[len(best_us) :]]
            if drift(best_us, found_us) <= self._max_drift or time.monotonic() > deadline:
                return found_us
