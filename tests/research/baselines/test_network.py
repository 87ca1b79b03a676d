from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.data.step_time import step_time_us
from gnnperf.gnn.models.gnn import MAX_RESIDUAL, WORK, TypedGNN
from gnnperf.gnn.settings import ModelConfig
from gnnperf.gnn.training.config import TrainConfig, TrainerConfig
from research.baselines.network import Network, TrainedNetwork
from research.baselines.trivial import Analytic, Base


def learner(epochs: int = 40) -> Network:
    made = TrainConfig(model=ModelConfig(hidden_channels=16, num_layers=1),
                       trainer=TrainerConfig(max_epochs=epochs, progress_bar=False))  # fmt: skip
    made.data.batch_size = 2
    return Network(made)


def test_it_learns_and_repeats_by_seed(data: PreparedData) -> None:
    step = data.steps["test"][0]
    gemm = step.data["compute"].node_id.numpy()
    one, two, other = (learner(epochs=2).fit(data, seed).latency_us(step) for seed in (0, 0, 1))
    assert np.array_equal(one, two, equal_nan=True)
    assert not np.array_equal(one, other, equal_nan=True)
    learned = learner().fit(data, 0).latency_us(step)
    measured, base = (v[gemm] for v in (step.nodes["latency_us"].to_numpy(), Base().latency_us(step)))
    assert np.abs(np.log(learned[gemm] / measured)).max() < np.abs(np.log(base / measured)).min()


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


def test_the_configuration_is_reported_and_left_as_it_is(data: PreparedData, tmp_path: Path) -> None:
    made = learner(epochs=1)
    before = repr(made)
    made.fit(data, 3)
    assert repr(made) == before
    assert repr(made) != repr(replace(made, config=replace(made.config, model=ModelConfig(num_layers=0))))
