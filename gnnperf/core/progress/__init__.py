"""How far long work is. Who works says it; whether anybody shows it is somebody else's choice (`watched_by`).

with task("reading trace.json", len(data), "B") as advance:
    advance(len(stretch))
for rank in each(ranks, "building the graph", "ranks"):
    ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar

Advance = Callable[[float], None]  # by how much more is done
Item = TypeVar("Item")


class Watcher(Protocol):
    """Who is given."""

    def task(self, what: str, total: float, unit: str) -> AbstractContextManager[Advance]:
        """Work begins; it ends with the context, done or not."""
        ...


class _NoOne:
    """Nothing is shown."""

    @contextmanager
    def task(self, what: str, total: float, unit: str) -> Iterator[Advance]:
        yield lambda amount: None


_watcher: ContextVar[Watcher] = ContextVar("watcher", default=_NoOne())  # noqa: B039  # it has no state


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """What works inside tells `watcher`."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def task(what: str, total: float, unit: str) -> AbstractContextManager[Advance]:
    """Work of `total` units, given as it advances."""
    return _watcher.get().task(what, total, unit)


def each(items: Sequence[Item], what: str, unit: str) -> Iterator[Item]:
    """The items; one is done when the next is requested."""
    with task(what, len(items), unit) as advance:
        for item in items:
            yield item
            advance(1.0)
