"""Shapes and costs of a call that serves another part of a table than the recorded one.

before the lookup    [ranks, B*P] and [ranks*B, P] are indices of one table: P changes
lookup, gradient,    [rows, D] the part, [n, D] and [n] what is looked up, [.., D] vectors
update
"""

from __future__ import annotations

from dataclasses import dataclass

from gnnperf.generate import Argument, Shape, each, parse
from gnnperf.whatif.recost import Cost, with_shapes
from gnnperf.whatif.reshard.parts import Part
from gnnperf.whatif.reshard.units import LOOKUPS


@dataclass(frozen=True)
class Sizes:
    """The numbers that shapes of a part are made of.

    Attributes:
        rows, columns: of the part.
        pooling: indices per sample.
        lookups: rows looked up in a step.
    """

    rows: int
    columns: int
    pooling: int
    lookups: int


def sizes_of(part: Part, lookups: float | None = None) -> Sizes:
    """Of a part; `lookups` as recorded, None: as expected."""
    return Sizes(part.rows, part.columns, int(part.pooling), round(part.lookups if lookups is None else lookups))


@dataclass(frozen=True)
class Reshape:
    """From the recorded part to another.

    Attributes:
        old, new: sizes of both.
        samples: of all ranks.
        ranks: number of ranks.
        looks: whether calls belong to the forward, up to the lookup.
    """

    old: Sizes
    new: Sizes
    samples: int
    ranks: int
    looks: bool

    def arguments(self, name: str, dims: str) -> tuple[Argument, ...]:
        """Shapes of a call."""
        change = self._of_indices if self.looks and name not in LOOKUPS else self._of_part
        return tuple(each(argument, change) for argument in parse(dims))

    def _of_indices(self, shape: Shape) -> Shape:
        batch = self.samples // self.ranks
        if shape == (self.ranks, batch * self.old.pooling):
            return (self.ranks, batch * self.new.pooling)
        return (self.samples, self.new.pooling) if shape == (self.samples, self.old.pooling) else shape

    def _of_part(self, shape: Shape) -> Shape:
        if shape == (self.old.lookups,):
            return (self.new.lookups,)
        if len(shape) != 2:
            return shape
        if shape[1] == self.old.lookups and shape[0] == 1:
            return (1, self.new.lookups)
        if shape[1] != self.old.columns:
            return shape
        first = {self.old.rows: self.new.rows, self.old.lookups: self.new.lookups}.get(shape[0], shape[0])
        return (first, self.new.columns)

    def cost(self, name: str, dims: str, new: tuple[Argument, ...], recorded: Cost, dtype: str | None) -> Cost:
        """FLOPs and bytes of the call with other shapes."""
        old = parse(dims)
        if old == ((self.old.rows, self.old.columns), (self.old.rows, self.old.columns), ()):
            factor = self.new.lookups * self.new.columns / (self.old.lookups * self.old.columns)
            return Cost(recorded.flops * factor, recorded.bytes * factor)  # a sparse sum: rows looked up count
        if new == old:
            return recorded
        return with_shapes(name, old, new, recorded, dtype, self.new.lookups / self.old.lookups)
