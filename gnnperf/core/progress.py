"""Progress of long work. The worker reports it; `watched_by` sets what shows it.

with task("reading trace.json", len(data), "B") as advance:
    advance(len(stretch))
for rank in each(ranks, "building the graph", "ranks"):
    ...
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from gnnperf.core.terminal import console

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


Advance = Callable[[float], None]  # by how much more is done
Item = TypeVar("Item")


_watcher: ContextVar[Bars | None] = ContextVar("watcher", default=None)


@contextmanager
def watched_by(watcher: Bars) -> Iterator[None]:
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


# Bars for work that takes long: how far, how fast, how much longer. On stderr, and only on a terminal. A thread looks
# at what is under way a few times a second, so work that has not advanced yet shows its bar as well. What draws is
# loaded with the first bar: a command that is quick never waits for it.

PATIENCE_S = 2.0  # what is done before shows no bar
LOOK_S = 0.2
PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
MINUTE_S, HOUR_S = 60.0, 3600.0


@contextmanager
def bars_on_terminal(quiet: bool = False) -> Iterator[None]:
    """Show bars where a person looks; they are gone when this ends, however it does."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    bars, over = Bars(partial(console, stderr=True)), threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_S):
            bars.look()

    watching = threading.Thread(target=watch, name="progress", daemon=True)
    watching.start()
    try:
        with watched_by(bars):
            yield
    finally:
        over.set()
        watching.join()
        bars.close()


@dataclass(eq=False)
class Work:
    """What is under way, and its bar once it has one."""

    what: str
    total: float
    unit: str
    began_s: float
    done: float = 0.0
    bar: TaskID | None = None


class Bars:
    """A bar per piece of work that lasts; several share one display, on the console that the first one makes."""

    def __init__(self, console: Callable[[], Console], clock: Callable[[], float] = time.monotonic) -> None:
        self.console, self.clock = console, clock
        self.under_way: list[Work] = []
        self.shown: Progress | None = None
        self._lock = threading.RLock()

    @contextmanager
    def task(self, what: str, total: float, unit: str) -> Iterator[Advance]:
        """Work that `look` sees until it ends."""
        work = Work(what, total, unit, self.clock())
        self.under_way.append(work)

        def advance(amount: float) -> None:
            with self._lock:  # several threads may share a task
                work.done += amount

        try:
            yield advance
        finally:
            self._end(work)

    def look(self) -> None:
        """Draw what has lasted for `PATIENCE_S`."""
        with self._lock:
            now_s = self.clock()
            for work in self.under_way:
                if now_s - work.began_s >= PATIENCE_S:
                    self._draw(work, now_s - work.began_s)
            if self.shown is not None:
                self.shown.refresh()

    def close(self) -> None:
        """Take everything away."""
        with self._lock:
            if self.shown is not None:
                self.shown.stop()
            self.shown = None

    def _draw(self, work: Work, took_s: float) -> None:
        if self.shown is None:
            self.shown = _display(self.console())
            self.shown.start()
        if work.bar is None:
            work.bar = self.shown.add_task(work.what, total=work.total, words="")
        self.shown.update(work.bar, completed=work.done, words=words(work.done, work.total, took_s, work.unit))

    def _end(self, work: Work) -> None:
        with self._lock:
            self.under_way.remove(work)
            if self.shown is not None and work.bar is not None:
                self.shown.remove_task(work.bar)
                if not self.shown.tasks:
                    self.close()


def _display(console: Console) -> Progress:
    """Names of files are no markup. What is printed meanwhile goes above the bars, if it goes to a terminal at all."""
    from rich.progress import BarColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}", markup=False), BarColumn(),
        TextColumn("{task.fields[words]}", markup=False), console=console, transient=True, auto_refresh=False,
        redirect_stdout=sys.stdout.isatty(),
    )  # fmt: skip


def words(done: float, total: float, took_s: float, unit: str) -> str:
    """How far, at which rate, how much longer at that rate."""
    rate = done / took_s if took_s > 0 else 0.0
    left = f", {duration((total - done) / rate)} left" if rate > 0 and total >= done else ""
    (scale, prefix), (rate_scale, rate_prefix) = _prefix(total), _prefix(rate)
    far = f"{done / scale:.3g} of {total / scale:.3g} {prefix}{unit}"
    return f"{far}, {rate / rate_scale:.3g} {rate_prefix}{unit}/s{left}"


def duration(seconds: float) -> str:
    """As people say it: no more than two units."""
    if seconds < MINUTE_S:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < HOUR_S:
        return f"{seconds // MINUTE_S:.0f} min {seconds % MINUTE_S:.0f} s"
    return f"{seconds // HOUR_S:.0f} h {seconds % HOUR_S / MINUTE_S:.0f} min"


def _prefix(value: float) -> tuple[float, str]:
    """What to divide by, and the prefix of the unit then; things that are counted have none."""
    return next((pair for pair in PREFIXES if value >= pair[0]), (1.0, ""))
