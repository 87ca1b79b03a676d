"""Rows of networks that are trained once."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic import toy_data

from gnnperf.gnn.data.step_time import contended_step_time_us
from gnnperf.predict.gnn import BlendedPredictor, GnnPredictor
from research.benchmarks import _networks
from research.benchmarks._networks import CachedNetwork, Hybrid
from tests.research.baselines.made_data import learner


def test_a_row_is_trained_once_for_what_the_data_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row, data = CachedNetwork(learner(), tmp_path / "kept"), toy_data()
    step = data.steps["test"][0]
    first = row.fit(data, 0).latency_us(step)
    assert np.array_equal(first, learner().fit(data, 0).latency_us(step), equal_nan=True)
    monkeypatch.setattr(_networks, "fit", None)  # would fail if it were called
    again = CachedNetwork(learner(), tmp_path / "kept").fit(toy_data(), 0).latency_us(step)
    assert np.array_equal(again, first, equal_nan=True)
    external = replace(data, fingerprint="tested on other data", split=replace(data.split, axis="other"))
    assert np.array_equal(row.fit(external, 0).latency_us(step), first, equal_nan=True)
    for other, seed in ((replace(data, training_fingerprint="of other data"), 0), (data, 1)):
        with pytest.raises(TypeError):
            row.fit(other, seed)


def test_where_networks_are_retained_is_no_part_of_the_row() -> None:
    assert repr(CachedNetwork(learner(), Path("here"))) == repr(CachedNetwork(learner(), Path("there")))


def test_the_hybrid_blends_the_network_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row, data = CachedNetwork(learner(), tmp_path / "kept"), toy_data()
    step, checkpoint = data.steps["test"][0], row.checkpoint(data, 0)
    monkeypatch.setattr(_networks, "fit", None)  # would fail if it were called
    estimate = Hybrid(row).fit(data, 0)
    given = BlendedPredictor(GnnPredictor(checkpoint)).predict(step.graph, step.cluster)
    known = np.isfinite(given.latency_us) & (step.nodes["node_type"] == "compute").to_numpy()
    assert known.any()
    assert estimate.latency_us(step)[known] == pytest.approx(given.latency_us[known])  # nothing overlaps in the toy
    assert estimate.step_us(step) == contended_step_time_us(step, given.scheduled_us)
