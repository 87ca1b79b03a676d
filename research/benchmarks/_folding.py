"""Step times of plans, folded, whole and grown, as the analytical model has them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
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
