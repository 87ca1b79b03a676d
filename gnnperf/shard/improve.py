"""Local search: the best change of a table as long as one is better, then a shove into the unknown, and again.

Iterated local search (Lourenço, Martin, Stützle 2003) over a price, deterministic for a seed. It stops by the number of
placements asked about, never by a clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnperf.shard.neighbors import idlest, neighbors
from gnnperf.shard.problem import on_ranks, ways
from gnnperf.shard.surrogate_cost import State, Surrogate, Value

SHOVED_TABLES = 3


@dataclass
class Budget:
    """Placements that may still be asked about; counted down, so not frozen."""

    left: int

    def spent(self) -> bool:
        """One more was asked about; whether it was one too many."""
        self.left -= 1
        return self.left < 0


def descend(state: State, costs: Surrogate, budget: Budget) -> State:
    """To a placement that no change makes better, or as far as the budget reaches."""
    value: Value | None = costs.value(state)
    while value is not None:
        better = _better(state, value, costs, budget)
        value = None if better is None else better[0]
        state = state if better is None else better[1]
    return state


def _better(state: State, value: Value, costs: Surrogate, budget: Budget) -> tuple[Value, State] | None:
    """The best change of the first table that has a better one; None: no table has."""
    for changes in neighbors(state, costs):
        asked = [(costs.value_after(state, change), i) for i, change in enumerate(changes) if not budget.spent()]
        best = min(asked, default=None)
        if best is not None and best[0] < value:
            return best[0], costs.changed(state, changes[best[1]])
    return None


def explore(state: State, costs: Surrogate, budget: Budget, rng: np.random.Generator) -> tuple[State, ...]:
    """Placements that no change makes better, each reached from the best one before by a shove; the best first."""
    best = descend(state, costs, budget)
    found = [best]
    if all(len(ways(costs.problem, table)) == 1 for table in costs.problem.tables):
        return (best,)  # one device: nothing to shove
    while not budget.spent():
        other = descend(_shoved(best, costs, rng), costs, budget)
        found.append(other)
        if costs.value(other) < costs.value(best):
            best = other
    return tuple(sorted(found, key=costs.value))


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
