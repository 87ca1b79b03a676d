"""From a problem to ranked placements: greedy seeds, local search on sums, the best ones judged.

    seeds  --surrogate-->  many placements  --price-->  few, ranked

The price is any function of a placement: the schedule of a planned graph, or of a recorded one with its tables moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from gnnperf.core import each
from gnnperf.generate import Placement
from gnnperf.shard.improve import Budget, explore
from gnnperf.shard.initial_placements import cost_weights, greedy, lookup_weights, size_weights
from gnnperf.shard.loads import Loads
from gnnperf.shard.surrogate_cost import State, Surrogate

Price = Callable[[Placement], float]  # us of a step
BY_SIZE, BY_LOOKUPS, BY_COST, FOUND = "greedy by size", "greedy by lookups", "greedy by predicted time", "search"
GREEDY = (BY_SIZE, BY_LOOKUPS, BY_COST)


@dataclass(frozen=True)
class Effort:
    """How hard to search.

    Attributes:
        asked: placements that the surrogate is asked about.
        judged: found placements that are priced, beside the seeds.
        seed: of everything random.
    """

    asked: int = 24_000
    judged: int = 8
    seed: int = 0


@dataclass(frozen=True)
class Ranked:
    """A placement with its price.

    Attributes:
        placement: of all tables.
        origin: which greedy rule, or the search.
        step_us: its price.
    """

    placement: Placement
    origin: str
    step_us: float


def seeds(loads: Loads) -> dict[str, Placement]:
    """The greedy placements, by their rule.

    Raises:
        InputError: the tables do not fit.
    """
    weights = {BY_SIZE: size_weights(loads), BY_LOOKUPS: lookup_weights(loads), BY_COST: cost_weights(loads)}
    return {name: greedy(weight, loads) for name, weight in weights.items()}


def candidates(begins: Iterable[Placement], costs: Surrogate, effort: Effort) -> tuple[Placement, ...]:
    """The best `effort.judged` placements that local search finds from each beginning, by the surrogate."""
    own = list(begins)
    found: dict[Placement, State] = {}
    for number, placement in enumerate(each(own, "searching", "beginnings")):
        rng = np.random.default_rng((effort.seed, number))
        states = explore(costs.start(placement), costs, Budget(effort.asked // len(own)), rng)
        found |= {state.placement: state for state in states}
    ranked = sorted(found.values(), key=costs.value)
    return tuple(state.placement for state in ranked[: effort.judged])


def rank(found: Iterable[Placement], given: Mapping[str, Placement], price: Price) -> tuple[Ranked, ...]:
    """Everything priced, the fastest first; of equally fast ones, found ones and earlier ones first."""
    origins: dict[Placement, str] = {}
    for name, placement in (*((FOUND, one) for one in found), *given.items()):
        origins.setdefault(placement, name)
    asked = each(list(origins.items()), "pricing what was found", "placements")
    priced = [Ranked(placement, name, price(placement)) for placement, name in asked]
    return tuple(sorted(priced, key=lambda one: one.step_us))
