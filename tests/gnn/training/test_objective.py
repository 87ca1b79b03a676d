"""Errors of nodes, and steps of the optimizer, by hand."""

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from gnnperf.gnn import ModelConfig, PreparedData
from gnnperf.gnn.data.module import batch_of
from gnnperf.gnn.models.gnn import MESSAGE_RELATIONS, WORK, NodeOutput, TypedGNN
from gnnperf.gnn.training import module
from gnnperf.gnn.training.module import (
    MOMENTUM,
    RELATIVE_STEP,
    Estimates,
    LabeledNodes,
    Muon,
    labeled,
    learning_rate_share,
    node_error,
    orthogonalized,
    robust,
)


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


def test_singular_values_come_to_about_one_and_zeros_stay() -> None:
    turn = torch.tensor([[0.6, -0.8], [0.8, 0.6]])
    result = orthogonalized(torch.stack([turn @ torch.diag(torch.tensor([5.0, 0.5])), torch.zeros(2, 2)]))
    assert torch.allclose(torch.linalg.svdvals(result[0]), torch.ones(2), atol=0.35)
    assert torch.allclose(result[0] / result[0].norm(dim=0), turn, atol=1e-5)  # left and right vectors are as before
    assert not result[1].any()


def one_step(optimizer: Muon, matrix: torch.Tensor, other: torch.Tensor, gradient: torch.Tensor) -> None:
    matrix.grad, other.grad = gradient.clone(), torch.tensor([3.0])
    optimizer.step()


def test_matrices_step_by_their_direction_and_others_as_adamw_does() -> None:
    matrix, other, idle = (torch.nn.Parameter(torch.ones(size)) for size in ((2, 2), (1,), (2, 2)))
    optimizer = Muon([matrix, other, idle], [matrix, idle], learning_rate=0.01, weight_decay=0.1)
    gradient = torch.diag(torch.tensor([4.0, 3.0]))
    one_step(optimizer, matrix, other, gradient)
    direction = orthogonalized(gradient[None])[0]  # momentum of a first step is along the gradient
    step = RELATIVE_STEP * 0.01
    assert torch.allclose(matrix, (1 - 0.1 * step) * torch.ones(2, 2) - step * direction)
    assert torch.allclose(other, torch.tensor([1 - 0.01 * 0.1 - 0.01]))  # a first step of AdamW is of the learning rate
    assert torch.equal(idle, torch.ones(2, 2))  # no gradient
    assert torch.allclose(optimizer.state[matrix]["momentum"], (1 - MOMENTUM) * gradient)
    before = matrix.detach().clone()
    one_step(optimizer, matrix, other, torch.zeros(2, 2))  # of a node type that the batch lacks
    assert torch.equal(matrix, before) and matrix.grad is None


def test_matrices_of_the_network_are_all_between_states(data: PreparedData) -> None:
    network = TypedGNN(ModelConfig(hidden_channels=7, num_layers=2), data.vocabulary)
    assert {weight.shape for weight in network.matrices()} == {(7, 7)}
    assert len(network.matrices()) == 5 * 2 + 2 * (2 + len(MESSAGE_RELATIONS))  # encoders, heads; layers


def test_a_stored_optimizer_goes_on_as_if_it_had_not_stopped() -> None:
    def begun() -> tuple[torch.nn.Parameter, torch.nn.Parameter, Muon]:
        torch.manual_seed(0)
        matrix, other = torch.nn.Parameter(torch.randn(3, 3)), torch.nn.Parameter(torch.ones(1))
        return matrix, other, Muon([matrix, other], [matrix], learning_rate=0.01, weight_decay=0.0)

    gradient = torch.arange(9.0).view(3, 3)
    matrix, other, optimizer = begun()
    one_step(optimizer, matrix, other, gradient)
    weights, state = matrix.detach().clone(), deepcopy(optimizer.state_dict())
    again, other_again, stored = begun()
    again.data.copy_(weights)
    other_again.data.copy_(other.data)
    stored.load_state_dict(state)
    for one, more, own in ((matrix, other, optimizer), (again, other_again, stored)):
        one_step(own, one, more, gradient.T)
    assert torch.equal(matrix, again) and torch.equal(other, other_again)
