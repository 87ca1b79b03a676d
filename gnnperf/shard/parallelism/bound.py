"""A lower bound of a plan's step from its items, without its graph; and the judge of a plan, which builds the graph.

    stage 0  |F0|F1|..|B0|F2|B1|   |B2|update|     a pass takes its kernels and awaited transfers, one after the other,
    stage 1     |F0|B0|F1|B1|F2|B2|update|         each as long as by itself; passes wait in their order

docs/concepts/search.md states why no schedule of the graph is shorter.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gnnperf import generate
from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import InputError, each
from gnnperf.generate import Item, ItemTable, Lane, Order, Parallelism, PlanRuns, Run, Runs, Transfer, TransformerPlan
from gnnperf.hardware import ClusterSpec
from gnnperf.memory import planned_peak
from gnnperf.schedule import NUM_UNROLLED, schedule_with_contention

MOST_PASSES = 2_000  # that are placed one by one; of more a stage's way in, its work and its way out are added up


@dataclass(frozen=True)
class Bound:
    """The bound of one plan, and what its slowest stage does."""

    step_us: float  # no schedule of the plan's graph is shorter
    kernels_us: float  # on the compute stream of the stage that ends last
    transfers_us: float  # that this stream waits for, messages between stages included
    bubble_us: float  # in which it waits for other stages


def bounds(plans: Sequence[TransformerPlan], cluster: ClusterSpec) -> list[Bound]:
    """[num_plans]."""
    by_ways: dict[Parallelism, list[int]] = defaultdict(list)
    for i, plan in enumerate(plans):
        by_ways[plan.parallelism].append(i)
    book, kernels, result = generate.WorkBook(), _Kernels(cluster), dict[int, Bound]()
    for ways, members in each(list(by_ways.items()), "bounding steps", "ways to divide"):
        own = [plans[i] for i in members]
        result |= zip(members, _bounds(own, ways, kernels, book), strict=True)
    return [result[i] for i in range(len(plans))]


def _bounds(
    plans: Sequence[TransformerPlan], ways: Parallelism, kernels: "_Kernels", book: generate.WorkBook
) -> Iterator[Bound]:  # fmt: skip
    work = [book.of_plan(plan, _short(plan.order)) for plan in plans]
    own = {id(runs): runs for one in work for runs in one.passes}
    of_passes = (run for runs in own.values() for run, _ in runs)
    distinct = dict.fromkeys((*of_passes, *(run for one in work for run in one.after)))
    lengths = _Lengths(list(distinct), ways, kernels)
    for plan, one in zip(plans, work, strict=True):
        yield _Step(plan.order, one, lengths).bound()


def _short(order: Order) -> Order:
    """With the same kinds of passes, of at most MOST_PASSES."""
    most = max(MOST_PASSES // (3 * order.parts) // order.stages, 2) * order.stages
    return order if order.micro_batches <= most else Order(order.pipeline, order.stages, most, order.chunks)


# What a run takes, [3 + lanes] us: on the compute stream, of it kernels, of the host, on every other stream.
LANES = len(Lane)
COMPUTE, KERNELS, HOST = 0, 1, 2  # then every other stream


class _Kernels:
    """Times of items that do not depend on how ranks lie."""

    def __init__(self, cluster: ClusterSpec) -> None:
        self.cluster = cluster
        self._known: dict[Item, tuple[float, float]] = {}

    def of(self, items: Sequence[Item], ways: Parallelism) -> np.ndarray:
        """[num_items, 2] us on the device and of the host; a transfer is its exit only."""
        new = [item for item in items if item not in self._known]
        if new:
            rows = generate.item_table(new, replace(ways, pipeline=1))
            us = self.us(rows)
            own = rows.stage < 0
            sides = (own & ~rows.on_host, own & rows.on_host)
            both = [np.bincount(rows.item[side], us[side], len(new)) for side in sides]
            self._known |= zip(new, zip(*(column.tolist() for column in both), strict=True), strict=True)
        return np.array([self._known[item] for item in items])

    def us(self, rows: ItemTable) -> np.ndarray:
        """[num_rows] us; what nothing covers adds nothing to a lower bound."""
        return np.nan_to_num(AnalyticPredictor().latency_us(rows.table, self.cluster))


class _Lengths:
    """Prices of runs, on each stage: transfers between stages cross machines or not."""

    def __init__(self, runs: Sequence[Run], ways: Parallelism, kernels: "_Kernels") -> None:
        items = list({id(item): item for run in runs for item in run.items}.values())
        self._number = {id(item): i for i, item in enumerate(items)}
        device, self._host_us = kernels.of(items, ways).T  # [num_items] each
        moved = np.zeros((ways.pipeline, len(items)))
        transfers = [i for i, item in enumerate(items) if isinstance(item, Transfer)]
        if transfers:
            rows = generate.item_table([items[i] for i in transfers], ways)
            us, between = kernels.us(rows), rows.stage >= 0
            np.add.at(moved, (rows.stage[between], np.array(transfers)[rows.item[between]]), us[between])
        self._device_us = device + moved  # [stages, num_items]
        self._differs = (moved != moved[0]).any(axis=0)  # [num_items] between stages
        self._like = np.unique(moved, axis=0, return_inverse=True)[1].tolist()  # [stages] equal ones have one number
        side = [generate.side_lane(item) for item in items]
        self._lane = np.array([-1 if lane is None else int(lane) for lane in side], dtype=np.int64)
        self._is_kernel = (self._lane < 0) & (moved.sum(axis=0) == 0)
        self._places: dict[int, tuple[np.ndarray, bool]] = {}
        self._known: dict[tuple[int, int], np.ndarray] = {}
        self._passes: dict[tuple[int, int], np.ndarray] = {}

    def of_pass(self, runs: Runs, stage: int) -> np.ndarray:
        """Of the runs of a pass."""
        key = id(runs), self._like[stage]
        if key not in self._passes:
            self._passes[key] = sum((n * self.of(run, stage) for run, n in runs), np.zeros(3 + LANES))
        return self._passes[key]

    def of(self, run: Run, stage: int) -> np.ndarray:
        """Of one run on a stage."""
        if id(run) not in self._places:
            at = np.array([self._number[id(item)] for item in run.items], dtype=np.int64)
            self._places[id(run)] = at, bool(self._differs[at].any())
        at, differs = self._places[id(run)]
        key = id(run), self._like[stage] if differs else -1
        if key not in self._known:
            device_us = self._device_us[stage, at]
            lanes = np.bincount(self._lane[at] + 1, device_us, minlength=LANES + 1)[1:]
            kernels, host = float(device_us[self._is_kernel[at]].sum()), float(self._host_us[at].sum())
            self._known[key] = np.concatenate([[generate.run_us(run, device_us.tolist()), kernels, host], lanes])
        return self._known[key]


class _Step:
    """One plan's passes with their lengths."""

    def __init__(self, order: Order, work: PlanRuns, lengths: _Lengths) -> None:
        self.order, self._short = order, _short(order)
        self._placed: generate.Steps = generate.steps(self._short)
        self._after = np.array([lengths.of(run, stage) for stage, run in enumerate(work.after)])
        kinds = zip(self._placed.kinds, work.of_kind, strict=True)
        self._kinds = np.array([lengths.of_pass(work.passes[own], kind.stage) for kind, own in kinds])

    @cached_property
    def _stages(self) -> np.ndarray:
        """[stages, 3 + lanes] all work; micro-batches that are not placed add passes neither first nor final."""
        more = self.order.micro_batches - self._short.micro_batches
        counts, result = self._placed.counts + more * self._placed.between, self._after.copy()
        np.add.at(result, self._placed.stage, self._kinds * counts[:, None])
        return result

    def bound(self) -> Bound:
        """Of the step."""
        length = self._kinds[:, COMPUTE]
        ends_us, (first, last_pass) = np.array(self._placed.ends_us(length.tolist())), self._placed.first_last
        begins, ends = ends_us[first] - length[np.array(self._placed.kind)[first]], ends_us[last_pass]  # [stages] each
        through = ends + self._after[:, COMPUTE]
        if not self.order.pipeline.flushes:
            through = self._stages[:, COMPUTE]
        elif self.order != self._short:
            through = np.maximum(through, self._chains_us(begins))
        last = int(np.argmax(through))
        step, own = through[last], self._stages[last]
        others = self._stages[:, HOST:].max()
        parts = max(step, others), own[KERNELS], own[COMPUTE] - own[KERNELS], step - own[COMPUTE]
        return Bound(*map(float, parts))

    def _chains_us(self, begins: np.ndarray) -> np.ndarray:
        """[stages] way in, work, and way out of its last gradient; gradients of weights need no way out."""
        own = begins + self._stages[:, COMPUTE]
        if self.order.pipeline.splits_backward:
            return own
        out, last = np.zeros(self.order.stages + 1), self._placed.last_gradients
        np.add.at(out, self._placed.stage[last] + 1, self._kinds[last, COMPUTE])
        through = own - self._after[:, COMPUTE] + np.cumsum(out)[:-1] + self._after[0, COMPUTE]
        return np.maximum(own, through)


