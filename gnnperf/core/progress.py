"""Progress of long work. The worker reports it; `watched_by` sets what shows it.

with task("reading trace.json", len(data), "B") as advance:
    advance(len(stretch))
for rank in each(ranks, "building the graph", "ranks"):
    ...
"""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from gnnperf.core.terminal import console

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


Advance = Callable[[float], None]  # by how much more is done
Item = TypeVar("Item")


_watcher: "ContextVar[Bars | None]" = ContextVar("watcher", default=None)


@contextmanager
def watched_by(watcher: "Bars") -> Iterator[None]:
    """Work inside reports to `watcher`."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def task(what: str, total: float, unit: str) -> AbstractContextManager[Advance]:
    """Work of `total` units, reported as it advances."""
    watcher = _watcher.get()
    return nullcontext(lambda amount: None) if watcher is None else watcher.task(what, total, unit)


def each(items: Sequence[Item], what: str, unit: str) -> Iterator[Item]:
    """The items; one is done when the next is requested."""
    with task(what, len(items), unit) as advance:
        for item in items:
            yield item
            advance(1.0)


# Bars for work that takes long: how far, and how much longer. On stderr, and only on a terminal. What draws is loaded
# with the first bar: a command that is quick never waits for it.

PATIENCE_S = 2.0  # what is done before shows no bar


@contextmanager
def bars_on_terminal(quiet: bool = False) -> Iterator[None]:
    """Show bars where a person looks; they are gone when this ends, however it does."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    bars = Bars(partial(console, stderr=True))
    try:
        with watched_by(bars):
            yield
    finally:
        bars.close()


class Bars:
    """A bar per piece of work that lasts; several share one display, on the console that the first one makes."""

    def __init__(self, console: "Callable[[], Console]") -> None:
        self.console = console
        self.shown: Progress | None = None
        self._lock = threading.RLock()

    @contextmanager
    def task(self, what: str, total: float, unit: str) -> Iterator[Advance]:
        """Work that has a bar once it has lasted for `PATIENCE_S`."""
        done = 0.0
        bars: list[TaskID] = []  # none, or one

        def show() -> None:
            with self._lock:
                if not patience.finished.is_set():  # the work goes on
                    bars.append(self._display().add_task(what, total=total, completed=int(done), unit=unit))

        def advance(amount: float) -> None:
            nonlocal done
            with self._lock:  # several threads may share a task
                done += amount
                if self.shown is not None and bars:
                    self.shown.update(bars[0], completed=done)

        patience = threading.Timer(PATIENCE_S, show)
        patience.daemon = True
        patience.start()
        try:
            yield advance
        finally:
            with self._lock:
                patience.cancel()
                if self.shown is not None and bars:
                    self.shown.remove_task(bars[0])
                if self.shown is not None and not self.shown.tasks:
                    self.close()

    def close(self) -> None:
        """Take everything away."""
        with self._lock:
            if self.shown is not None:
                self.shown.stop()
            self.shown = None

    def _display(self) -> "Progress":
        """Names of files are no markup. What is printed meanwhile goes above the bars, if it goes to a terminal."""
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        if self.shown is None:
            far = "{task.completed:,.0f} of {task.total:,.0f} {task.fields[unit]}"
            columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn(far, markup=False))
            self.shown = Progress(*columns, TimeRemainingColumn(), console=self.console(), transient=True,
                                  redirect_stdout=sys.stdout.isatty())  # fmt: skip
            self.shown.start()
        return self.shown
