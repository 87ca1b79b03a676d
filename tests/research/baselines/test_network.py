from dataclasses import replace

import numpy as np
import pytest

from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.data.step_time import step_time_us
from gnnperf.gnn.models.gnn import MAX_RESIDUAL, WORK, TypedGNN
from gnnperf.gnn.settings import ModelConfig
from gnnperf.predict.gnn import BlendedPredictor, GnnPredictor
from research.baselines.network import TrainedNetwork, fits_of
from research.baselines.rows import Analytic, Base
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


# A checkpoint as rows of the comparison: what predict.py predicts, by the labels of learners.


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