# The judge of a candidate: the graph of its step with one rank per stage, every node's latency, the schedule.
#
# A step of many micro-batches is periodic: between its begin and its end every micro-batch adds the same time. Long
# steps are therefore judged at two smaller numbers of micro-batches, and extended by what the difference adds.

MOST_LAYER_PASSES = 1200  # layers x micro-batches of a graph that is judged whole


@dataclass(frozen=True)
class Judged:
    """The step of one candidate."""

    step_us: float  # its makespan, or without a flush its period
    extended: bool  # whether its last micro-batches were added by their period


def judged(plan: TransformerPlan, cluster: ClusterSpec) -> Judged:
    """The step of a plan, as `gnnperf predict --plan` gives it without a network."""
    counts = _counts(plan)
    steps = [step_us(with_micro_batches(plan, n), cluster) for n in counts]
    if len(steps) == 1:
        return Judged(steps[0], False)
    (few, _), (short, long) = counts, steps
    more_us = (plan.num_micro_batches - 2 * few) * (long - short) / few
    return Judged(long + more_us, True)


def layer_passes(plan: TransformerPlan) -> int:
    """What judging a plan will cost, in layers x micro-batches."""
    return plan.model.layers * sum(_counts(plan))


def _counts(plan: TransformerPlan) -> tuple[int, ...]:
    """Micro-batches of the graphs that are built: all; or what fills the pipeline, and twice that."""
    few = max(plan.parallelism.pipeline, 2) * plan.schedule.pipeline.warm_up
    count = plan.num_micro_batches
    whole = plan.model.layers * count <= MOST_LAYER_PASSES or count <= 3 * few
    return (count,) if whole else (few, 2 * few)


