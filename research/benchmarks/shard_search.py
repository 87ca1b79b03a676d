"""`gnnperf shard`: how good placements are by the schedule's word, and how long the search takes.

Small problems are searched in full: every placement is judged by the schedule, and the regret is that of the best one.
Large ones are compared with greedy and random placements. The judge is the prediction in both cases: this says how well
the search works, not how well the prediction does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from gnnperf.generate import Placed, Placement, Split, Table
from gnnperf.generate.recommendation import Interaction, RecommendationPlan, Recommender
from gnnperf.generate.recommendation.read import largest_first
from gnnperf.hardware import PLAN_GROUP, default_cluster, load_device, path_of, read_yaml
from gnnperf.shard.cli import problem_from
from gnnperf.shard.judge import judged
from gnnperf.shard.problem import Problem, on_ranks, ways
from gnnperf.shard.search import BY_COST, BY_LOOKUPS, BY_SIZE, FOUND, Effort, candidates, rank, seeds
from gnnperf.shard.shard_answer import NUM_RANDOM, answer
from gnnperf.shard.surrogate_cost import Surrogate, surrogate

HARDWARE, DIM, REPEATS = "a100_sxm_80gb", 64, 3
WHOLE = "whole tables"
SMALL = ((WHOLE, 8, 2, 65536, 5), ("all ways", 4, 2, 131072, 3))  # what, tables, ranks, batch, problems


@dataclass(frozen=True)
class Large:
    """A problem that no full search reaches."""

    what: str
    problem: Problem


def tables(count: int, seed: int) -> tuple[Table, ...]:
    """10^3 to 10^7 rows, 1 to 50 indices, uniform to hot."""
    rng = np.random.default_rng(seed)
    return tuple(Table(f"t{i}", int(10 ** rng.uniform(3, 7)), DIM, float(np.ceil(50 ** rng.uniform(0, 1))),
                       float(rng.uniform(1, 6))) for i in range(count))  # fmt: skip


def problem(own: tuple[Table, ...], ranks: int, batch: int) -> Problem:
    """With half-precision perceptrons, small next to the tables."""
    model = Recommender(own, (256, DIM), (256, 1), interaction=Interaction.CAT, dtype="float16")
    plan = RecommendationPlan("synthetic", model, batch, ranks, largest_first(own, ranks))
    return Problem(plan, default_cluster(load_device(HARDWARE)))


def every_placement(requested: Problem, splits: Sequence[Split]) -> Iterator[Placement]:
    """All of them, up to names of ranks: the first table is on the first rank where it is whole."""
    for chosen in product(*(list(_places(requested, t, splits)) for t in requested.tables)):
        whole = [placed.ranks[0] for placed in chosen if placed.split is Split.TABLE]
        first_seen = list(dict.fromkeys(whole))
        if first_seen == sorted(first_seen) and (not whole or first_seen[-1] == len(first_seen) - 1):
            yield chosen


def _places(requested: Problem, table: Table, splits: Sequence[Split]) -> Iterator[Placed]:
    for split, number in ways(requested, table):
        if split in splits:
            yield from ([on_ranks(split, (r,)) for r in range(requested.ranks)] if number == 1
                        else [on_ranks(split, range(number))])  # fmt: skip


def judge(costs: Surrogate) -> Callable[[Placement], float]:
    """The schedule's step, requested once per placement."""
    known: dict[Placement, float] = {}

    def price(placement: Placement) -> float:
        if placement not in known:
            known[placement] = judged(costs.problem, costs.start(placement)).step_us
        return known[placement]

    return price


def regrets(what: str, count: int, ranks: int, batch: int, seed: int) -> Mapping[str, float]:
    """Step over the best of all placements, minus 1, by who chose."""
    requested = problem(tables(count, seed), ranks, batch)
    costs, splits = surrogate(requested), (Split.TABLE,) if what == WHOLE else tuple(Split)
    price = judge(costs)
    steps = np.array([price(placement) for placement in every_placement(requested, splits)])
    greedy = seeds(costs.loads)
    result = rank(candidates(greedy.values(), costs, Effort()), greedy, price)
    chosen = {FOUND: result[0].step_us, **{name: price(placement) for name, placement in greedy.items()},
              "median of all": float(np.median(steps)), "worst of all": float(steps.max())}  # fmt: skip
    best_us = float(steps.min())  # of whole tables, the search may find better ones: it may divide them
    return {"placements": float(len(steps)), **{name: us / best_us - 1.0 for name, us in chosen.items()}}


def print_small() -> None:
    """Regret on problems that are searched in full."""
    print("regret against the best of all placements, judged by the schedule")
    for what, count, ranks, batch, problems in SMALL:
        rows = [regrets(what, count, ranks, batch, seed) for seed in range(problems)]
        print(f"{what}: {count} tables on {ranks} devices, {rows[0]['placements']:.0f} placements, {problems} problems")
        for name in (FOUND, BY_COST, BY_LOOKUPS, BY_SIZE, "median of all", "worst of all"):
            values = np.array([row[name] for row in rows])
            right = (values < 1e-3).sum()
            print(f"  {name:26s} mean {values.mean():7.2%}  max {values.max():7.2%}  within 0.1 %: {right}")


def large() -> Iterator[Large]:
    """Published tables and synthetic ones."""
    for name, ranks, hardware in (("dlrm_criteo", 8, HARDWARE), ("dlrm_criteo_multi_hot", 8, HARDWARE),
                                  ("dlrm_criteo_multi_hot", 16, "h100_sxm")):  # fmt: skip
        path = path_of(name, PLAN_GROUP)
        yield Large(name, problem_from(read_yaml(path), str(path), ranks, hardware, None, 0.15))
    for count, ranks in ((50, 8), (100, 32), (400, 128)):
        yield Large("synthetic", problem(tables(count, 100), ranks, 65536))


def print_large() -> None:
    """Steps and seconds of the whole search: surrogate, local search, judging, comparisons."""
    print(f"\nstep by the schedule; seconds of the whole search, {REPEATS} times after a first one, median (min, max)")
    for each in large():
        answer(each.problem, Effort(requested=100, judged=1), None, 1)  # compiles
        seconds = []
        for _ in range(REPEATS):
            begin = time.perf_counter()
            result = answer(each.problem, Effort(), None, 1)
            seconds.append(time.perf_counter() - begin)
        best, device = result.ranked[0].step_us, each.problem.cluster.device.name
        size = f"{len(each.problem.tables)} tables on {each.problem.ranks} x {device}"
        spread = f"{np.median(seconds):.1f} s ({min(seconds):.1f}, {max(seconds):.1f})"
        print(f"{each.what}, {size}: {best / 1e3:.3f} ms, {spread}")
        for name in (BY_COST, BY_LOOKUPS, BY_SIZE, f"median of {NUM_RANDOM} random"):
            step_us = result.compared_us.get(name)
            shown = "none fits" if step_us is None else f"{step_us / 1e3:9.3f} ms  {step_us / best - 1.0:+.1%}"
            print(f"  {name:26s} {shown}")


def main() -> None:
    """Print both tables."""
    print_small()
    print_large()


if __name__ == "__main__":
    main()
