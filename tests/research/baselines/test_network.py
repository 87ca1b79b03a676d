from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic import toy_data

from gnnperf.gnn import ModelConfig, PreparedData, contended_step_time_us, step_time_us
from gnnperf.gnn.models.gnn import MAX_RESIDUAL, WORK, TypedGNN
from gnnperf.predict.gnn import BlendedPredictor, GnnPredictor
from research.baselines.network import TrainedNetwork, fits_of
from research.baselines.rows import Analytic, Base
from research.benchmarks import _networks
from research.benchmarks._networks import CachedNetwork, Hybrid
from tests.predict.doubled import doubling
from tests.research.baselines.made_data import learner


def test_it_repeats_by_seed_and_the_configuration_stays_as_it_is(data: PreparedData) -> None:
    """That training beats the base is in tests/gnn/training/test_fit.py."""
    step = data.steps["test"][0]
    made = learner()
    before = repr(made)
    one, two, other = (made.fit(data, seed).latency_us(step) for seed in (0, 0, 1))
    assert np.array_equal(one, two, equal_nan=True)
    assert not np.array_equal(one, other, equal_nan=True)
    assert repr(made) == before
    assert repr(made) != repr(replace(made, config=replace(made.config, model=ModelConfig(num_layers=0))))


def test_what_was_learned_is_scheduled_as_ops_isolated(data: PreparedData) -> None:
    step = data.steps["test"][0]
    untrained = TrainedNetwork(TypedGNN(ModelConfig(hidden_channels=8, num_layers=1), data.vocabulary).eval())
    assert all(untrained.network.is_silent(t) for t in WORK)
    assert untrained.step_us(step) == pytest.approx(Analytic().step_us(step))
    estimate = TrainedNetwork(TypedGNN(ModelConfig(8, 1), data.vocabulary).eval())
    for node_type in WORK:
        head = estimate.network.heads[node_type]
        head.last.bias.data[:] = MAX_RESIDUAL * np.arctanh(0.5 / MAX_RESIDUAL)  # type: ignore[union-attr, operator]
    works = np.isfinite(estimate.latency_us(step))
    assert estimate.latency_us(step)[works] == pytest.approx(np.exp(0.5) * Base().latency_us(step)[works], rel=1e-5)
    assert estimate.step_us(step) == step_time_us(step, estimate.latency_us(step))
    latency_us, step_us = estimate.both(step)
    assert np.array_equal(latency_us, estimate.latency_us(step), equal_nan=True)
    assert step_us == estimate.step_us(step)


def test_two_rows_of_a_checkpoint(data: PreparedData) -> None:
    """The network answers from prepared data what it answers from the graph; the hybrid is what blends."""
    checkpoint, (step,) = doubling(), data.steps["test"]
    checkpoint = replace(checkpoint, provenance={"training": {"seed": 4}}, sha256="abc")
    fits = fits_of(checkpoint, checkpoint.network(), "small", 2.0)
    assert [(row, fit.seed, fit.given, fit.fit_s) for row, fit in fits.items()] == [
        ("small", 4, "checkpoint abc", 2.0), ("small-hybrid", 4, "hybrid of checkpoint abc", 2.0),
    ]  # fmt: skip
    network = GnnPredictor(checkpoint)
    for row, predictor in (("small", network), ("small-hybrid", BlendedPredictor(network))):
        sentences = predictor.predict(step.graph, step.cluster).latency_us
        assert fits[row].estimate.latency_us(step)[[3, 10]] == pytest.approx(sentences[[3, 10]], rel=1e-5)  # type: ignore[index]


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