def with_micro_batches(plan: TransformerPlan, number: int) -> TransformerPlan:
    """The plan with another number of micro-batches of the same size."""
    batch = number * plan.parallelism.data * plan.schedule.micro_batch
    return replace(plan, schedule=replace(plan.schedule, global_batch=batch))


def step_us(plan: TransformerPlan, cluster: ClusterSpec) -> float:
    """Of the whole graph: its makespan, or without a flush its period."""
    graph = generate.build_graph_of(plan)
    given = AnalyticPredictor().predict(graph, cluster)
    if given.uncovered_ops or given.isolated is None:
        names = ", ".join(given.uncovered_ops)
        raise InputError(f"no model covers {names}", where=f"plan {plan.name} on {cluster.device.name}",
                         remedy="name a GPU of the catalog")  # fmt: skip
    unrolled = 1 if plan.schedule.pipeline.flushes else NUM_UNROLLED
    scheduled = schedule_with_contention(graph, given.latency_us, given.lag_us, given.isolated, num_unrolled=unrolled)
    return scheduled.schedule.step_time_us


def peak_bytes(plan: TransformerPlan) -> int:
    """Of the rank that needs most, as the caching allocator counts it."""
    most = 2 * plan.parallelism.pipeline * plan.schedule.chunks
    whole = plan.schedule.pipeline.keeps_all or plan.num_micro_batches <= most
    same = plan if whole else with_micro_batches(plan, most)  # no more are in flight
    return max(planned_peak(one).peak_bytes for one in generate.rank_tensors(same))
