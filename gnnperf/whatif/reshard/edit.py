"""The edit: tables of a recorded run are placed otherwise.

What a rank does for a part of a table is copied from what was recorded for one: for the same table if it was divided
alike, else for the table of that kind whose part is nearest in size. Shapes, FLOPs, bytes and messages become those of
the new part; latencies are left to the predictor. A kind of division that the recording does not show is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import log

import numpy as np

from gnnperf.core import InputError, NodeType
from gnnperf.generate import Placement, Table
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.edit import Edited
from gnnperf.whatif.reshard.copies import Change, Copy, resized
from gnnperf.whatif.reshard.joins import join_changes
from gnnperf.whatif.reshard.lists import resized_lists
from gnnperf.whatif.reshard.messages import with_messages
from gnnperf.whatif.reshard.parts import Model, Part
from gnnperf.whatif.reshard.rewrite import rewrite
from gnnperf.whatif.reshard.sizes import Reshape, sizes_of
from gnnperf.whatif.reshard.units import LOOKUPS, Block, Blocks, Lane, Unit, blocks, lane_of

UNKNOWN = (
    "how caches are shared by tables that were on different ranks",
    "small ops of the host that cut messages up and join them: they stay as many as recorded",
)


@dataclass(frozen=True)
class PlaceTables:
    """Tables on other ranks, or divided otherwise.

    Attributes:
        tables: all of the model, in the order in which ranks look them up.
        before: where they are in the recording.
        after: where they shall be.
        batch: samples per rank.
    """

    tables: tuple[Table, ...]
    before: Placement
    after: Placement
    batch: int

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Move the work of the tables.

        Raises:
            InputError: the graph does not look these tables up as `before` says, `after` cannot be, or it needs work
                of a kind that the graph does not show.
        """
        return Recorded.read(graph, Model(self.tables, len(graph.ranks), self.batch), self.before).placed(self.after)


@dataclass(frozen=True)
class Recorded:
    """A graph whose work for tables has been found: read once, placed many times.

    Attributes:
        graph: as recorded.
        model: its tables.
        before: where they are.
        steps: per step, the lanes that look up and their units.
    """

    graph: ExecutionGraph
    model: Model
    before: Placement
    steps: tuple[tuple[tuple[Lane, ...], Blocks], ...]

    @classmethod
    def read(cls, graph: ExecutionGraph, model: Model, before: Placement) -> Recorded:
        """Find the units.

        Raises:
            InputError: the graph does not look these tables up as `before` says.
        """
        model.check(before)
        held = [model.parts(before, rank) for rank in range(model.ranks)]
        lanes = [tuple(lane_of(graph, rank, step.step) for rank in graph.ranks) for step in graph.steps]
        return cls(graph, model, before, tuple((own, blocks(own, held)) for own in lanes))

    def placed(self, after: Placement) -> Edited:
        """The graph with the tables elsewhere.

        Raises:
            InputError: `after` cannot be, or needs work of a kind that the graph does not show.
        """
        self.model.check(after)
        changes = [change for lanes, found in self.steps for change in self._changes(lanes, found, after)]
        edited, came_from, moved = rewrite(self.graph, [change.stretch for change in changes])
        nodes, other_shapes = resized(edited.nodes, moved, changes)
        nodes, listed = resized_lists(nodes, self.model, self.before, after)
        nodes, sent = with_messages(edited.name, nodes, self.model, self.before, after)
        touched = other_shapes | listed | sent
        works = touched & (nodes["node_type"] != NodeType.HOST).to_numpy()
        nodes = nodes.assign(latency_us=nodes["latency_us"].mask(works))
        return Edited(replace(edited, nodes=nodes), moved | touched, came_from, UNKNOWN)

    def _changes(self, lanes: Sequence[Lane], found: Blocks, after: Placement) -> Iterator[Change]:
        """What changes in one step."""
        wanted = [self.model.parts(after, rank) for rank in range(self.model.ranks)]
        for block, units in found.items():
            known = [unit for rank_units in units for unit in rank_units]
            for there, parts in zip(units, wanted, strict=True):
                yield _block(there, parts[::-1] if block is Block.BACKWARD else parts, known, self.model)
        yield from join_changes(lanes, self.model, self.before, after)


def _block(there: Sequence[Unit], parts: Sequence[Part], known: Sequence[Unit], model: Model) -> Change:
    """A block of one lane with the work for other parts.

    The gap before a block is longer than those inside: the first copy gets the gap that the block had.
    """
    sources = [_nearest(known, part, there[0].lane.rank) for part in parts]
    copies = tuple(
        Copy(_with_gap(unit, _inside(unit, known) if place else there[0]), _resize(unit, part, model))
        for place, (unit, part) in enumerate(zip(sources, parts, strict=True))
    )
    return Change(int(there[0].nodes[0]), int(there[-1].nodes[-1]) + 1, copies)


def _with_gap(unit: Unit, other: Unit) -> np.ndarray:
    """The nodes of a unit after the gap of another."""
    if not (unit.has_gap and other.has_gap):
        return unit.nodes
    return np.r_[other.nodes[:1], unit.nodes[1:]]


def _inside(unit: Unit, known: Sequence[Unit]) -> Unit:
    """The unit itself, or the nearest to it that no block begins with."""
    others = [each for each in known if not each.head] if unit.head else []
    return min(others, key=lambda each: _distance(each.part, unit.part), default=unit)


def _nearest(known: Sequence[Unit], part: Part, rank: int) -> Unit:
    """The recorded unit to copy for a part: of the same table if it was divided alike, there if it was there.

    Raises:
        InputError: the recording shows no table divided like that.
    """
    alike = [unit for unit in known if unit.part.split is part.split]
    if not alike:
        shown = ", ".join(sorted({str(unit.part.split) for unit in known}))
        raise InputError(f"table {part.table} by {part.split}", where="a placement of tables",
                         allowed=f"what the recording shows: {shown}",
                         remedy="record a placement that has a table of each kind")  # fmt: skip

    def order(unit: Unit) -> tuple[bool, bool, float, bool]:
        same, elsewhere = unit.part.table == part.table, unit.lane.rank != rank
        return (not same, same and elsewhere, _distance(unit.part, part), elsewhere)

    return min(alike, key=order)


def _distance(one: Part, other: Part) -> float:
    """How far apart in size."""
    pairs = ((one.rows, other.rows), (one.columns, other.columns), (one.lookups + 1, other.lookups + 1))
    return sum(abs(log(a / b)) for a, b in pairs)


def _resize(unit: Unit, part: Part, model: Model) -> Reshape | None:
    if unit.part == part:
        return None
    old = sizes_of(unit.part, unit.recorded_lookups)
    return Reshape(old, sizes_of(part), model.batch * model.ranks, model.ranks, unit.names[-1] in LOOKUPS)
