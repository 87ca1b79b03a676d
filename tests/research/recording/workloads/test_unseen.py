"""The programs of `cpu-unseen`: shapes and what they compute."""

from __future__ import annotations

import pytest
import torch

from research.recording.workloads.graph_network import Messages
from research.recording.workloads.temporal import SENSORS, Forecaster, Temporal
from research.recording.workloads.two_towers import TEMPERATURE, Retriever, TwoTowers


def test_a_node_takes_the_sum_of_its_messages() -> None:
    """Two edges into node 0, none into node 1: message = ReLU(both nodes), update = ReLU(sum), no norm."""
    layer = Messages(1)
    with torch.no_grad():
        for part in (layer.message, layer.update):
            assert part.bias is not None
            part.bias.zero_()
        layer.message.weight.copy_(torch.tensor([[1.0, 1.0]]))
        layer.update.weight.copy_(torch.tensor([[0.0, 1.0]]))
    layer.norm = torch.nn.Identity()  # type: ignore[assignment]
    hidden = torch.tensor([[1.0], [2.0]])
    edge_index = torch.tensor([[1, 1], [0, 0]])
    assert layer(hidden, edge_index).tolist() == [[7.0], [2.0]]  # 1 + 2 * (2 + 1)


def test_scores_are_cosines_over_the_temperature() -> None:
    model = Retriever(TwoTowers(vocabulary=5, hidden=4, layers=1, batch=3))
    model.item.load_state_dict(model.query.state_dict())
    scores = model(torch.tensor([[0, 1], [2, 3]]), torch.tensor([[0, 1], [2, 3]]))
    assert scores.diag().tolist() == pytest.approx([1 / TEMPERATURE] * 2, rel=1e-5)


def test_a_forecast_sees_no_future() -> None:
    """A value moves the forecasts from its own time step on."""
    torch.manual_seed(0)
    model = Forecaster(Temporal(blocks=2, channels=8, length=16, batch=1)).eval()
    series = torch.zeros(2, SENSORS, 16)
    series[1, :, 10] = 1.0
    changed = (model(series)[1] != model(series)[0]).any(dim=0)  # [S]
    assert changed.tolist() == [False] * 10 + [True] * 6  # 2 x (2 + 4) steps back: to the end of the series
