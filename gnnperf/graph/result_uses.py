"""Which ops may use what a collective returns: those that take a tensor of its shape, or of its size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import msgspec
import numpy as np

from gnnperf.graph.event_columns import RankEvents, by_category
from gnnperf.graph.host import Pieces

Shape = tuple[int, ...]

_FIRST = 3  # uses that are looked at


class Uses:
    """Which ops take tensors like a collective's result: of its shape, or, where none does, of as many elements.

    Args:
        events, pieces: of one rank.
        t1: [num_pieces] bool, gaps.
        step: [num_pieces] step of each piece.
    """

    def __init__(self, events: RankEvents, pieces: Pieces, t1: np.ndarray, step: np.ndarray) -> None:
        dims = events.table.events["input_dims"]
        self._codes = dims.cat.codes.to_numpy()
        self._arguments = [msgspec.json.decode(text) for text in dims.cat.categories]
        self._by_shape = [set(_tensors(arguments)) for arguments in self._arguments]
        self._by_size = [{prod(shape) for shape in shapes} for shapes in self._by_shape]
        names = events.table.events["name"]
        uses = ~by_category(names, lambda n: n.startswith("c10d::") or "empty" in n or "_like" in n, bool)
        op = np.flatnonzero(~t1 & (pieces.op >= 0))
        self._pieces = op[uses[pieces.op[op]] & (self._codes[pieces.op[op]] >= 0)]
        self._of_piece, self._step = self._codes[pieces.op[self._pieces]], step
        self._found: dict[frozenset[Any], np.ndarray] = {}

    def sizes(self, event: int) -> set[int]:
        """Numbers of elements of an event's tensors."""
        code = self._codes[event]
        return self._by_size[code] if code >= 0 else set()

    def results(self, op: int) -> set[Shape]:
        """Shapes of what a collective's op returns: its first argument that has a shape, or the tensors in it."""
        code = self._codes[op]
        arguments = self._arguments[code] if code >= 0 else []
        return set(_tensors(next((a for a in arguments if a), [])))

    def after(self, op: int, issuer: int) -> list[int]:
        """The first pieces after an issue, in its step, that take something like the result."""
        results = self.results(op)
        for wanted, known in ((results, self._by_shape), ({prod(shape) for shape in results}, self._by_size)):
            found = self._taking(frozenset(wanted), known)
            found = found[np.searchsorted(found, issuer, side="right") :][:_FIRST]
            found = found[self._step[found] == self._step[issuer]]
            if len(found):
                return found.tolist()
        return []

    def _taking(self, wanted: frozenset[Any], known: Sequence[set[Any]]) -> np.ndarray:
        """Pieces whose op takes one of these shapes, or sizes."""
        if wanted not in self._found:
            matching = np.array([not wanted.isdisjoint(of_text) for of_text in known], dtype=bool)
            self._found[wanted] = self._pieces[matching[self._of_piece]] if len(matching) else self._pieces[:0]
        return self._found[wanted]


def _tensors(arguments: object) -> Iterator[Shape]:
    """The shapes in an op's arguments, lists of tensors included; scalars have none."""
    if not isinstance(arguments, list) or not arguments:
        return
    if all(isinstance(d, (int, float)) for d in arguments):
        yield tuple(int(d) for d in arguments)
        return
    for part in arguments:
        yield from _tensors(part)
