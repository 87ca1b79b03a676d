from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from synthetic import SPLIT, prepared

from benchmarks._kept_networks import kept_network
from gnnperf.baselines.network import Network
from gnnperf.data.prepare import PreparedData
from gnnperf.models.config import ModelConfig
from gnnperf.training.config import TrainConfig, TrainerConfig


def learner(epochs: int = 2) -> Network:
    return Network(TrainConfig(model=ModelConfig(hidden_channels=8, num_layers=1),
                               trainer=TrainerConfig(max_epochs=epochs, progress_bar=False)))  # fmt: skip


def test_what_is_kept_is_not_trained_again(tmp_path: Path) -> None:
    def never() -> PreparedData:
        raise AssertionError("asked for data")

    first = kept_network(tmp_path / "kept", learner(), SPLIT, 0, lambda: prepared(tmp_path))
    again = kept_network(tmp_path / "kept", learner(), SPLIT, 0, never)
    assert again.sha256 != "" and first.weights.keys() == again.weights.keys()
    assert all(np.array_equal(first.weights[name], again.weights[name]) for name in first.weights)
    assert again.provenance["training"]["seed"] == 0
    for other in (lambda: kept_network(tmp_path / "kept", learner(3), SPLIT, 0, never),
                  lambda: kept_network(tmp_path / "kept", learner(), SPLIT, 1, never)):  # fmt: skip
        with pytest.raises(AssertionError, match="asked for data"):
            other()
