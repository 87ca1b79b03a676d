from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.data.step_time import step_time_us
from gnnperf.gnn.models.gnn import MAX_RESIDUAL, WORK, TypedGNN
from gnnperf.gnn.settings import ModelConfig
from research.baselines.network import TrainedNetwork
from research.baselines.trivial import Analytic, Base
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
