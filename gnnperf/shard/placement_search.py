"""From a problem to ranked placements: greedy seeds, local search on sums, the best ones judged.

    seeds  --surrogate-->  many placements  --price-->  few, ranked

The price is any function of a placement: the schedule of a planned graph, or of a recorded one with its tables moved.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from gnnperf.core import InputError, each
from gnnperf.generate import Placed, Placement, Split
from gnnperf.shard.problem import ELEMENTS, LOOKED_UP, MEMORY, UPDATED, Loads, on_ranks, ways
from gnnperf.shard.surrogate_cost import State, Surrogate, Value

# Placements to begin with: greedy ones, and random ones to compare with.
#
# Greedy: tables by weight, heaviest first, each to the rank with the least weight among those with space (Graham 1969,
# LPT); a table that no rank has space for is divided by rows over all of them. Weights: bytes, lookups, predicted time.

GIB = float(1 << 30)
TRIES = 20  # random placements that do not fit, before one is taken to be impossible
Choice = Callable[[np.ndarray, np.ndarray], int]  # weight of ranks [ranks], those with space [n] -> one of them


def size_weights(loads: Loads) -> np.ndarray:
    """[tables] bytes."""
    return np.array([float(table.rows) * table.dim for table in loads.problem.tables])


def lookup_weights(loads: Loads) -> np.ndarray:
    """[tables] elements looked up: pooling x dimension (torchrec's and Lin et al. 2022's lookup-greedy)."""
    return np.array([table.pooling * table.dim for table in loads.problem.tables])


def cost_weights(loads: Loads) -> np.ndarray:
    """[tables] us of lookup and update where one rank has the whole table."""
    whole = [loads.of(i, Placed(Split.TABLE, (0,))).per_rank for i in range(len(loads.problem.tables))]
    return np.array([load[LOOKED_UP] + load[UPDATED] for load in whole])


def greedy(weights: np.ndarray, loads: Loads) -> Placement:
    """The placement by weights [tables]."""
    order = np.lexsort((np.arange(len(weights)), -weights))
    result = _in_order(order.tolist(), weights, loads, lambda held, margin: int(margin[np.argmin(held[margin])]))
    return result or by_rows(loads)


def random_placements(loads: Loads, count: int, seed: int) -> tuple[Placement, ...]:
    """Whole tables on random ranks with space, large tables first; fewer than `count` where few fit."""
    rng, sizes = np.random.default_rng(seed), size_weights(loads)
    order = np.argsort(-sizes, kind="stable").tolist()
    result: list[Placement] = []
    for _ in range(TRIES * count):
        one = _in_order(order, sizes, loads, lambda held, margin: int(rng.choice(margin)))
        if one is not None:
            result.append(one)
        if len(result) == count:
            break
    return tuple(result)


def _in_order(order: Sequence[int], weights: np.ndarray, loads: Loads, choose: Choice) -> Placement | None:
    """Each table to a chosen rank, by rows over all where none has space; None: not even that fits."""
    problem = loads.problem
    held, free = np.zeros(problem.ranks), np.full(problem.ranks, problem.capacity_bytes)
    everywhere = Placed(Split.ROW, tuple(range(problem.ranks)))
    result: dict[int, Placed] = {}
    for table in order:
        need = loads.of(table, Placed(Split.TABLE, (0,))).per_rank[MEMORY]
        margin = np.flatnonzero(free >= need)
        placed = Placed(Split.TABLE, (choose(held, margin),)) if len(margin) else everywhere
        if placed is everywhere and problem.tables[table].rows < problem.ranks:
            return None
        free[list(placed.ranks)] -= loads.of(table, placed).per_rank[MEMORY]
        held[list(placed.ranks)] += weights[table] / len(placed.ranks)
        result[table] = placed
    return tuple(result[i] for i in range(len(order))) if free.min() >= 0 else None


def by_rows(loads: Loads) -> Placement:
    """Every table that has rows enough, over all ranks: the most even use of memory there is."""
    problem, over = loads.problem, tuple(range(loads.problem.ranks))
    result = tuple(Placed(Split.ROW, over) if t.rows >= len(over) else Placed(Split.TABLE, (i % len(over),))
                  for i, t in enumerate(problem.tables))  # fmt: skip
    used = np.zeros(problem.ranks)
    for table, placed in enumerate(result):
        used[list(placed.ranks)] += loads.of(table, placed).per_rank[MEMORY]
    if used.max() > problem.capacity_bytes:
        device, margin = problem.cluster.device.name, max(problem.capacity_bytes, 0.0)
        raise InputError(
            f"{len(problem.tables)} tables with {problem.plan.model.optimizer} take {used.max() / GIB:.1f} GiB per "
            f"device even if all rows are divided evenly over {problem.ranks} {device}, which have "
            f"{margin / GIB:.1f} GiB each for them",
            where=problem.plan.name, remedy="more devices, devices with more memory, or a smaller --reserve",
        )  # fmt: skip
    return result


# Placements one change away: what the busiest ranks hold goes elsewhere, is exchanged, or is held in another way.

MOST_TARGETS, MOST_SWAPS = 6, 4  # idle ranks that a table may go to, tables of such a rank to change places with
MOST_SPREAD = 16  # tables on several ranks whose other ways are looked at
Changes = Mapping[int, Placed]


def neighbors(state: State, costs: Surrogate) -> Iterator[tuple[Changes, ...]]:
    """Changes by table: it moves to an idle rank, changes places with a table there, or is divided or replicated."""
    idle, whole = idlest(state), defaultdict[int, list[int]](list)  # rank -> whole tables on it
    for table, placed in enumerate(state.placement):
        if placed.split is Split.TABLE:
            whole[placed.ranks[0]].append(table)
    for table in _worth_a_change(state, whole):
        own, moves, swaps = state.placement[table], list[Changes](), list[Changes]()
        for rank in idle[:MOST_TARGETS].tolist():
            there = Placed(Split.TABLE, (rank,))
            if own != there:
                moves.append({table: there})
                others = whole.get(rank, [])[:MOST_SWAPS] if own.split is Split.TABLE else ()
                swaps += [{table: there, other: own} for other in others]
        held = ways(costs.problem, costs.problem.tables[table])
        places = [on_ranks(split, idle[:n].tolist()) for split, n in held if split is not Split.TABLE]
        yield (*moves, *swaps, *({table: placed} for placed in places if placed != own))


def rank_work_us(state: State) -> np.ndarray:
    """[ranks] us of lookups and updates."""
    return state.per_rank[LOOKED_UP] + state.per_rank[UPDATED]


def idlest(state: State) -> np.ndarray:
    """[ranks] the least loaded first, by work, vectors sent and memory, each as a share of the busiest rank's."""
    rows = (rank_work_us(state), state.per_rank[ELEMENTS], state.per_rank[MEMORY])
    return np.argsort(sum(row / max(row.max(), 1e-9) for row in rows), kind="stable")


