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
import pandas as pd

from gnnperf.core import InputError, NodeType, Phase
from gnnperf.generate import Argument, Placement, Shape, Table, each, parse, text
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.costs import Cost, with_shapes
from gnnperf.whatif.edit import Edited, is_type
from gnnperf.whatif.reshard.joins import Change, Copy, join_changes, resized, rewrite
from gnnperf.whatif.reshard.units import (
    INDEX_BYTES,
    LOOKUPS,
    VALUE_BYTES,
    Block,
    Blocks,
    Lane,
    Model,
    Part,
    Traffic,
    Unit,
    blocks,
    index_traffic,
    lane_of,
    vector_traffic,
)

# Shapes and costs of a call that serves another part of a table than the recorded one.
#
# before the lookup    [ranks, B*P] and [ranks*B, P] are indices of one table: P changes
# lookup, gradient,    [rows, D] the part, [n, D] and [n] what is looked up, [.., D] vectors
# update


@dataclass(frozen=True)
class Sizes:
    """The numbers that shapes of a part are made of."""

    rows: int  # rows, columns: of the part
    columns: int
    pooling: int  # indices per sample
    lookups: int  # rows looked up in a step


def sizes_of(part: Part, lookups: float | None = None) -> Sizes:
    """Of a part; `lookups` as recorded, None: as expected."""
    return Sizes(part.rows, part.columns, int(part.pooling), round(part.lookups if lookups is None else lookups))


@dataclass(frozen=True)
class Reshape:
    """From the recorded part to another."""

    old: Sizes  # old, new: sizes of both
    new: Sizes
    samples: int  # of all ranks
    ranks: int  # number of ranks
    looks: bool  # whether calls belong to the forward, up to the lookup

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


# Calls that put all tables' data one after another: they are as long as the lists they take.
#
# forward    cat of indices per rank and table, cat of own vectors
# backward   cat of the gradients that go to each rank (the last rank first), cat of all of them

CAT = "aten::cat"
Listed = tuple[Phase, tuple[Shape, ...]]


def resized_lists(
    nodes: pd.DataFrame, model: Model, before: Placement, after: Placement
) -> tuple[pd.DataFrame, np.ndarray]:
    """The nodes with the lists of another placement; [num_nodes] bool: whose changed."""
    dims, moved = nodes["input_dims"].astype(object).to_numpy(copy=True), nodes["bytes"].to_numpy(copy=True)
    changed = np.zeros(len(nodes), dtype=bool)
    calls = nodes.loc[(nodes["op_name"] == CAT) & nodes["input_dims"].notna(), ["rank", "step", "phase"]]
    for (rank, _), own in calls.groupby(["rank", "step"]):
        phases = own["phase"].astype(str).to_numpy()
        old, new = list(_lists(model, before, int(str(rank)))), list(_lists(model, after, int(str(rank))))
        for node, phase in zip(own.index.to_numpy(), phases, strict=True):
            place = next(
                (i for i, (when, shapes) in enumerate(old) if when == phase and _text(shapes) == dims[node]), None
            )
            if place is None:
                continue
            (_, was), (_, is_now) = old.pop(place), new.pop(place)
            dims[node], moved[node] = _text(is_now), moved[node] * _elements(is_now) / _elements(was)
            changed[node] = was != is_now
    return nodes.assign(input_dims=pd.Categorical(dims), bytes=moved), changed


def _lists(model: Model, placement: Placement, rank: int) -> Iterator[Listed]:
    """In the order of the calls on a rank."""
    parts = [model.parts(placement, other) for other in range(model.ranks)]
    batch = model.batch
    yield Phase.FORWARD, tuple((int(batch * part.pooling),) for own in parts for part in own)
    yield Phase.FORWARD, tuple((batch * model.ranks, part.columns) for part in parts[rank])
    for own in reversed(parts):
        yield Phase.BACKWARD, tuple((batch, part.columns) for part in own)
    yield Phase.BACKWARD, tuple((batch * sum(part.columns for part in own),) for own in parts)


def _text(shapes: tuple[Shape, ...]) -> str:
    return text((shapes, ()))


def _elements(shapes: tuple[Shape, ...]) -> float:
    return float(sum(np.prod(shape) for shape in shapes))


# Messages of the exchanges around lookups: indices to the tables, vectors to the samples, gradients back.

EXCHANGE = "all_to_all"
NEARLY = 0.01  # relative


