"""A head that does not beat its base on the validation runs is silenced; the others are left alone."""

from __future__ import annotations

from pathlib import Path

import torch

from gnnperf.models.config import ModelConfig
from gnnperf.models.gnn import TypedGNN
from gnnperf.training.evaluate import predicted
from gnnperf.training.gate import keep_what_helps
from tests.synthetic import prepared


def _bias(network: TypedGNN, node_type: str, residual: float) -> None:
    with torch.no_grad():
        network.heads[node_type].last.bias[0] = residual  # type: ignore[union-attr, index]


def test_only_what_loses_on_validation_keeps_its_base(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    step = data.steps["val"][0]
    store = step.data["compute"]
    right = float(torch.log(store.latency_us / store.base_us).nanmedian())  # what validation wants on the whole
    network = TypedGNN(ModelConfig(hidden_channels=8, max_residual=1e6), data.vocabulary)
    _bias(network, "compute", right)
    _bias(network, "host", 9.0)
    kept = keep_what_helps(network, data)
    assert "host" in kept and "compute" not in kept
    assert network.is_silent("host") and not network.is_silent("compute")
    assert predicted(network, step)["host"].tolist() == step.data["host"].base_us.tolist()
