"""Branch and bound over plans: bounds order them, memory cuts them, the schedule judges until no bound is better.

candidates --held_bytes--> that may fit --bounds--> ascending --peak_bytes, judge--> best, and what is proven
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gnnperf.core import InputError, task
from gnnperf.generate import Recompute, TransformerPlan, held_bytes
from gnnperf.hardware import ClusterSpec
from gnnperf.shard.parallelism.bound import Bound, Judged, bounds, judged, layer_passes, peak_bytes

GIB = float(1 << 30)
SMALLER, LEVELS = 0.75, 3  # of a plan's memory, for the next point of the Pareto front; how often
NUM_RANDOM = 200
SEARCHED, GIVEN = "search", "as the file has it"
RULE, RANDOM = "Megatron-LM's rule of thumb", f"best of {NUM_RANDOM} random"


@dataclass(frozen=True)
class Effort:
    """How hard to search. It is counted in work, never in seconds, so that a search can be repeated."""

    judged: int = 30  # most plans whose graphs are built
    layer_passes: int = 25_000  # of those graphs, layers x micro-batches in all
    runners: int = 4  # plans of other kinds than the best that are judged as well, to say why they lose
    seed: int = 0  # of random plans


@dataclass(frozen=True)
class Problem:
    """What is searched for."""

    plans: Sequence[TransformerPlan]  # the candidates
    cluster: Callable[[int], ClusterSpec]  # of a number of devices
    capacity_bytes: float  # that a device has for a plan
    # of a plan's step: what the least of is looked for is step x weight (1, or devices for cost)
    weight: Callable[[TransformerPlan], float] = lambda plan: 1.0


@dataclass(frozen=True)
class Option:
    """A judged candidate."""

    plan: TransformerPlan  # of which
    origin: str  # which baseline, or the search
    bound: Bound  # of its step
    judged: Judged  # its step
    peak_bytes: int  # of the rank that needs most
    parts_us: Mapping[str, float] = field(default_factory=dict)  # what the step is made of; they add up to it

    @property
    def step_us(self) -> float:
        """Of the judge."""
        return self.judged.step_us


@dataclass(frozen=True)
class SearchOutcome:
    """The result of a search."""

    options: tuple[Option, ...]  # judged candidates, the best first
    baselines: Mapping[str, Option]  # by name; those that there are
    num_plans: int  # candidates
    num_too_large: int  # of them, that a closed form or the account of tensors cuts
    # step x weight that no candidate that was not judged can be below; None: there is none left
    next_bound: float | None
    best: float  # step x weight of the first option

    @property
    def gap(self) -> float:
        """Share of the best's step that another candidate might save at most; 0: the best is proven."""
        return 0.0 if self.next_bound is None else max(0.0, 1.0 - self.next_bound / self.best)

    @property
    def front(self) -> tuple[Option, ...]:
        """Options that no other one beats in step, memory and devices x step at once."""
        points = np.array([(o.step_us, o.peak_bytes, o.step_us * o.plan.parallelism.world_size) for o in self.options])
        beaten = [((points <= own).all(axis=1) & (points < own).any(axis=1)).any() for own in points]
        return tuple(one for one, is_beaten in zip(self.options, beaten, strict=True) if not is_beaten)


def search_plans(problem: Problem, effort: Effort, given: TransformerPlan | None = None) -> SearchOutcome:
    """The best plan, and what it is compared with; `given`: a plan to compare with as well, candidate or not.

    Raises:
        InputError: no candidate fits.
    """
    return _Search(problem, effort).outcome(given)


