"""Problems of placing tables, and how placements are timed."""

from __future__ import annotations

import pytest

from research.recording.sharding_problems import (
    NUM_CANDIDATES,
    NUM_PROBLEMS,
    Problem,
    cpu_sharding,
    greedy,
    problems,
)
from research.recording.workloads.mixed_dlrm import PlacedTable
from research.recording.workloads.sharded_tables import Sharding

SMALL = (PlacedTable(30, 4, 2, 1.0), PlacedTable(20, 4, 1, 1.0, rank=1))


def test_problems_are_always_the_same() -> None:
    assert problems() == problems() and len(problems()) == NUM_PROBLEMS


@pytest.mark.parametrize("problem", problems(), ids=lambda problem: problem.recorded.label)
def test_a_recording_shows_every_kind_and_candidates_differ(problem: Problem) -> None:
    recorded = problem.recorded.tables
    assert {table.sharding for table in recorded} == set(Sharding)
    assert [table.rank for table in recorded[:2]] == [0, 1]
    assert len(set(problem.candidates)) == NUM_CANDIDATES and recorded not in problem.candidates
    for tables in problem.candidates:
        assert [(t.rows, t.dim, t.pooling, t.skew) for t in tables] == [
            (t.rows, t.dim, t.pooling, t.skew) for t in recorded
        ]
        assert all(any(table.is_on(rank) for table in tables) for rank in range(2))


def test_greedy_puts_the_heaviest_first() -> None:
    tables = [PlacedTable(rows, 1, 1, 1.0) for rows in (5, 9, 4, 3)]
    placed = greedy(tables, 2, lambda table: float(table.rows))
    assert [table.rank for table in placed] == [1, 0, 1, 0]  # 9 | 5, 4 | 3: 12 and 9


def test_the_plan_records_every_problem_once() -> None:
    plan = cpu_sharding()
    assert len(plan.runs) == NUM_PROBLEMS and plan.repeats == 1
    assert not plan.splits["placements"]["train"]
