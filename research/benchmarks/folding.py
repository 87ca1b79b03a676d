"""Large jobs in the nodes of a few ranks: time and memory of a prediction, folded against whole, world sizes.

    python -m research.benchmarks folding

Times are of this machine, in fresh processes on two cores; run it with nothing else running.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnperf.analytic import AnalyticPredictor
from gnnperf.generate.folding.fold import fold
from gnnperf.generate.transformer.build import build_plan
from gnnperf.generate.transformer.memory import every_rank
from gnnperf.generate.transformer.plan import Parallelism, Pipeline, Reduction, Schedule, Transformer, TransformerPlan
from gnnperf.generate.transformer.read import plan_from
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import conf_dir, load_device, read_yaml
from gnnperf.predict.target import choose_target
from gnnperf.schedule import Schedule as Scheduled
from gnnperf.schedule import schedule_with_contention
from gnnperf.whatif import WorldSize
from research.benchmarks._frame import run_main

MODEL = Transformer(layers=8, hidden=512, heads=8, sequence=256, vocabulary=8000)
FITTING: tuple[tuple[str, Parallelism, dict[str, Any]], ...] = (
    ("tensor 2, pipeline 2, data 2", Parallelism(2, 2, 2), {}),
    ("tensor 4, pipeline 2, data 8", Parallelism(4, 2, 8), {}),
    ("the same, interleaved", Parallelism(4, 2, 8), {"pipeline": Pipeline.INTERLEAVED, "chunks": 2}),
    ("the same, gradients in buckets", Parallelism(4, 2, 8), {"reduction": Reduction.BUCKETS, "bucket_bytes": 4e6}),
    ("tensor 8, pipeline 4, data 8", Parallelism(8, 4, 8), {}),
)


@dataclass(frozen=True)
class Program:
    """A predicted graph."""

    step_us: float
    nodes: int


@dataclass(frozen=True)
class Both:
    """A program folded and whole."""

    name: str
    ranks: int
    folded_ranks: int
    nodes: int
    folded_nodes: int
    step_us: float
    apart_us: float
    start_apart_us: float
    whole_s: float
    folded_s: float


def read_plan(name: str) -> TransformerPlan:
    """A plan that ships."""
    return plan_from(read_yaml(conf_dir("plan") / f"{name}.yaml"), name)


def planned_us(plan: TransformerPlan, hardware: str) -> float:
    """Step time of a plan."""
    return scheduled(build_plan(plan), hardware).makespan_us


def grown_us(plan: TransformerPlan, ranks: int, hardware: str) -> Program:
    """A plan's graph on another number of ranks."""
    graph = WorldSize(ranks)(build_plan(plan)).graph
    return Program(scheduled(graph, hardware).makespan_us, graph.num_nodes)


def scheduled(graph: ExecutionGraph, hardware: str) -> Scheduled:
    """The schedule of a step on the device's default cluster."""
    given = AnalyticPredictor().predict(graph, choose_target(graph, load_device(hardware), None).cluster)
    assert given.isolated is not None and not given.uncovered_ops
    return schedule_with_contention(graph, given.latency_us, given.lag_us, given.isolated).schedule


def fits_both() -> Iterator[Both]:
    """Plans small enough for all of their ranks."""
    for name, ways, settings in FITTING:
        plan = TransformerPlan(name, MODEL, ways, Schedule(4 * ways.data, 1, **settings))
        whole = build_plan(plan, every_rank(ways))
        all_of_it, whole_s = _timed(whole)
        folded = fold(whole)
        part, folded_s = _timed(folded.graph)
        starts = np.abs(part.start_us[folded.node] - all_of_it.start_us)
        yield Both(
            name, len(whole.ranks), len(folded.graph.ranks), whole.num_nodes, folded.graph.num_nodes,
            all_of_it.makespan_us, abs(part.makespan_us - all_of_it.makespan_us), float(starts.max()), whole_s,
            folded_s,
        )  # fmt: skip


def _timed(graph: ExecutionGraph) -> tuple[Scheduled, float]:
    begin = time.perf_counter()
    result = scheduled(graph, "a100_sxm_80gb")
    return result, time.perf_counter() - begin