def _worth_a_change(state: State, whole: Mapping[int, list[int]]) -> list[int]:
    """Whole tables of the ranks that others wait for, and tables that lie on several ranks."""
    waited_for = (state.per_rank[LOOKED_UP], state.per_rank[UPDATED], rank_work_us(state), state.per_rank[ELEMENTS])
    busiest = dict.fromkeys(int(np.argmax(row)) for row in waited_for)
    held = [table for rank in busiest for table in whole.get(rank, [])]
    spread = [i for i, placed in enumerate(state.placement) if placed.split is not Split.TABLE]
    return held + spread[:MOST_SPREAD]


# Local search: the best change of a table as long as one is better, then a shove into the unknown, and again.
#
# Iterated local search (Lourenço, Martin, Stützle 2003) over a price, deterministic for a seed. It stops by the
# number of placements requested, never by a clock.

SHOVED_TABLES = 3

Budget = Iterator[int]  # an item for each placement that may still be requested


def descend(state: State, costs: Surrogate, budget: Budget) -> State:
    """To a placement that no change makes better, or as far as the budget reaches."""
    value = costs.value(state)
    while (better := _better(state, value, costs, budget)) is not None:
        value, state = better
    return state


def _better(state: State, value: Value, costs: Surrogate, budget: Budget) -> tuple[Value, State] | None:
    """The best change of the first table that has a better one; None: no table has."""
    for changes in neighbors(state, costs):
        after = (costs.changed(state, change) for change, _ in zip(changes, budget, strict=False))
        best, result = min(((costs.value(one), one) for one in after), key=itemgetter(0), default=(value, state))
        if best < value:
            return best, result
    return None