def with_messages(
    name: str, nodes: pd.DataFrame, model: Model, before: Placement, after: Placement
) -> tuple[pd.DataFrame, np.ndarray]:
    """The nodes with the messages of another placement; [num_nodes] bool: whose changed.

    Raises InputError: the graph `name` has other exchanges than those of `before`.
    """
    old, new = exchanges(model, before), exchanges(model, after)
    sent = nodes["message_bytes"].to_numpy(copy=True)
    mine = nodes[(nodes["collective"] == EXCHANGE) & nodes["step"].ge(0)]
    for (step, rank, kind), own in mine.groupby(["step", "rank", "node_type"], observed=True, sort=False):
        ids = own.index.to_numpy()
        per_exchange = np.array_split(ids, len(ids)) if kind == NodeType.COLLECTIVE else np.split(ids, len(ids) // 2)
        phases = [str(nodes["phase"].iloc[each[0]]) for each in per_exchange]
        if phases != [str(phase) for phase, _, _ in old]:
            raise InputError(f"{len(phases)} exchanges ({', '.join(phases)}) in step {step}", where=f"graph {name!r}",
                             allowed="two in the forward (indices, vectors), one in the backward")  # fmt: skip
        for rows, (_, item, was), (_, _, now) in zip(per_exchange, old, new, strict=True):
            even = kind == NodeType.COLLECTIVE
            expected, wanted = ((t.even if even else t.of_rank(int(str(rank)))) * item for t in (was, now))
            if abs(sent[rows[0]] / expected - 1.0) > NEARLY:
                raise InputError(f"an exchange of {sent[rows[0]]:.0f} bytes", where=f"graph {name!r}, step {step}",
                                 allowed=f"{expected:.0f} bytes, with the tables placed as is said")  # fmt: skip
            sent[rows] = wanted
    changed = ~np.isclose(sent, nodes["message_bytes"].to_numpy(), equal_nan=True)
    return nodes.assign(message_bytes=sent), changed


def exchanges(model: Model, placement: Placement) -> list[tuple[Phase, float, Traffic]]:
    """Phase, bytes per element and traffic of each exchange of a step, in order."""
    vectors = vector_traffic(model, placement)
    return [(Phase.FORWARD, INDEX_BYTES, index_traffic(model, placement)), (Phase.FORWARD, VALUE_BYTES, vectors),
            (Phase.BACKWARD, VALUE_BYTES, Traffic(vectors.sent.T))]  # fmt: skip


UNKNOWN = (
    "how caches are shared by tables that were on different ranks",
    "small ops of the host that cut messages up and join them: they stay as many as recorded",
)


@dataclass(frozen=True)
class PlaceTables:
    """Tables on other ranks, or divided otherwise."""

    tables: tuple[Table, ...]  # all of the model, in the order in which ranks look them up
    before: Placement  # where they are in the recording
    after: Placement  # where they shall be
    batch: int  # samples per rank

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Apply the edit."""
        return Recorded.read(graph, Model(self.tables, len(graph.ranks), self.batch), self.before).placed(self.after)


@dataclass(frozen=True)
class Recorded:
    """A graph whose work for tables has been found: read once, placed many times."""

    graph: ExecutionGraph  # as recorded
    model: Model  # its tables
    before: Placement  # where they are
    steps: tuple[tuple[tuple[Lane, ...], Blocks], ...]  # per step, the lanes that look up and their units

    @classmethod
    def read(cls, graph: ExecutionGraph, model: Model, before: Placement) -> Recorded:
        """Find the units. Raises InputError: the graph does not look these tables up as `before` says."""
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
        changes = [change for lanes, result in self.steps for change in self._changes(lanes, result, after)]
        changes.sort(key=lambda change: change.begin)
        edited, came_from, moved = rewrite(self.graph, changes)
        nodes, other_shapes = resized(edited.nodes, moved, changes)
        nodes, listed = resized_lists(nodes, self.model, self.before, after)
        nodes, sent = with_messages(edited.name, nodes, self.model, self.before, after)
        touched = other_shapes | listed | sent
        nodes = nodes.assign(latency_us=nodes["latency_us"].mask(touched & ~is_type(edited, NodeType.HOST)))
        return Edited(replace(edited, nodes=nodes), moved | touched, came_from, UNKNOWN)

    def _changes(self, lanes: Sequence[Lane], result: Blocks, after: Placement) -> Iterator[Change]:
        """What changes in one step."""
        wanted = [self.model.parts(after, rank) for rank in range(self.model.ranks)]
        for block, units in result.items():
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

    Raises InputError: the recording shows no table divided like that.
    """
    alike = [unit for unit in known if unit.part.split is part.split]
    if not alike:
        shown = ", ".join(sorted({str(unit.part.split) for unit in known}))
        raise InputError(f"table {part.table} by {part.split}", where="a placement of tables",
                         allowed=f"what the recording shows: {shown}",
                         remedy="record a placement that has a table of each kind")  # fmt: skip

    def order(unit: Unit) -> tuple[bool, bool, float, bool]:
        same, external = unit.part.table == part.table, unit.lane.rank != rank
        return (not same, same and external, _distance(unit.part, part), external)

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
