from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic import SPLIT, prepared

from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.models.message_passing import ModelConfig
from gnnperf.gnn.training.config import TrainConfig, TrainerConfig
from research.baselines.network import Network
from research.benchmarks import _cached_networks
from research.benchmarks._cached_networks import CachedNetwork, cached_network


def learner(epochs: int = 2) -> Network:
    return Network(TrainConfig(model=ModelConfig(hidden_channels=8, num_layers=1),
                               trainer=TrainerConfig(max_epochs=epochs, progress_bar=False)))  # fmt: skip


def test_what_is_retained_is_not_trained_again(tmp_path: Path) -> None:
    def never() -> PreparedData:
        raise AssertionError("asked for data")

    first = cached_network(tmp_path / "kept", learner(), SPLIT, 0, lambda: prepared(tmp_path))
    again = cached_network(tmp_path / "kept", learner(), SPLIT, 0, never)
    assert again.sha256 != "" and first.weights.keys() == again.weights.keys()
    assert all(np.array_equal(first.weights[name], again.weights[name]) for name in first.weights)
    assert again.provenance["training"]["seed"] == 0
    for other in (lambda: cached_network(tmp_path / "kept", learner(3), SPLIT, 0, never),
                  lambda: cached_network(tmp_path / "kept", learner(), SPLIT, 1, never)):  # fmt: skip
        with pytest.raises(AssertionError, match="asked for data"):
            other()


def test_a_row_is_trained_once_for_what_the_data_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row, data = CachedNetwork(learner(), tmp_path / "kept"), prepared(tmp_path)
    step = data.steps["test"][0]
    first = row.fit(data, 0).latency_us(step)
    assert np.array_equal(first, learner().fit(data, 0).latency_us(step), equal_nan=True)
    monkeypatch.setattr(_cached_networks, "fit", None)  # would fail if it were called
    again = CachedNetwork(learner(), tmp_path / "kept").fit(prepared(tmp_path), 0).latency_us(step)
    assert np.array_equal(again, first, equal_nan=True)
    external = replace(data, fingerprint="tested on other data", split=replace(data.split, axis="other"))
    assert np.array_equal(row.fit(external, 0).latency_us(step), first, equal_nan=True)
    for other, seed in ((replace(data, training_fingerprint="of other data"), 0), (data, 1)):
        with pytest.raises(TypeError):
            row.fit(other, seed)


def test_where_networks_are_retained_is_no_part_of_the_row() -> None:
    assert repr(CachedNetwork(learner(), Path("here"))) == repr(CachedNetwork(learner(), Path("there")))
