"""Programs captured without devices next to recordings of the same programs: ops, shapes, collectives, and step time.

    python -m research.benchmarks capture

Every program of datasets/cpu-gloo that has an undisturbed recording; the link changes nothing of what a rank runs, so
one recording per program and number of ranks. Matched: the share of the recorded step's ops that the captured step has
in the same order, on every rank (longest common subsequence; op, phase, dtype and all shapes must be the same), and of
the captured ones that the recorded step has: the smaller of the two. Collectives likewise: op, kind, bytes, ranks.

Step time: the captured graph, which holds no time at all, answered by the analytical model and scheduled. Constants are
those of the other workloads (host overheads too): neither the program nor its workload was seen. Next to it the same
answer on the recorded graph's structure, and the label: the step without the profiler.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from unittest.mock import patch

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from gnnperf.analytic import AnalyticConstants
from gnnperf.core import InputError
from gnnperf.generate.capturing import capture
from gnnperf.gnn.data.recordings import Recording
from gnnperf.graph import ExecutionGraph
from gnnperf.schedule import common_subsequence, schedule
from research.benchmarks._frame import run_main
from research.benchmarks._recorded_graphs import Graphs, answered, folds, recorded_graphs, recordings
from research.recording.cpu_gloo_runs import plain_runs
from research.recording.spec import RunSpec

STEP = 1  # the second of a window
OPS = ("op_name", "phase", "dtype", "input_dims")
COLLECTIVES = ("op_name", "collective", "message_bytes", "group_size")
MUST = 0.98


@dataclass(frozen=True)
class Row:
    """One program."""

    run: str
    kind: str
    ops: float
    collectives: float
    num_ops: int
    seconds: float
    captured_us: float
    recorded_us: float
    label_us: float


def programs() -> list[RunSpec]:
    """One per program and number of ranks: the loopback run where there is one."""
    chosen: dict[object, RunSpec] = {}
    for spec in sorted(plain_runs(), key=lambda s: s.link.name != "lo"):
        chosen.setdefault((spec.workload, spec.world_size), spec)
    return list(chosen.values())


def kind_of(spec: RunSpec) -> str:
    """dlrm table, transformer ddp, ..."""
    how = getattr(spec.workload, "parallel", None) or getattr(spec.workload, "sharding", None) or "ddp"
    return f"{spec.workload.kind} {how if spec.world_size > 1 else 'one rank'}"


def captured(spec: RunSpec, like: ExecutionGraph) -> ExecutionGraph:
    """The program, placed as its recording. The look-up statistics of the card are no part of a step."""

    def build() -> Callable[[], object]:
        with patch("research.recording.workloads.dlrm.index_statistics", return_value=()):
            return spec.workload.build().step

    return capture(build, spec.world_size, name=spec.name, placement=like.placement)


def matched(ours: ExecutionGraph, theirs: ExecutionGraph, node_type: str, columns: Sequence[str]) -> tuple[int, int]:
    """(matched in order, the longer of the two sequences), summed over ranks; collectives belong to all of them."""
    common = total = 0
    for rank in (-1,) if node_type == "collective" else theirs.ranks:
        a, b = (_contents(graph, node_type, rank, columns) for graph in (ours, theirs))
        codes = pd.factorize(pd.Series(a + b, dtype=object))[0].astype(np.int64)
        common += common_subsequence(codes[: len(a)], codes[len(a) :]).shape[1] if a and b else 0
        total += max(len(a), len(b))
    return common, total


def _contents(graph: ExecutionGraph, node_type: str, rank: int, columns: Sequence[str]) -> list[str]:
    nodes = graph.nodes
    mine = (nodes["node_type"] == node_type) & (nodes["rank"] == rank) & (nodes["step"] == STEP)
    return [str(row) for row in nodes.loc[mine, list(columns)].astype(object).itertuples(index=False, name=None)]


def predicted_us(graph: ExecutionGraph, constants: AnalyticConstants) -> float:
    """The period of one step, with the answers of the analytical model."""
    step = answered(graph.step(STEP), constants)
    latency_us, lag_us = (
        np.nan_to_num(t[c].to_numpy()) for t, c in ((step.nodes, "latency_us"), (step.edges, "lag_us"))
    )
    result = schedule(step, latency_us, lag_us, num_unrolled=4).period_us
    assert result is not None
    return result


def row_of(spec: RunSpec, recorded: ExecutionGraph, label_us: float, constants: AnalyticConstants) -> Row:
    """Capture one program and compare."""
    begin = time.perf_counter()
    ours = captured(spec, recorded)
    seconds = time.perf_counter() - begin
    ops, num_ops = matched(ours, recorded, "compute", OPS)
    collectives, num_collectives = matched(ours, recorded, "collective", COLLECTIVES)
    share = collectives / num_collectives if num_collectives else float("nan")
    return Row(spec.name, kind_of(spec), ops / num_ops, share, num_ops, seconds,
               predicted_us(ours, constants), predicted_us(recorded, constants), label_us)  # fmt: skip


def label_of(run: str, result: dict[str, Recording]) -> float:
    """Mean over the run's recordings of the median step without the profiler, us."""
    return float(np.mean([r.unprofiled_us for r in result.values() if r.run == run]))


