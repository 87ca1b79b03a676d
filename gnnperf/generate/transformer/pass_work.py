"""What the passes of a plan are made of, unit by unit: a layer's items once, however many layers and micro-batches.

plan -- WorkBook --> kind of pass -> runs of items, and how often each       no graph is built
"""

from collections import Counter
from collections.abc import Callable, Hashable, ItemsView, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gnnperf.core import NodeType
from gnnperf.generate.transformer.activations import recomputed
from gnnperf.generate.transformer.gradients import Unit, UnitKind, Visit, bucket_layers, layers_per_bucket
from gnnperf.generate.transformer.items import Await, Group, Item, Lane, Op, Placed, Record, Store, Transfer
from gnnperf.generate.transformer.memory import Role, rank_of
from gnnperf.generate.transformer.passes import Gradient, Order, PassKind, steps
from gnnperf.generate.transformer.plan import Parallelism, Reduction, TransformerPlan
from gnnperf.generate.transformer.program import StageProgram
from gnnperf.generate.transformer.rank_nodes import extents, item_rows, lane_of, transfer_rows
from gnnperf.generate.transformer.sizes import layers_of


@dataclass(frozen=True, eq=False)
class Run:
    """Items one after the other: what a pass does at a unit of the model; equal runs and equal items are one object."""

    items: tuple[Item, ...]  # in the order of the program; views, which launch nothing, included


Runs = tuple[tuple[Run, int], ...]  # with how often each is run


@dataclass(frozen=True)
class PlanRuns:
    """What a plan's passes do."""

    passes: tuple[Runs, ...]  # runs of each class of equal passes
    of_kind: tuple[int, ...]  # [num_kinds] class of each kind of pass
    after: tuple[Run, ...]  # what follows the last pass of each stage


class WorkBook:
    """Runs of passes; plans that differ in other things share them."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Run] = {}
        self._passes: dict[Hashable, Runs] = {}
        self._items: dict[Item, Item] = {}
        self._numbers: dict[Hashable, int] = {}
        self._classes: dict[Hashable, tuple[dict[Class, PassKind], tuple[int, ...]]] = {}

    def of_plan(self, plan: TransformerPlan, short: Order) -> PlanRuns:
        """Of the kinds of passes of the plan's order, perhaps with fewer micro-batches."""
        units, sums = _of_units(plan), _of_sums(plan)
        unit, all_ = self._number(units), self._number((units, sums))
        every_pass = plan.sharding.reduces_every_pass
        key = short, plan.model.layers, plan.schedule.ends_as_layers, plan.experts, sums is None, every_pass
        if key not in self._classes:
            self._classes[key] = _classes(plan, steps(short).kinds)
        classes, of_kind = self._classes[key]
        passes = tuple(self._of_pass(plan, kind, of, unit, all_) for of, kind in classes.items())
        after = self._number(("update", plan.parallelism, plan.sharding, plan.schedule.gradient_dtype,
                              plan.schedule.reduction, plan.model, plan.block, plan.experts, plan.offload))  # fmt: skip
        return PlanRuns(passes, of_kind, tuple(self._after(plan, i, after) for i in range(short.stages)))

    def _of_pass(self, plan: TransformerPlan, kind: PassKind, of: "Class", units: int, all_: int) -> Runs:
        key, each = (units if of.flags is None else all_, plan.schedule.recomputed_layers, of), kind.each
        has_around = of.flags is not None or plan.offload.activations is not Store.DEVICE
        if key not in self._passes:
            program = StageProgram(plan, kind.stage)
            messages = (units, "messages", each.backward, each.gradient, of.ends)
            runs = Counter((self._run(messages, lambda: program.messages_of(each)),))
            visits = program.visits(each, first=kind.first, final=kind.final)
            for own, (at, n) in _counted((_of_unit(plan, at.unit), at) for at in visits):
                name = (units, each.backward, each.gradient, *own)
                runs[self._run(name, lambda at=at: program.of_unit(each, at))] += n  # type: ignore[misc]
            step = layers_per_bucket(plan)
            for own, (at, n) in _counted((_of_visit(plan, at, step), at) for at in visits if has_around):
                name = (all_, each.backward, each.gradient, "around", *own)
                runs[self._run(name, lambda at=at: program.around(each, at))] += n  # type: ignore[misc]
            self._passes[key] = tuple((run, n) for run, n in runs.items() if run.items)
        return self._passes[key]

    def _after(self, plan: TransformerPlan, stage: int, settings: int) -> Run:
        layers = layers_of(plan, stage)
        kinds = () if plan.experts is None else tuple(plan.has_experts(layer) for layer in layers)
        key = (settings, len(layers), stage == 0, stage == plan.last_stage, kinds)
        return self._run(key, lambda: StageProgram(plan, stage).after_passes())

    def _run(self, key: Hashable, make: Callable[[], Iterable[Placed]]) -> Run:
        if key not in self._known:
            made = (placed.item for placed in make())
            self._known[key] = Run(tuple(self._items.setdefault(item, item) for item in made))
        return self._known[key]

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def _counted(visits: Iterable[tuple[tuple[Hashable, ...], Visit]]) -> ItemsView[tuple[Hashable, ...], list[Any]]:
    """What each visit depends on -> a visit, and how many there are."""
    result: dict[tuple[Hashable, ...], list[Any]] = {}
    for own, at in visits:
        result.setdefault(own, [at, 0])[1] += 1
    return result.items()


