from __future__ import annotations

import math

import pytest
import torch

from gnnperf.gnn.training.config import LossKind, OptimConfig
from gnnperf.gnn.training.module import learning_rate_share
from gnnperf.gnn.training.objective import GaussianLoss, HuberLoss, LaplaceLoss, build_loss, weighted_mean

ZERO = torch.zeros(3)


def test_huber_by_hand() -> None:
    loss = HuberLoss(0.5)(torch.tensor([0.0, 0.2, -2.0]), ZERO, ZERO)
    assert torch.allclose(loss, torch.tensor([0.0, 0.04, 2.0 - 0.25]))


def test_likelihoods_by_hand_and_against_torch() -> None:
    residual, log_spread, target = torch.tensor([0.1]), torch.tensor([0.7]), torch.tensor([-0.4])
    normal = torch.distributions.Normal(residual, log_spread.exp())
    laplace = torch.distributions.Laplace(residual, log_spread.exp())
    assert torch.allclose(GaussianLoss()(residual, log_spread, target), -normal.log_prob(target))
    assert torch.allclose(LaplaceLoss()(residual, log_spread, target), -laplace.log_prob(target))
    assert LaplaceLoss()(ZERO, ZERO, ZERO)[0].item() == pytest.approx(math.log(2))


@pytest.mark.parametrize(
    ("kind", "made"),
    [(LossKind.huber, HuberLoss), (LossKind.gaussian, GaussianLoss), (LossKind.laplace, LaplaceLoss)],
)
def test_the_configuration_chooses(kind: LossKind, made: type) -> None:
    assert isinstance(build_loss(OptimConfig(loss=kind)), made)


def test_weights_by_hand() -> None:
    errors, share = torch.tensor([1.0, 2.0]), torch.tensor([2.25, 0.25])  # roots 1.5 and 0.5
    assert weighted_mean(errors, share, 0.0).item() == 1.5
    assert weighted_mean(errors, share, 1.0).item() == pytest.approx(1.25)
    assert weighted_mean(errors, share, 0.5).item() == pytest.approx((1.25 + 2 * 0.75) / 2)
    assert weighted_mean(errors[:0], share[:0], 0.5).item() == 0.0


def test_the_learning_rate_rises_then_falls() -> None:
    shares = [learning_rate_share(step, 100, 0.1) for step in range(101)]
    assert shares[0] == pytest.approx(0.1)
    assert shares[9] == shares[10] == 1.0
    assert shares[55] == pytest.approx(0.5)
    assert shares[100] == pytest.approx(0.0)