def main() -> None:
    """Print what is matched and how long steps take, per kind of program, and what is refused."""
    result, graphs = recordings(), recorded_graphs()
    constants = {fold.workload: fold.shared for fold in folds(result, graphs)}
    rows, refused = _rows(result, graphs, constants)
    table = pd.DataFrame(rows)
    console = Console(width=130)
    console.print(_matches(table))
    console.print(_times(table))
    worst = table.nsmallest(3, "ops")[["run", "ops"]].itertuples(index=False, name=None)
    console.print("least matched: " + ", ".join(f"{run} {share:.2%}" for run, share in worst))
    console.print(f"below {MUST:.0%}: {int((table['ops'] < MUST).sum())} of {len(table)} programs")
    for message, runs in refused.items():
        console.print(f"refused ({len(runs)} programs, {runs[0]} ...): {message}")


def _rows(
    result: dict[str, Recording], graphs: Graphs, constants: dict[str, AnalyticConstants]
) -> tuple[list[Row], dict[str, list[str]]]:
    rows, refused = [], dict[str, list[str]]()
    for spec in programs():
        name = next((n for n, r in result.items() if r.run == spec.name), None)
        if name is None:
            continue
        try:
            rows.append(row_of(spec, graphs[name], label_of(spec.name, result), constants[result[name].workload]))
        except InputError as error:
            refused.setdefault(re.sub(r"^rank \d+, ", "", f"{error.where}: {error.what}"), []).append(spec.name)
    return rows, refused


def _matches(table: pd.DataFrame) -> Table:
    shown = Table(
        "program", "programs", "ops", "ops matched %, mean", "worst", "collectives matched %", "s to capture, median"
    )
    for kind, rows in [*table.groupby("kind"), ("all", table)]:
        shown.add_row(str(kind), str(len(rows)), str(rows["num_ops"].sum()), f"{100 * rows['ops'].mean():.2f}",
                      f"{100 * rows['ops'].min():.2f}", f"{100 * rows['collectives'].mean():.2f}",
                      f"{rows['seconds'].median():.1f}")  # fmt: skip
    return shown


def _times(table: pd.DataFrame) -> Table:
    shown = Table("program", "programs", "captured: error %, mean", "bias", "recorded graph: error %, mean", "bias",
                  "the two apart %, mean")  # fmt: skip
    for kind, rows in [*table.groupby("kind"), ("all", table)]:
        label = rows["label_us"]
        errors = [rows[c] / label - 1.0 for c in ("captured_us", "recorded_us")]
        apart = (rows["captured_us"] / rows["recorded_us"] - 1.0).abs()
        records = [f(e) for e in errors for f in (partial(_percent, size=True), partial(_percent, size=False))]
        shown.add_row(str(kind), str(len(rows)), *records, f"{100 * apart.mean():.2f}")
    return shown


def _percent(errors: pd.Series, *, size: bool) -> str:
    return f"{100 * (errors.abs() if size else errors).mean():{'.1f' if size else '+.1f'}}"


if __name__ == "__main__":
    run_main(main)
