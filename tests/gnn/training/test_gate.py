"""Corrections are kept as far as they helped on the validation runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.models.gnn import TypedGNN
from gnnperf.gnn.models.message_passing import MAX_RESIDUAL, ModelConfig
from gnnperf.gnn.training.evaluate import isolated_prediction
from gnnperf.gnn.training.gate import keep_what_helps
from tests.synthetic import prepared


def _bias(network: TypedGNN, node_type: str, residual: float) -> None:
    with torch.no_grad():
        bent = MAX_RESIDUAL * np.arctanh(residual / MAX_RESIDUAL)
        network.heads[node_type].last.bias[0] = bent  # type: ignore[union-attr, index]


def _trained(tmp_path: Path, out_of_range: float) -> tuple[PreparedData, TypedGNN, float]:
    """Data, a network that corrects all compute nodes by what validation wants times `out_of_range`, and that."""
    data = prepared(tmp_path)
    store = data.steps["val"][0].data["compute"]
    right = float(torch.log(store.latency_us / store.base_us).nanmedian())
    network = TypedGNN(ModelConfig(hidden_channels=8, max_residual=MAX_RESIDUAL), data.vocabulary)
    _bias(network, "compute", out_of_range * right)
    return data, network, right


def test_only_what_loses_on_validation_keeps_its_base(tmp_path: Path) -> None:
    data, network, _ = _trained(tmp_path, 1.0)
    step = data.steps["val"][0]
    _bias(network, "host", 9.0)
    retained = keep_what_helps(network, data)
    assert retained["host"] == 0 and "compute" not in retained
    assert network.is_silent("host") and not network.is_silent("compute")
    store = step.data["host"]
    assert isolated_prediction(network, step).usual_us[store.node_id.numpy()].tolist() == store.base_us.tolist()


def test_of_a_correction_that_is_twice_too_large_half_is_retained(tmp_path: Path) -> None:
    data, network, right = _trained(tmp_path, 2.0)
    step = data.steps["val"][0]
    assert keep_what_helps(network, data) == {"compute": 0.5}
    store = step.data["compute"]
    corrected = isolated_prediction(network, step).usual_us[store.node_id.numpy()] / store.base_us.numpy()
    assert np.log(corrected) == pytest.approx(right, rel=2e-2)  # tanh bends it a little
