"""Problems of placing embedding tables: tables, how they are placed while a run is recorded, and other placements.

The recorded placement shows every kind of sharding: one table by row, one by column, all others whole, in turn over the
ranks. Candidates are drawn; next to them stand what simple rules would choose.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from research.recording.plan import Plan
from research.recording.run import Steps
from research.recording.spec import RunSpec
from research.recording.workloads.mixed_dlrm import MixedDlrm, PlacedTable
from research.recording.workloads.sharded_tables import Sharding

DRAW_SEED = 2404
NUM_PROBLEMS, NUM_CANDIDATES = 24, 24
ROWS = (500, 2_000, 10_000, 50_000, 200_000)
DIMS = (8, 16, 32, 64, 128)
POOLING = (1, 2, 5, 10, 20, 40)
SKEW = (1.0, 2.0, 4.0)
BATCHES = (64, 128, 256)
WHOLE_SHARE = (0.5, 0.75, 1.0)  # of the tables of a candidate, how many stay whole

Tables = tuple[PlacedTable, ...]


@dataclass(frozen=True)
class Problem:
    """One model and the placements of its tables that are compared.

    Attributes:
        recorded: the model as it is recorded.
        candidates: placements, all different, also up to exchanging ranks; none of them is the recorded one.
    """

    recorded: MixedDlrm
    candidates: tuple[Tables, ...]


def problems(ranks: int = 2) -> tuple[Problem, ...]:
    """All problems, always the same ones."""
    draw = random.Random(DRAW_SEED)
    return tuple(_problem(number, ranks, draw) for number in range(NUM_PROBLEMS))


def cpu_sharding() -> Plan:
    """The plan of one recorded run per problem, on two ranks of this machine; placements are predicted from these."""
    runs = tuple(RunSpec(problem.recorded) for problem in problems())
    return Plan(
        name="cpu-sharding",
        runs=runs,
        steps=Steps(warmup=6, unprofiled=32, profiled=8),
        splits={"placements": {"train": [], "val": [], "test": [run.name for run in runs]}},
        axes={"placements": "all serve the comparison of placements (placements.json), for good"},
        repeats=1,
        min_gap_s=0.0,
    )


def _problem(number: int, ranks: int, draw: random.Random) -> Problem:
    tables = tuple(_table(draw) for _ in range(draw.randint(4, 8)))
    recorded = MixedDlrm(f"p{number:02d}", as_recorded(tables, ranks), draw.choice(BATCHES))
    seen = {canonical(recorded.tables)}
    candidates: list[Tables] = []
    rules: list[Callable[[], Tables]] = [lambda: by_size(tables, ranks), lambda: by_lookups(tables, ranks)]
    while len(candidates) < NUM_CANDIDATES:
        result = rules.pop(0)() if rules else _drawn(tables, ranks, draw)
        if canonical(result) not in seen and all(any(t.is_on(rank) for t in result) for rank in range(ranks)):
            seen.add(canonical(result))
            candidates.append(result)
    return Problem(recorded, tuple(candidates))


def _table(draw: random.Random) -> PlacedTable:
    rows, dim = draw.choice(ROWS), draw.choice(DIMS)
    return PlacedTable(rows, dim, draw.choice(POOLING), draw.choice(SKEW))


def as_recorded(tables: Sequence[PlacedTable], ranks: int) -> Tables:
    """Whole ones in turn, but for two after the first of every rank: one by row, one by column."""
    kinds = {ranks: Sharding.ROW, ranks + 1: Sharding.COLUMN}
    return tuple(
        replace(table, sharding=kinds.get(t, Sharding.TABLE), rank=0 if t in kinds else t % ranks)
        for t, table in enumerate(tables)
    )


def greedy(tables: Sequence[PlacedTable], ranks: int, weight: Callable[[PlacedTable], float]) -> Tables:
    """Whole tables, the heaviest first, each to the rank that holds least."""
    load, place = [0.0] * ranks, {}
    for t in sorted(range(len(tables)), key=lambda t: -weight(tables[t])):
        place[t] = min(range(ranks), key=lambda rank: load[rank])
        load[place[t]] += weight(tables[t])
    return tuple(replace(table, sharding=Sharding.TABLE, rank=place[t]) for t, table in enumerate(tables))


def by_size(tables: Sequence[PlacedTable], ranks: int) -> Tables:
    return greedy(tables, ranks, lambda table: float(table.rows * table.dim))


def by_lookups(tables: Sequence[PlacedTable], ranks: int) -> Tables:
    return greedy(tables, ranks, lambda table: float(table.pooling * table.dim))


def _drawn(tables: Sequence[PlacedTable], ranks: int, draw: random.Random) -> Tables:
    share = draw.choice(WHOLE_SHARE)
    return tuple(_placed(table, ranks, share, draw) for table in tables)


def _placed(table: PlacedTable, ranks: int, share: float, draw: random.Random) -> PlacedTable:
    if draw.random() < share:
        return replace(table, rank=draw.randrange(ranks))
    return replace(table, sharding=draw.choice((Sharding.ROW, Sharding.COLUMN)))


def canonical(tables: Sequence[PlacedTable]) -> tuple[object, ...]:
    """The same for placements that differ by the numbers of the ranks only."""
    order: dict[int, int] = {}
    return tuple(
        order.setdefault(table.rank, len(order)) if table.sharding == Sharding.TABLE else str(table.sharding)
        for table in tables
    )
