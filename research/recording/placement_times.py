"""Measure candidate placements of tables: the same ranks run every candidate, in turns, several times over.

visit    build tables on kept memory | a few steps dropped | timed steps, median
round    every candidate once, in another order each time
pass     all rounds of a problem; passes are minutes apart, and their difference is the noise
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist

from gnnperf.record.launcher import Transport, launch, put_transport_first
from gnnperf.record.step_clock import garbage_set_aside
from research.recording.sharding_problems import Problem, problems
from research.recording.workloads.mixed_dlrm import Batch, MixedDlrm, Network, batches, trainer
from research.recording.workloads.workload import SEED

DROPPED, TIMED, ROUNDS = 3, 10, 5
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Measured:
    """One pass over a problem.

    Attributes:
        problem: its label.
        step_us: [num_candidates] median over rounds of the median step, as the slowest rank saw it.
        rounds_us: [rounds][num_candidates].
    """

    problem: str
    step_us: tuple[float, ...]
    rounds_us: tuple[tuple[float, ...], ...]


def measure(problem: Problem, folder: Path) -> Measured:
    """One pass over a problem on ranks of this machine."""
    file = folder / f"{problem.recorded.label}.json"
    launch(_measure_rank, (problem, file), world_size=2, timeout_s=TIMEOUT_S)
    rounds = [tuple(each) for each in json.loads(file.read_text())]
    return Measured(problem.recorded.label, tuple(map(median, zip(*rounds, strict=True))), tuple(rounds))


def measure_all(folder: Path, wanted: Sequence[str] = ()) -> list[dict[str, object]]:
    """One pass over all problems, or those wanted, for a JSON file."""
    chosen = [problem for problem in problems() if not wanted or problem.recorded.label in wanted]
    result = []
    for problem in chosen:
        measured = measure(problem, folder)
        print(
            f"{measured.problem}: {min(measured.step_us) / 1e3:.2f} to {max(measured.step_us) / 1e3:.2f} ms", flush=True
        )
        result.append(asdict(measured))
    return result


def _measure_rank(problem: Problem, file: Path) -> None:
    """What one rank does; the first one writes."""
    torch.manual_seed(SEED)
    network, data, memory = Network(problem.recorded), batches(problem.recorded), _Memory(problem)
    order, models = random.Random(SEED), problem.models()
    rounds = []
    with garbage_set_aside():
        for _ in range(ROUNDS):
            turns = order.sample(range(len(models)), len(models))
            result = {turn: _visit(models[turn], network, data, memory) for turn in turns}
            rounds.append([result[number] for number in range(len(models))])
    slowest = torch.tensor(rounds)  # [rounds, candidates]
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        file.write_text(json.dumps(slowest.tolist()))


def _visit(model: MixedDlrm, network: Network, data: list[Batch], memory: _Memory) -> float:
    """Median step in microseconds, from one start to the next."""
    loop = trainer(model, network, data, memory)
    put_transport_first(Transport.REAL_TIME)
    dist.barrier()
    starts = []
    for _ in range(DROPPED + TIMED + 1):
        starts.append(time.perf_counter_ns())
        loop.step()
    steps = [(b - a) / 1e3 for a, b in zip(starts[DROPPED:-1], starts[DROPPED + 1 :], strict=True)]
    return median(steps)


class _Memory:
    """The memory of each table, once per rank: placements use it in turn, so that all meet the same pages."""

    def __init__(self, problem: Problem) -> None:
        self.blocks = [torch.rand(table.rows * table.dim) for table in problem.recorded.tables]

    def __call__(self, table: int, rows: int, columns: int) -> torch.Tensor:
        """[rows, columns] of a table's block."""
        block = self.blocks[table]
        if rows * columns > block.numel():  # rows that the ranks cannot share equally
            block = self.blocks[table] = torch.rand(rows * columns)
        return block[: rows * columns].view(rows, columns)
