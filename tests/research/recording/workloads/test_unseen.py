"""The programs of `cpu-unseen`: shapes and what they compute."""

from __future__ import annotations

import pytest
import torch

from research.recording.workloads.autoencoder import Autoencoder, Vae
from research.recording.workloads.graph_network import GraphNetwork, Messages
from research.recording.workloads.mixer import Classifier, Mixer
from research.recording.workloads.point_cloud import CLASSES, PointCloud
from research.recording.workloads.point_cloud import Classifier as PointClassifier
from research.recording.workloads.temporal import SENSORS, Forecaster, Temporal
from research.recording.workloads.two_towers import TEMPERATURE, Retriever, TwoTowers
from research.recording.workloads.unet import Denoiser, Unet


def test_a_denoiser_gives_what_it_is_given() -> None:
    model = Denoiser(Unet(levels=3, channels=4, image=8, batch=2))
    assert model(torch.zeros(2, 3, 8, 8), torch.zeros(2, 1)).shape == (2, 3, 8, 8)
    firsts = [part for block in model.up for part in block.children() if isinstance(part, torch.nn.Conv2d)]
    assert [part.in_channels for part in firsts[::3]] == [
        16,
        8,
    ]  # twice the level's channels


def test_edges_stay_within_their_graph() -> None:
    _, edge_index, labels = GraphNetwork(nodes=4, degree=3, batch=2).draw()
    assert edge_index.shape == (2, 24) and labels.shape == (8,)
    assert (edge_index[0] // 4).equal(edge_index[1] // 4)
    assert torch.bincount(edge_index[1]).tolist() == [3] * 8


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


def test_an_autoencoder_gives_images_back() -> None:
    restored, mean, log_variance = Vae(Autoencoder(channels=4, image=8, latent=3, batch=2))(torch.zeros(2, 1, 8, 8))
    assert restored.shape == (2, 1, 8, 8) and mean.shape == log_variance.shape == (2, 3)


def test_a_mixer_classifies() -> None:
    model = Classifier(Mixer(layers=1, hidden=8, patch=16, batch=2)).eval()
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


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


def test_the_order_of_points_states_nothing() -> None:
    torch.manual_seed(0)
    model = PointClassifier(PointCloud(points=8, hidden=4, layers=2, batch=2)).eval()
    points = torch.randn(2, 8, 3)
    assert model(points).shape == (2, CLASSES)
    assert torch.allclose(model(points), model(points.flip(1)))