def explore(state: State, costs: Surrogate, budget: Budget, rng: np.random.Generator) -> tuple[State, ...]:
    """Placements that no change makes better, each reached from the best one before by a shove; the best first."""
    best = descend(state, costs, budget)
    result = [best]
    if all(len(ways(costs.problem, table)) == 1 for table in costs.problem.tables):
        return (best,)  # one device: nothing to shove
    for _ in budget:
        other = descend(_shoved(best, costs, rng), costs, budget)
        result.append(other)
        if costs.value(other) < costs.value(best):
            best = other
    return tuple(sorted(result, key=costs.value))


def _shoved(state: State, costs: Surrogate, rng: np.random.Generator) -> State:
    """Some tables held in any other way, on the idlest ranks or a random one."""
    problem, changes = costs.problem, {}
    count = min(SHOVED_TABLES, len(problem.tables))
    for table in rng.choice(len(problem.tables), count, replace=False).tolist():
        split, number = ways(problem, problem.tables[table])[rng.integers(len(ways(problem, problem.tables[table])))]
        ranks = rng.permutation(problem.ranks)[:1] if number == 1 else idlest(state)[:number]
        changes[table] = on_ranks(split, ranks.tolist())
    shoved = costs.changed(state, changes)
    return shoved if np.isfinite(costs.value(shoved)[0]) else state


Price = Callable[[Placement], float]  # us of a step
BY_SIZE, BY_LOOKUPS, BY_COST, SEARCHED = "greedy by size", "greedy by lookups", "greedy by predicted time", "search"


@dataclass(frozen=True)
class Effort:
    """How hard to search."""

    requested: int = 24_000  # placements that the surrogate is requested
    judged: int = 8  # found placements that are priced, next to the seeds
    seed: int = 0  # of everything random


@dataclass(frozen=True)
class Ranked:
    """A placement with its price."""

    placement: Placement  # of all tables
    origin: str  # which greedy rule, or the search
    step_us: float  # its price


def seeds(loads: Loads) -> dict[str, Placement]:
    """The greedy placements, by their rule."""
    weights = {BY_SIZE: size_weights(loads), BY_LOOKUPS: lookup_weights(loads), BY_COST: cost_weights(loads)}
    return {name: greedy(weight, loads) for name, weight in weights.items()}


def candidates(begins: Iterable[Placement], costs: Surrogate, effort: Effort) -> tuple[Placement, ...]:
    """The best `effort.judged` placements that local search finds from each beginning, by the surrogate."""
    own = list(begins)
    result: dict[Placement, State] = {}
    for number, placement in enumerate(each(own, "searching", "beginnings")):
        rng = np.random.default_rng((effort.seed, number))
        states = explore(costs.start(placement), costs, iter(range(effort.requested // len(own))), rng)
        result |= {state.placement: state for state in states}
    ranked = sorted(result.values(), key=costs.value)
    return tuple(state.placement for state in ranked[: effort.judged])


def rank(result: Iterable[Placement], given: Mapping[str, Placement], price: Price) -> tuple[Ranked, ...]:
    """Everything priced, the fastest first; of equally fast ones, found ones and earlier ones first."""
    origins: dict[Placement, str] = {}
    for name, placement in (*((SEARCHED, one) for one in result), *given.items()):
        origins.setdefault(placement, name)
    requested = each(list(origins.items()), "pricing what was found", "placements")
    priced = [Ranked(placement, name, price(placement)) for placement, name in requested]
    return tuple(sorted(priced, key=lambda one: one.step_us))
