from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic import cluster, toy_run

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core.schema import Source
from gnnperf.gnn.checkpoint import Checkpoint
from gnnperf.predict.gnn import GnnPredictor
from tests.predict.doubled import doubling


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """A network that answers twice the base for compute nodes and the base elsewhere."""
    return doubling(tmp_path)


def test_base_times_residual(checkpoint: Checkpoint) -> None:
    graph = toy_run(9)
    answer = GnnPredictor(checkpoint).predict(graph, cluster())
    base = AnalyticPredictor(checkpoint.constants).predict(graph, cluster())
    assert answer.latency_us[[3, 10]] == pytest.approx(2 * base.latency_us[[3, 10]], rel=1e-5)
    assert answer.latency_us[0] == pytest.approx(base.latency_us[0])
    assert answer.latency_us[[4, 15, 16, 17]].tolist() == [0.0] * 4  # arrival, devices, link
    assert np.array_equal(answer.analytic_latency_us, base.latency_us, equal_nan=True)
    assert np.array_equal(answer.lag_us, base.lag_us)
    assert (answer.source == Source.GNN)[:15].tolist() == [n in (3, 10) for n in range(15)]  # then hardware nodes
    assert set(answer.source) == {Source.GNN, Source.ANALYTIC}  # silent heads give the base, and it is called so
    assert answer.uncovered_ops == {}
    assert np.isnan(answer.latency_low_us).all()


def test_a_checkpoint_that_starts_from_floors_answers_with_them(checkpoint: Checkpoint) -> None:
    floors = replace(checkpoint.floors, residual=False)
    answer = GnnPredictor(replace(checkpoint, floors=floors)).predict(toy_run(9), cluster())
    assert answer.latency_us[[3, 10]] == pytest.approx(2 * floors.by_segment_us["compute/"], rel=1e-5)
    assert answer.latency_us[0] == pytest.approx(floors.by_segment_us["host/T2"])
    assert answer.source[0] == Source.GNN  # a silent head, but not the analytical answer


def test_an_op_that_was_never_measured_is_left_to_others(checkpoint: Checkpoint) -> None:
    graph = toy_run(9)
    names = graph.nodes["op_name"].astype(object)
    names[3] = "aten::new"
    answer = GnnPredictor(checkpoint).predict(replace(graph, nodes=graph.nodes.assign(op_name=names)), cluster())
    assert np.isnan(answer.latency_us[3])
    assert answer.source[3] == Source.UNCOVERED
    assert answer.uncovered_ops == {"aten::new": 1}
    assert np.isfinite(np.delete(answer.latency_us, 3)).all()


def test_waiting_for_untraced_peers_is_not_predicted(checkpoint: Checkpoint) -> None:
    graph = toy_run(9)
    segment = graph.nodes["segment"].astype(object)
    segment[2] = "peer_wait"
    answer = GnnPredictor(checkpoint).predict(replace(graph, nodes=graph.nodes.assign(segment=segment)), cluster())
    assert answer.source[2] == Source.UNCOVERED


def test_measured_times_do_not_change_the_answer(checkpoint: Checkpoint) -> None:
    graph = toy_run(9)
    other = replace(graph, nodes=graph.nodes.assign(latency_us=np.nan, start_us=np.nan, blocked_us=9.0))
    predictor = GnnPredictor(checkpoint)
    assert np.array_equal(
        predictor.predict(graph, cluster()).latency_us, predictor.predict(other, cluster()).latency_us
    )