class Class(NamedTuple):
    """What passes have in common that do the same, next to settings of the plan."""

    layers: int
    experts: tuple[bool, ...] | None
    backward: bool
    gradient: Gradient
    ends: tuple[Hashable, ...]  # of the model; where the order turns back: chunk and stage
    flags: tuple[bool, ...] | None  # of sums around units


def _classes(plan: TransformerPlan, kinds: Sequence[PassKind]) -> "tuple[dict[Class, PassKind], tuple[int, ...]]":
    """A kind of pass of each class; [num_kinds] place of each kind's class."""
    result: dict[Class, PassKind] = {}
    classes, order, stages = [], plan.order, plan.parallelism.pipeline
    for kind in kinds:
        part = order.part(kind.stage, kind.each.chunk)
        turns = (kind.each.chunk, kind.stage in (0, stages - 1)) if order.pipeline.there_and_back else None
        layers = plan.layers_of_part(part)
        experts = None if plan.experts is None else tuple(map(plan.has_experts, layers))
        fills = kind.final and kind.each.backward and _of_sums(plan) is not None
        flags = (False, True, 0 < part < stages) if fills else None
        if plan.sharding.reduces_every_pass:
            flags = kind.first, kind.final, 0 < part < stages
        ends = part == 0, part == order.parts - 1, turns
        classes.append(Class(len(layers), experts, kind.each.backward, kind.each.gradient, ends, flags))
        result.setdefault(classes[-1], kind)
    place = {one: i for i, one in enumerate(result)}
    return result, tuple(place[one] for one in classes)


def _of_units(plan: TransformerPlan) -> Hashable:
    """What the items of units depend on, whatever the number and order of passes."""
    ways, s = plan.parallelism, plan.schedule
    return (
        ways.tensor, ways.expert, ways.sequence, ways.context, ways.context_exchange, plan.last_stage == 0,
        s.micro_batch, s.recompute, s.gradient_dtype, plan.sharding.reduces_every_pass, plan.model, plan.block,
        plan.experts, plan.offload,
    )  # fmt: skip


def _of_sums(plan: TransformerPlan) -> Hashable:
    """What sums and gathers around units depend on; None: there are none before the last pass has ended."""
    if plan.sharding.reduces_every_pass or plan.schedule.reduction is Reduction.BUCKETS:
        return plan.parallelism.data_context, plan.sharding, plan.schedule.reduction, plan.schedule.bucket_bytes
    return None


def _of_unit(plan: TransformerPlan, unit: Unit) -> tuple[Hashable, ...]:
    """What a unit's own items depend on, next to settings."""
    return unit.kind, plan.has_experts(unit.layer), recomputed(plan, unit.layer)


def _of_visit(plan: TransformerPlan, at: Visit, step: int) -> tuple[Hashable, ...]:
    """What settings do around a unit depends on."""
    filled: Hashable = None
    if at.final and plan.schedule.reduction is Reduction.BUCKETS and at.unit.kind is UnitKind.LAYER:
        layers, last = bucket_layers(plan, at, step)
        filled = tuple(map(plan.has_experts, layers)), last
    return (
        *_of_unit(plan, at.unit), at.before and _of_unit(plan, at.before),
        at.first, at.final, at.place == len(at.units) - 1, filled,
    )  # fmt: skip


