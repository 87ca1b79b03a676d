"""Bars for work that takes long: how far, how fast, how much longer. On stderr, and only on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from gnnperf.progress import Advance, watched_by
from gnnperf.report.text import time_text

PATIENCE_S = 2.0  # what is done before shows no bar
PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def bars_on_terminal(quiet: bool = False) -> AbstractContextManager[None]:
    """Show bars where a person looks."""
    return nullcontext() if quiet or not sys.stderr.isatty() else watched_by(Bars(Console(stderr=True)))


@dataclass
class Bars:
    """A bar per piece of work that lasts; several at a time share one display.

    Attributes:
        console: where they are drawn.
        clock: seconds.
    """

    console: Console
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        """No bar yet. Names of files are no markup."""
        self.shown = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(),
            TextColumn("{task.fields[words]}", markup=False), console=self.console, transient=True,
        )  # fmt: skip

    @contextmanager
    def task(self, what: str, total: float, unit: str) -> Iterator[Advance]:
        """A bar from `PATIENCE_S` on."""
        began_s, done, bar = self.clock(), 0.0, None

        def advance(amount: float) -> None:
            nonlocal done, bar
            done += amount
            took_s = self.clock() - began_s
            if bar is None and took_s >= PATIENCE_S:
                bar = self._opened(what, total)
            if bar is not None:
                self.shown.update(bar, completed=done, words=words(done, total, took_s, unit))

        try:
            yield advance
        finally:
            if bar is not None:
                self._closed(bar)

    def _opened(self, what: str, total: float) -> TaskID:
        if not self.shown.tasks:
            self.shown.start()
        return self.shown.add_task(what, total=total, words="")

    def _closed(self, bar: TaskID) -> None:
        self.shown.remove_task(bar)
        if not self.shown.tasks:
            self.shown.stop()


def words(done: float, total: float, took_s: float, unit: str) -> str:
    """How far, at which rate, how much longer at that rate."""
    rate = done / took_s if took_s > 0 else 0.0
    left = f", {time_text((total - done) / rate * 1e6)} left" if rate > 0 and total >= done else ""
    (scale, prefix), (rate_scale, rate_prefix) = _prefix(total), _prefix(rate)
    far = f"{done / scale:.3g} of {total / scale:.3g} {prefix}{unit}"
    return f"{far}, {rate / rate_scale:.3g} {rate_prefix}{unit}/s{left}"


def _prefix(value: float) -> tuple[float, str]:
    """What to divide by, and the prefix of the unit then."""
    return next((pair for pair in PREFIXES if value >= pair[0]), (1.0, ""))
