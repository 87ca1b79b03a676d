"""Values that are made again once memory has no space for them: data sets larger than memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
MAX_NODES = 500_000  # of all values in memory; the embedded data sets have fewer


class OnDemand(Generic[T]):
    """The value that `make` returns, for `num_nodes` nodes of graphs.

    Values that were used last stay in memory, until together they have more than MAX_NODES.
    """

    def __init__(self, make: Callable[[], T], num_nodes: int, value: T | None = None) -> None:
        self.make, self.num_nodes, self._value = make, num_nodes, value

    def __call__(self) -> T:
        """The value, made unless it is in memory."""
        value = self.make() if self._value is None else self._value
        self._value = value
        _in_memory.pop(self, None)  # the last used is the last of the dictionary
        _in_memory[self] = self.num_nodes
        while sum(_in_memory.values()) > MAX_NODES and (oldest := next(iter(_in_memory))) is not self:
            del _in_memory[oldest]
            oldest._value = None
        return value

    def __reduce__(self) -> tuple[object, ...]:
        """Processes exchange how a value is made, not the value."""
        return OnDemand, (self.make, self.num_nodes)


_in_memory: WeakKeyDictionary[OnDemand, int] = WeakKeyDictionary()
