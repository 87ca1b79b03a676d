"""Which part a node belongs to, and what a factor on it does."""

from __future__ import annotations

import numpy as np
import pytest
from toys import make_graph, two_rank_graph

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core.errors import InputError
from gnnperf.core.schema import NodeType, Segment
from gnnperf.hardware import default_cluster, load_device
from gnnperf.schedule import schedule
from research.fitting.adapt import (
    CALLS,
    CHOICES,
    HOST,
    KERNELS,
    NO_PART,
    PARTS,
    TRANSFERS,
    ScaledPredictor,
    StepLinearBounds,
    linear_bounds_of,
    parts_of,
)

CLUSTER = default_cluster(load_device("a100_sxm_80gb"))


def test_nodes_by_part() -> None:
    host = {"node_type": NodeType.HOST, "segment": Segment.T2, "thread": 0}
    rows: list[dict[str, object]] = [
        {**host, "op_name": "aten::mm"}, {**host, "op_name": "c10d::allreduce_"}, {**host, "op_name": None},
        {"node_type": NodeType.COMPUTE, "op_name": "aten::mm"}, {"node_type": NodeType.MEMORY},
        {"node_type": NodeType.COMM, "op_name": "c10d::allreduce_"},
        {"node_type": NodeType.COLLECTIVE, "op_name": "c10d::allreduce_"}, {"node_type": NodeType.DEVICE},
    ]  # fmt: skip
    parts = [HOST, CALLS, HOST, KERNELS, KERNELS, TRANSFERS, TRANSFERS, NO_PART]
    assert parts_of(make_graph(rows, [])).node.tolist() == parts


def test_factors_move_their_part_isolated() -> None:
    graph = two_rank_graph()
    base = AnalyticPredictor().predict(graph, CLUSTER)
    result = ScaledPredictor(AnalyticPredictor(), (2.0, 3.0, 5.0, 7.0, 11.0)).predict(graph, CLUSTER)
    expected = np.array([2.0, 3.0, 5.0, 7.0, 11.0, 1.0])[parts_of(graph).node]
    assert result.latency_us == pytest.approx(base.latency_us * expected)
    assert result.lag_us == pytest.approx(base.lag_us)  # no lag of it lies between kernels


@pytest.mark.parametrize("factors", [(1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 0.0, 1.0), (1.0, 1.0, 1.0, 1.0, -2.0)])
def test_bad_factors_are_refused(factors: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="host, calls, kernels, transfers, gaps"):
        ScaledPredictor(AnalyticPredictor(), factors)


@pytest.mark.parametrize("factors", [*CHOICES, (1.2, 0.7, 0.9, 1.3, 2.0)])
def test_linear_bounds_answer_as_scaled_schedules_do(factors: tuple[float, ...]) -> None:
    graph = two_rank_graph()
    linear_bounds = StepLinearBounds(linear_bounds_of(AnalyticPredictor().predict(graph, CLUSTER))[None])
    given = ScaledPredictor(AnalyticPredictor(), factors).predict(graph, CLUSTER)
    exact = schedule(graph, given.latency_us, given.lag_us).makespan_us
    assert linear_bounds.step_us(np.array(factors)) == pytest.approx([exact])


def test_every_part_states_why_and_how_far() -> None:
    assert all(part.why and 0 < part.spread <= 1 for part in PARTS)
