"""Placements to begin with: greedy ones, and random ones to compare with.

Greedy: tables by weight, heaviest first, each to the rank with the least weight among those with room (Graham 1969,
LPT); a table that no rank has room for is divided by rows over all of them. Weights: bytes, lookups, predicted time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gnnperf.core import InputError
from gnnperf.generate import Placed, Placement, Split
from gnnperf.shard.loads import LOOKED_UP, MEMORY, UPDATED, Loads
from gnnperf.shard.problem import Problem

GIB = float(1 << 30)
TRIES = 20  # random placements that do not fit, before one is taken to be impossible
Choice = Callable[[np.ndarray, np.ndarray], int]  # weight of ranks [ranks], those with room [n] -> one of them


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
    """The placement by weights [tables].

    Raises:
        InputError: the tables do not fit.
    """
    order = np.lexsort((np.arange(len(weights)), -weights))
    result = _in_order(order.tolist(), weights, loads, lambda held, margin: int(margin[np.argmin(held[margin])]))
    return result or by_rows(loads)


def random_placements(loads: Loads, count: int, seed: int) -> tuple[Placement, ...]:
    """Whole tables on random ranks with room, large tables first; fewer than `count` where few fit."""
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
    """Each table to a chosen rank, by rows over all where none has room; None: not even that fits."""
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
    """Every table that has rows enough, over all ranks: the most even use of memory there is.

    Raises:
        InputError: not even that fits.
    """
    problem, over = loads.problem, tuple(range(loads.problem.ranks))
    result = tuple(Placed(Split.ROW, over) if t.rows >= len(over) else Placed(Split.TABLE, (i % len(over),))
                  for i, t in enumerate(problem.tables))  # fmt: skip
    used = np.zeros(problem.ranks)
    for table, placed in enumerate(result):
        used[list(placed.ranks)] += loads.of(table, placed).per_rank[MEMORY]
    if used.max() > problem.capacity_bytes:
        raise _too_large(problem, float(used.max()))
    return result


def _too_large(problem: Problem, need_bytes: float) -> InputError:
    device, optimizer = problem.cluster.device, problem.plan.model.optimizer
    margin = max(problem.capacity_bytes, 0.0)
    return InputError(
        f"{len(problem.tables)} tables with {optimizer} take {need_bytes / GIB:.1f} GiB per device even if all rows "
        f"are divided evenly over {problem.ranks} {device.name}, which have {margin / GIB:.1f} GiB each for them",
        where=problem.plan.name, remedy="more devices, devices with more memory, or a smaller --reserve",
    )  # fmt: skip