class _Search:
    """Candidates that may fit, by ascending bound; judged ones."""

    def __init__(self, problem: Problem, effort: Effort) -> None:
        self.problem, self.effort = problem, effort
        least = [held_bytes(plan) for plan in problem.plans]
        own = [i for i, size in enumerate(least) if size <= problem.capacity_bytes]
        if not own:
            raise _too_large(problem, min(least))
        self.plans = [problem.plans[i] for i in own]
        self.least = [least[i] for i in own]
        self.bounds = self._bounds(self.plans)
        self.value = np.array([b.step_us * problem.weight(p) for p, b in zip(self.plans, self.bounds, strict=True)])
        self.order: list[int] = np.argsort(self.value, kind="stable").tolist()
        self.options: dict[int, Option] = {}
        self.too_large: set[int] = set()
        self.peaks: dict[int, int] = {}

    def _bounds(self, plans: Sequence[TransformerPlan]) -> list[Bound]:
        result: dict[int, Bound] = {}
        for count in dict.fromkeys(plan.parallelism.world_size for plan in plans):
            places = [i for i, plan in enumerate(plans) if plan.parallelism.world_size == count]
            own = bounds([plans[i] for i in places], self.problem.cluster(count))
            result |= zip(places, own, strict=True)
        return [result[i] for i in range(len(plans))]

    def outcome(self, given: TransformerPlan | None) -> SearchOutcome:
        next_bound = self._branch_and_bound()
        best = min(self.options, key=self._value_of)
        self._runners()
        self._smaller(best)
        baselines = self._baselines(given)
        options = [self.options[i] for i in sorted(self.options, key=self._value_of)]
        parted = dict(zip(map(id, options), self._with_parts(options), strict=True))
        named = {name: parted.get(id(one)) or self._with_parts([one])[0] for name, one in baselines.items()}
        cut = len(self.problem.plans) - len(self.plans) + len(self.too_large)
        return SearchOutcome(tuple(parted.values()), named, len(self.problem.plans), cut, next_bound,
                     self._value_of(best))  # fmt: skip

    def _branch_and_bound(self) -> float | None:
        """Judge by ascending bound; the bound of the first candidate that was not, None where none is left."""
        best, spent = float("inf"), 0
        with task("judging plans", float(self.effort.judged), "plans") as advance:
            for i in self.order:
                if self.value[i] >= best:
                    return float(self.value[i])
                if not self._fits(i, self.problem.capacity_bytes):
                    continue
                cost = layer_passes(self.plans[i])
                is_spent = len(self.options) >= self.effort.judged or spent + cost > self.effort.layer_passes
                if self.options and is_spent:
                    return float(self.value[i])
                self._judge(i)
                best, spent = min(best, self._value_of(i)), spent + cost
                advance(1.0)
        if not self.options:
            raise _too_large(self.problem, min(self.least))
        return None

    def _fits(self, i: int, capacity_bytes: float) -> bool:
        """By the account of tensors."""
        if i not in self.peaks:
            self.peaks[i] = peak_bytes(self.plans[i])
        fits = self.peaks[i] <= capacity_bytes
        if not fits and capacity_bytes >= self.problem.capacity_bytes:
            self.too_large.add(i)
        return fits

    def _judge(self, i: int, origin: str = SEARCHED) -> Option:
        if i not in self.options:
            self.options[i] = self._option(self.plans[i], self.bounds[i], self.peaks[i], origin)
        return self.options[i]

    def _option(self, plan: TransformerPlan, bound: Bound, peak: int, origin: str) -> Option:
        return Option(plan, origin, bound, judged(plan, self.problem.cluster(plan.parallelism.world_size)), peak)

    def _value_of(self, i: int) -> float:
        return self.options[i].step_us * self.problem.weight(self.plans[i])

    def _runners(self) -> None:
        """Judge the first candidates, by their bound, of kinds of which none was judged."""
        known = {_kind(self.plans[i]) for i in self.options}
        for i in self.order:
            if len(known) > self.effort.runners or len(self.options) == len(self.plans):
                return
            if _kind(self.plans[i]) not in known and self._fits(i, self.problem.capacity_bytes):
                known.add(_kind(self.plans[i]))
                self._judge(i)

    def _smaller(self, best: int) -> None:
        """Judge the first candidates, by their bound, that need clearly less memory: points of the Pareto front."""
        at = float(self.peaks[best])
        for _ in range(LEVELS):
            limit = SMALLER * at
            fitting = (i for i in self.order if self.least[i] <= limit and i not in self.too_large)
            chosen = next((i for i in fitting if self._fits(i, limit)), None)
            if chosen is None:
                return
            self._judge(chosen)
            at = float(self.peaks[chosen])

    def _baselines(self, given: TransformerPlan | None) -> dict[str, Option]:
        result: dict[str, Option] = {}
        for name, place in ((RULE, self._by_rule()), (RANDOM, self._drawn())):
            if place is not None:
                result[name] = self._judge(place, name)
        if given is not None:
            result[GIVEN] = self._option(given, self._bounds([given])[0], peak_bytes(given), GIVEN)
        return result

    def _by_rule(self) -> int | None:
        """Narayanan et al. 2021, section 3: tensor ranks within a machine, then stages, as few as fit; then replicas.

        Micro-batches of one sample, 1F1B, sums of whole gradients; all layers computed again, as in its section 5.
        """
        within = self.problem.cluster(max(p.parallelism.world_size for p in self.plans)).ranks_per_node
        plain = [i for i, plan in enumerate(self.plans) if _is_plain(plan) and plan.parallelism.tensor <= within]

        def size(i: int) -> tuple[int, int, int]:
            ways = self.plans[i].parallelism
            return -ways.world_size, ways.tensor * ways.pipeline, ways.pipeline

        return next((i for i in sorted(plain, key=size) if self._fits(i, self.problem.capacity_bytes)), None)

    def _drawn(self) -> int | None:
        """Of random candidates that fit the one with the least bound."""
        rng = np.random.default_rng(self.effort.seed)
        drawn = rng.permutation(len(self.plans))[:NUM_RANDOM].tolist()
        ordered = sorted(drawn, key=lambda i: self.value[i])
        return next((i for i in ordered if self._fits(i, self.problem.capacity_bytes)), None)

    def _with_parts(self, options: Sequence[Option]) -> list[Option]:
        """With what their steps are made of: recomputation is the work of kernels that a plan without it lacks."""
        schedules = [one.plan.schedule.without_recomputation() for one in options]
        plain = self._bounds([replace(one.plan, schedule=s) for one, s in zip(options, schedules, strict=True)])
        return [replace(one, parts_us=parts(one, bound)) for one, bound in zip(options, plain, strict=True)]


