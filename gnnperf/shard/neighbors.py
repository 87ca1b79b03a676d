"""Placements one change away: what the busiest ranks hold goes elsewhere, is exchanged, or is held in another way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np

from gnnperf.generate import Placed, Split
from gnnperf.shard.loads import ELEMENTS, LOOKED_UP, MEMORY, UPDATED
from gnnperf.shard.problem import on_ranks, ways
from gnnperf.shard.surrogate_cost import State, Surrogate

MOST_TARGETS, MOST_SWAPS = 6, 4  # idle ranks that a table may go to, tables of such a rank to change places with
MOST_SPREAD = 16  # tables on several ranks whose other ways are looked at
Changes = Mapping[int, Placed]


def neighbors(state: State, costs: Surrogate) -> Iterator[tuple[Changes, ...]]:
    """Changes of one or two tables, by table, in a fixed order."""
    idle, whole = idlest(state), _whole_tables(state)
    for table in _worth_a_change(state, whole):
        yield (
            *_moves(state, table, idle),
            *_swaps(state, table, idle, whole),
            *_other_ways(state, table, idle, costs),
        )


def rank_work_us(state: State) -> np.ndarray:
    """[ranks] us of lookups and updates."""
    return state.per_rank[LOOKED_UP] + state.per_rank[UPDATED]


def idlest(state: State) -> np.ndarray:
    """[ranks] the least loaded first, by work, vectors sent and memory, each as a share of the busiest rank's."""
    rows = (rank_work_us(state), state.per_rank[ELEMENTS], state.per_rank[MEMORY])
    return np.argsort(sum(row / max(row.max(), 1e-9) for row in rows), kind="stable")


def _whole_tables(state: State) -> Mapping[int, list[int]]:
    """Rank -> whole tables on it."""
    found: dict[int, list[int]] = defaultdict(list)
    for table, placed in enumerate(state.placement):
        if placed.split is Split.TABLE:
            found[placed.ranks[0]].append(table)
    return found


def _worth_a_change(state: State, whole: Mapping[int, list[int]]) -> list[int]:
    """Whole tables of the ranks that others wait for, and tables that lie on several ranks."""
    waited_for = (state.per_rank[LOOKED_UP], state.per_rank[UPDATED], rank_work_us(state), state.per_rank[ELEMENTS])
    busiest = dict.fromkeys(int(np.argmax(row)) for row in waited_for)
    held = [table for rank in busiest for table in whole.get(rank, [])]
    spread = [i for i, placed in enumerate(state.placement) if placed.split is not Split.TABLE]
    return held + spread[:MOST_SPREAD]


def _moves(state: State, table: int, idle: np.ndarray) -> Iterator[Changes]:
    """The whole table to an idle rank."""
    for rank in idle[:MOST_TARGETS].tolist():
        if state.placement[table] != Placed(Split.TABLE, (rank,)):
            yield {table: Placed(Split.TABLE, (rank,))}


def _swaps(state: State, table: int, idle: np.ndarray, whole: Mapping[int, list[int]]) -> Iterator[Changes]:
    """Whole tables change places."""
    own = state.placement[table]
    if own.split is not Split.TABLE:
        return
    for rank in idle[:MOST_TARGETS].tolist():
        if rank != own.ranks[0]:
            for other in whole.get(rank, [])[:MOST_SWAPS]:
                yield {table: state.placement[other], other: own}


def _other_ways(state: State, table: int, idle: np.ndarray, costs: Surrogate) -> Iterator[Changes]:
    """Divided by rows or columns over the idlest ranks, or replicated."""
    problem = costs.problem
    for split, number in ways(problem, problem.tables[table]):
        placed = on_ranks(split, idle[:number].tolist())
        if split is not Split.TABLE and placed != state.placement[table]:
            yield {table: placed}
