"""Thresholds for CI: how long step B may be."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gnnperf.core import require
from gnnperf.report.compare.changes import Comparison
from gnnperf.report.text import time_text


@dataclass(frozen=True)
class Limits:
    """What step B may not exceed.

    Attributes:
        max_step_ms: the longest step; None: any.
        max_regression: how much longer than step A it may be, in percent; None: any.
    """

    max_step_ms: float | None = None
    max_regression: float | None = None

    def __post_init__(self) -> None:
        """Refuse what is no limit: NaN would let everything pass."""
        for name, value in (("--max-step-ms", self.max_step_ms), ("--max-regression", self.max_regression)):
            require(value is None or (math.isfinite(value) and value >= 0), name, value, "a number, 0 or more")

    def exceeded(self, found: Comparison) -> tuple[str, ...]:
        """A sentence for each limit that step B is beyond."""
        return self.sentences("step B", found.b.step_time_us, "step A", found.a.step_time_us)

    def sentences(self, step: str, step_us: float, before: str, before_us: float | None) -> tuple[str, ...]:
        """A sentence for each limit that a step is beyond.

        Args:
            step: what it is called.
            step_us: its time.
            before: what the step is called that it is compared with.
            before_us: its time; None: it is compared with none.
        """
        said = []
        if self.max_step_ms is not None and step_us > 1000.0 * self.max_step_ms:
            said.append(f"{step} takes {time_text(step_us)}, more than {self.max_step_ms:g} ms (--max-step-ms)")
        if self.max_regression is None or before_us is None:
            return tuple(said)
        longer_us = step_us - before_us
        if longer_us > self.max_regression / 100.0 * before_us:
            share = f"{100.0 * longer_us / before_us:.1f} %" if before_us > 0 else time_text(longer_us)
            said.append(
                f"{step} is {share} longer than {before}, more than {self.max_regression:g} % (--max-regression)"
            )
        return tuple(said)