def _kind(plan: TransformerPlan) -> tuple[object, ...]:
    """What makes plans different enough to compare: stages, context ranks, order of passes, what replicas share."""
    ways = plan.parallelism
    return ways.pipeline > 1, ways.context > 1, plan.schedule.pipeline, plan.sharding.reduces_every_pass


COMPUTE, RECOMPUTE, WAITED = "kernels", "recomputation", "collectives and messages waited for"
BUBBLE, OTHER = "pipeline bubble", "gathers, gradient sums, host and contention not hidden"


def parts(one: Option, plain: Bound) -> dict[str, float]:
    """Of a judged step, by the stage that ends last in its bound; `plain`: its bound without recomputation."""
    again = max(one.bound.kernels_us - plain.kernels_us, 0.0)
    known = {COMPUTE: one.bound.kernels_us - again, RECOMPUTE: again, WAITED: one.bound.transfers_us}
    known[BUBBLE] = one.bound.bubble_us
    return {**known, OTHER: one.step_us - sum(known.values())}


def _is_plain(plan: TransformerPlan) -> bool:
    s, ways = plan.schedule, plan.parallelism
    settings = s.micro_batch, s.pipeline, s.recompute, s.recomputed_layers, plan.sharding.shards_update, ways.sequence
    plain = 1, "1f1b", Recompute.FULL, None, False, plan.experts is not None and ways.tensor > 1
    return ways.context == 1 and settings == plain


def _too_large(problem: Problem, least_bytes: float) -> InputError:
    plan = problem.plans[0]
    return InputError(
        f"none of {len(problem.plans):,} candidates fits: the smallest takes {least_bytes / GIB:.1f} GiB per device of "
        f"{problem.capacity_bytes / GIB:.1f}", where=f"plan {plan.name}",
        remedy="more devices, devices with more memory (--memory), or a smaller --reserve",
    )  # fmt: skip
