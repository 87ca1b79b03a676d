"""The row answers as predict.py does, from the network of another row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from synthetic import prepared

from gnnperf.gnn.data.step_time import contended_step_time_us
from gnnperf.predict.gnn import BlendedPredictor, GnnPredictor
from research.benchmarks import _cached_networks
from research.benchmarks._cached_networks import CachedNetwork
from research.benchmarks._hybrid_row import Hybrid
from tests.research.benchmarks.test_retained_networks import learner


def test_it_takes_the_network_that_is_there_and_blends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row, data = CachedNetwork(learner(), tmp_path / "kept"), prepared(tmp_path)
    step, checkpoint = data.steps["test"][0], row.checkpoint(data, 0)
    monkeypatch.setattr(_cached_networks, "fit", None)  # would fail if it were called
    answer = Hybrid(row).fit(data, 0)
    given = BlendedPredictor(GnnPredictor(checkpoint)).predict(step.graph, step.cluster)
    known = np.isfinite(given.latency_us) & (step.nodes["node_type"] == "compute").to_numpy()
    assert known.any()
    assert answer.latency_us(step)[known] == pytest.approx(given.latency_us[known])  # nothing overlaps in the toy
    assert answer.step_us(step) == contended_step_time_us(step, given.scheduled_us)
    monkeypatch.setattr(BlendedPredictor, "predict", None)
    assert np.array_equal(answer.latency_us(step), answer.latency_us(step), equal_nan=True)  # requested once
