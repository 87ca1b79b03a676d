"""Errors of nodes by hand."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from gnnperf.gnn.data.module import batch_of
from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.models.gnn import WORK, NodeOutput
from gnnperf.gnn.training import module
from gnnperf.gnn.training.module import Estimates, LabeledNodes, labeled, learning_rate_share, node_error, robust


def answering(batch: HeteroData, residuals: Mapping[str, Tensor]) -> Estimates:
    """Residuals by work type; 0 where none is given."""
    result = {t: residuals.get(t, torch.zeros(len(batch[t].x))) for t in WORK}
    return {t: NodeOutput(r, r) for t, r in result.items()}


def test_huber_by_hand() -> None:
    errors = robust(torch.tensor([0.0, 0.2, -2.0]), torch.zeros(3), 0.5)
    assert torch.allclose(errors, torch.tensor([0.0, 0.04, 2.0 - 0.25]))


def test_what_steps_add_up_is_predicted_by_its_mean() -> None:
    """Labels of 1 and 3 times the base have the mean 2."""
    two = torch.tensor(2.0).log().requires_grad_()
    (slope,) = torch.autograd.grad(module.of_mean(two, torch.tensor([1.0, 3.0]).log()).sum(), two)
    assert slope.item() == pytest.approx(0.0, abs=1e-6)
    assert module.of_mean(torch.zeros(1), torch.tensor([2.0]).log()).item() == pytest.approx(2 - 1 - math.log(2))


def test_weights_by_hand() -> None:
    errors, share = torch.tensor([1.0, 2.0]), torch.tensor([2.25, 0.25])  # roots 1.5 and 0.5
    nodes = LabeledNodes(errors, errors, errors, errors, share)
    means = [node_error(errors, nodes, weight).item() for weight in (0.0, 0.5, 1.0)]
    assert means == pytest.approx([1.5, (1.25 + 2 * 0.75) / 2, 1.25])
    assert node_error(errors[:0], replace(nodes, time_share=share[:0]), 0.5).item() == 0.0


def test_a_node_without_a_steady_label_takes_its_usual_one(data: PreparedData) -> None:
    batch = batch_of([data.steps["train"][0].data]).clone()
    for node_type in WORK:
        batch[node_type].target = torch.full_like(batch[node_type].target, torch.nan)
    batch["host"].target[:2] = torch.tensor([0.1, 0.2])
    batch["host"].steady_target[:2] = torch.tensor([0.7, torch.nan])
    nodes = labeled(batch, answering(batch, {}))
    assert nodes.target.tolist() == pytest.approx([0.1, 0.2])
    assert nodes.steady_target.tolist() == pytest.approx([0.7, 0.2])


def test_the_learning_rate_rises_then_falls() -> None:
    shares = [learning_rate_share(step, 100, 0.1) for step in range(101)]
    assert shares[9] == shares[10] == 1.0
    assert [shares[i] for i in (0, 55, 100)] == pytest.approx([0.1, 0.5, 0.0])