PLAN, HARDWARE = "gpt_405b", "h100_sxm"
PUBLISHED_FLOPS_PER_S = 400e12  # per GPU, of Llama 3 405B on these 16,384 (arXiv 2407.21783, table 4)
PUBLISHED_PARAMETERS = 405e9
CORES = 2
OVERRIDES = ("cluster=hgx_h100", "cluster.ranks_per_node=4", "plan.schedule.recompute=selective",
             "plan.schedule.chunks=4", "whatif=[{world_size:{ranks:8192}}]")  # fmt: skip
PREDICT_ONLY = """
import sys
from research.benchmarks.folding import planned_us, read_plan
print(planned_us(read_plan(sys.argv[1]), sys.argv[2]))
"""


@dataclass(frozen=True)
class Ran:
    """A process: seconds, of wall clock and of processors, and its peak of resident memory."""

    wall_s: float
    processor_s: float
    peak_bytes: float


def ran(command: list[str]) -> Ran:
    """Run a command in a process of its own on CORES cores; what it prints is dropped."""
    begin = time.perf_counter()
    child = os.fork()
    if child == 0:
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:CORES]))
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.execv(command[0], command)
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        sys.exit(f"failed: {' '.join(command)}")
    wall_s = time.perf_counter() - begin
    return Ran(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024.0)


def _print_large() -> None:
    plan = read_plan(PLAN)
    ways = plan.parallelism
    divided = f"tensor {ways.tensor} x pipeline {ways.pipeline} x data {ways.data}"
    print(f"{PLAN}: {ways.world_size:,} ranks, {divided}, {HARDWARE}; load of the machine {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", "predict.py", f"plan={PLAN}", f"hardware={HARDWARE}"]
        for name, own in (
            ("prediction (plan, graph, latencies, schedule)", [sys.executable, "-c", PREDICT_ONLY, PLAN, HARDWARE]),
            ("predict.py, all four files", [*command, f"out={folder}/a"]),
            ("predict.py, overrides and world_size", [*command, f"out={folder}/b", *OVERRIDES]),
        ):  # fmt: skip
            result = ran(own)
            times = f"{result.wall_s:7.1f} s wall {result.processor_s:7.1f} s processor"
            print(f"  {name:48s}{times} {result.peak_bytes / 1e9:6.2f} GB peak", flush=True)
    step_s = planned_us(plan, HARDWARE) / 1e6
    tokens = plan.schedule.global_batch * plan.model.sequence
    published_s = 6 * PUBLISHED_PARAMETERS * tokens / ways.world_size / PUBLISHED_FLOPS_PER_S
    print(f"  step {step_s:.2f} s; 6 x parameters x tokens at the published rate of Llama 3 405B: {published_s:.2f} s")


def _print_folded() -> None:
    print("folded against whole, analytical latencies, schedule with contention:")
    print("  | program | ranks | nodes | step, apart us | starts apart, us | seconds whole -> folded |")
    for each in fits_both():
        print(
            f"  | {each.name} | {each.ranks} -> {each.folded_ranks} | {each.nodes:,} -> {each.folded_nodes:,} "
            f"| {each.step_us / 1e3:.1f} ms, {each.apart_us:.2g} | {each.start_apart_us:.2g} "
            f"| {each.whole_s:.1f} -> {each.folded_s:.1f} |", flush=True,
        )  # fmt: skip


def _print_world_sizes() -> None:
    plan = read_plan("gpt2_345m")
    print(f"world_size, {plan.name}, from 8 replicas, {HARDWARE}; and the plan of so many replicas:")
    for ranks in (8, 64, 1024, 16_384):
        batch = plan.schedule.global_batch // 8 * ranks
        wanted = replace(plan, parallelism=replace(plan.parallelism, data=ranks),
                         schedule=replace(plan.schedule, global_batch=batch))  # fmt: skip
        result = grown_us(plan, ranks, HARDWARE)
        apart = abs(result.step_us - planned_us(wanted, HARDWARE))
        step = f"step {result.step_us / 1e3:.2f} ms, {apart:.2g} us from the plan's"
        print(f"  {ranks:6,} ranks: {result.nodes:,} nodes, {step}", flush=True)


def main() -> None:
    """Print all three."""
    if not Path("predict.py").is_file():
        sys.exit("run it from the root of the repository")
    np.seterr(all="raise", under="ignore")
    _print_large()
    _print_folded()
    _print_world_sizes()


if __name__ == "__main__":
    run_main(main)
