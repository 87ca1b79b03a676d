"""Interventions of the embedded data set: pairs of runs that differ by one known change."""

from __future__ import annotations

from dataclasses import replace

from research.recording.cpu_gloo_runs import (
    CNN_OVERLAPPED,
    DLRM_OVERLAPPED,
    FAST,
    MEDIUM,
    PAIRED,
    SLOW,
    TRANSFORMER_OVERLAPPED,
    TRANSFORMER_PIPELINE,
)
from research.recording.plan import Change, Pair
from research.recording.spec import RunSpec, Sleep
from research.recording.workloads.cnn import Cnn
from research.recording.workloads.dlrm import Dlrm, Sharding
from research.recording.workloads.transformer import Parallel, Transformer
from research.recording.workloads.workload import Place, Workload

REPEATED_OP = {"dlrm": "aten::bmm", "transformer": "aten::linear", "cnn": "aten::conv2d", "moe": "aten::bmm"}
SLEEPS = (
    Sleep(0, Place.START, 4000.0), Sleep(1, Place.BACKWARD, 6000.0), Sleep(0, Place.OPTIMIZER, 10000.0),
    Sleep(1, Place.START, 16000.0), Sleep(0, Place.BACKWARD, 24000.0), Sleep(1, Place.OPTIMIZER, 5000.0),
    Sleep(1, Place.START, 8000.0), Sleep(0, Place.START, 12000.0), Sleep(0, Place.BACKWARD, 5000.0),
    Sleep(1, Place.BACKWARD, 12000.0), Sleep(1, Place.OPTIMIZER, 20000.0), Sleep(0, Place.OPTIMIZER, 7000.0),
)  # fmt: skip
# (which of PAIRED, times): enough to be seen, and few enough to leave the step a step.
REPEATS = ((0, 9), (0, 17), (1, 17), (2, 5), (3, 4), (3, 7), (4, 5), (5, 3), (6, 4), (7, 5))
LARGER_BATCH: tuple[tuple[Workload, int], ...] = (
    (Dlrm(tables=4, rows=100_000, dim=32, batch=512), 1024),
    (Dlrm(tables=4, rows=100_000, dim=64, batch=1024), 2048),
    (Dlrm(tables=6, rows=100_000, dim=32, batch=256), 1024),
    (Dlrm(tables=4, rows=100_000, dim=16, batch=256, sharding=Sharding.ROW), 1024),
    (Dlrm(tables=4, rows=100_000, dim=16, batch=256, sharding=Sharding.COLUMN), 1024),
    (Transformer(layers=2, width=128, sequence=64, batch=4, parallel=Parallel.FSDP), 16),
    (Transformer(layers=2, width=128, sequence=64, batch=4, parallel=Parallel.TP), 16),
    (Transformer(layers=2, width=256, sequence=64, batch=4, parallel=Parallel.TP), 8),
    (TRANSFORMER_PIPELINE[2], 4),
    (TRANSFORMER_PIPELINE[3], 4),
    (Cnn(blocks=1, channels=8, image=32, batch=16), 48),
    (Cnn(blocks=1, channels=16, image=32, batch=16), 32),
    (Cnn(blocks=1, channels=48, image=24, batch=8), 16),
)
LARGER_TABLE = ((Dlrm(tables=4, rows=100_000, dim=32, batch=1024), 400_000),)


def pairs() -> tuple[Pair, ...]:
    """All of them, kind by kind."""
    return (*_sleeps(), *_links(), *_repeats(), *_slow_ranks(), *_sizes(), *_blocking())


def _sleeps() -> list[Pair]:
    result = []
    for number, sleep in enumerate(SLEEPS):
        a = RunSpec(PAIRED[number % len(PAIRED)])
        result.append(Pair(Change.SLEEP, a, replace(a, sleep=sleep), sleep.edit))
    return result


def _links() -> list[Pair]:
    return [
        Pair(Change.LINK, RunSpec(program, link=a), RunSpec(program, link=b), {"rate_gbit_per_s": b.rate_gbit_per_s})
        for program in PAIRED
        for a, b in ((FAST, MEDIUM), (MEDIUM, SLOW))
    ]


def _repeats() -> list[Pair]:
    """On every rank."""
    return [_repeat(Change.REPEAT, PAIRED[program], times, None) for program, times in REPEATS]


def _slow_ranks() -> list[Pair]:
    """On one rank, for which the other waits."""
    return [
        _repeat(Change.SLOW_RANK, PAIRED[program], 2 * times, number % 2)
        for number, (program, times) in enumerate(REPEATS)
    ]


def _repeat(change: Change, program: Workload, times: int, rank: int | None) -> Pair:
    repeating = replace(program, repeats=times, repeating_rank=rank)  # type: ignore[type-var]
    edit = {"op": REPEATED_OP[program.kind], "times": times, "rank": rank}
    return Pair(change, RunSpec(program), RunSpec(repeating), edit)


def _sizes() -> list[Pair]:
    result = []
    for program, batch in LARGER_BATCH:
        larger = replace(program, batch=batch)  # type: ignore[type-var]
        result.append(Pair(Change.SIZE, RunSpec(program), RunSpec(larger), {"parameter": "batch", "to": batch}))
    for table, rows in LARGER_TABLE:
        result.append(
            Pair(Change.SIZE, RunSpec(table), RunSpec(replace(table, rows=rows)), {"parameter": "rows", "to": rows})
        )
    return result


def _blocking() -> list[Pair]:
    """B waits for its collectives where they are issued."""
    over_a_link: tuple[Workload, ...] = (*DLRM_OVERLAPPED, *TRANSFORMER_OVERLAPPED, *CNN_OVERLAPPED)
    on_loopback = DLRM_OVERLAPPED
    runs = [RunSpec(w, link=MEDIUM) for w in over_a_link] + [RunSpec(w) for w in on_loopback]
    return [Pair(Change.BLOCKING, a, b, {"blocking": True}) for a, b in zip(runs[::2], runs[1::2], strict=True)]


def only_paired(plain: tuple[RunSpec, ...], all_pairs: tuple[Pair, ...]) -> tuple[RunSpec, ...]:
    """Runs that serve pairs only."""
    known = set(plain)
    return tuple(dict.fromkeys(run for pair in all_pairs for run in (pair.a, pair.b) if run not in known))