@dataclass(frozen=True)
class ItemTable:
    """Rows of distinct items, and whose each is."""

    table: pd.DataFrame  # [num_rows] schema.NODE_COLUMNS
    item: np.ndarray  # [num_rows] number of the item
    stage: np.ndarray  # [num_rows] of a transfer between ranks; -1: the row holds for every stage
    on_host: np.ndarray  # [num_rows] bool


def item_table(items: list[Item], ways: Parallelism) -> ItemTable:
    """Rows of items; of a transfer also what ranks exchange, for the first rank of every stage."""
    own = item_rows(items, ways)
    moves = [(i, item, stage) for i, item in enumerate(items) if isinstance(item, Transfer)
             for stage in range(ways.pipeline)]  # fmt: skip
    places = [_placed(item.group, stage, ways) for _, item, stage in moves]
    transfers = transfer_rows([item for _, item, _ in moves], places, ways)
    table = pd.concat([own.table, transfers], ignore_index=True) if moves else own.table
    return ItemTable(
        table,
        np.r_[np.repeat(np.arange(len(items)), np.diff(own.first)), [i for i, _, _ in moves]].astype(np.int64),
        np.r_[np.full(len(own.table), -1), [stage for _, _, stage in moves]].astype(np.int64),
        (table["node_type"] == NodeType.HOST).to_numpy(),
    )


def _placed(group: Group, stage: int, ways: Parallelism) -> tuple[int, int]:
    """Lowest rank and distance of neighbors of the group that the first rank of a stage is in."""
    first, apart, last = rank_of(Role(stage, 0, 0), ways), ways.tensor * ways.data_context, ways.pipeline - 1
    around = group in (Group.NEXT, Group.PREVIOUS) and (stage == (last if group is Group.NEXT else 0))
    if group is Group.EMBEDDING or around:  # first and last stage
        return 0, apart * max(last, 1)
    if group in (Group.NEXT, Group.PREVIOUS):
        return first - (apart if group is Group.PREVIOUS else 0), apart
    return first, extents(ways)[group][1]


# A run of items on the streams of a rank, from the moment when the compute stream comes to it.
#
#     compute  |- k0 -|         |- k1 -|..waits..|          end: how much later the compute stream goes on
#     tensor          |= all-reduce =|=============|
#
# What does not wait for the run's own kernels may have begun before: it counts as done.


def run_us(run: Run, device_us: Sequence[float]) -> float:
    """When the compute stream is through with a run, after it came to it; `device_us` [num_items] of its items."""
    compute, held = 0.0, 0.0  # end of the last kernel; when the next one may begin
    lanes: dict[Lane, float] = {}
    events: dict[str, float] = {}
    for item, us in zip(run.items, device_us, strict=True):
        if isinstance(item, Op) and item.lane is Lane.COMPUTE:
            compute = held = max(compute, held) + us
        elif isinstance(item, Transfer) and item.follows_compute:
            lane = lane_of(item)
            assert lane is not None, "transfers have a lane"
            lanes[lane] = max(lanes.get(lane, 0.0), max(compute, held)) + us
            held = max(held, lanes[lane]) if item.awaited else held
        elif isinstance(item, Record):
            events[item.event] = max(compute, held) if item.lane is Lane.COMPUTE else lanes.get(item.lane, 0.0)
        elif isinstance(item, Await):
            when = events.get(item.event, 0.0)
            if item.lane is Lane.COMPUTE:
                held = max(held, when)
            elif when > 0.0:
                lanes[item.lane] = max(lanes.get(item.lane, 0.0), when)
        elif (lane := lane_of(item)) is not None and lanes.get(lane, 0.0) > 0.0:
            lanes[lane] += us
    return max(compute, held)


def side_lane(item: Item) -> Lane | None:
    """The stream of work that runs next to the compute stream; None: of none."""
    lane = lane_of(item)
    awaited = isinstance(item, Transfer) and item.awaited and item.follows_compute
    return None if awaited or lane is Lane.COMPUTE else lane
