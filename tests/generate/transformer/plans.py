"""Small plans that the tests share."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnperf.analytic import AnalyticPredictor
from gnnperf.generate.transformer.plan import Parallelism, Pipeline, Schedule, Transformer, TransformerPlan
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.hardware import default_cluster, load_device
from gnnperf.schedule import schedule_with_contention

MODEL = Transformer(layers=4, hidden=256, heads=4, sequence=128, vocabulary=1000)


def small(
    tensor: int = 1, pipeline: int = 1, data: int = 1, *, batch: int = 4,
    micro_batch: int = 1, order: Pipeline = Pipeline.ONE_F_ONE_B, **settings: Any,
) -> TransformerPlan:  # fmt: skip
    """`batch` micro-batches of `micro_batch` samples per replica."""
    ways = Parallelism(tensor, pipeline, data)
    return TransformerPlan("small", MODEL, ways, Schedule(batch * data * micro_batch, micro_batch, order, **settings))


def step_us(graph: ExecutionGraph) -> float:
    """As the analytical model and the schedule have it, on A100s."""
    given = AnalyticPredictor().predict(graph, default_cluster(load_device("a100_sxm_80gb")))
    assert given.isolated is not None
    assert np.isfinite(given.latency_us).all()
    scheduled = schedule_with_contention(graph, given.latency_us, given.lag_us, given.isolated)
    return scheduled.schedule.makespan_us
