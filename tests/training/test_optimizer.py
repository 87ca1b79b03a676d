from __future__ import annotations

import math
from copy import deepcopy

import pytest
import torch
from synthetic import prepared
from torch import nn

from gnnperf.models.config import ModelConfig
from gnnperf.models.gnn import TypedGNN
from gnnperf.training.config import OptimConfig
from gnnperf.training.optimizer import Joint, Muon, build_optimizer, orthogonal


def matrix(*shape: int, seed: int = 0) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)))


@pytest.mark.parametrize("shape", [(8, 8), (4, 16), (16, 4)])
def test_every_direction_of_a_step_is_about_equally_long(shape: tuple[int, int]) -> None:
    before = matrix(2, *shape).detach()
    assert torch.linalg.svdvals(before).max() > 3
    values = torch.linalg.svdvals(orthogonal(before))  # [2, 4 or 8]
    assert values.min() > 0.5
    assert values.max() < 1.3


def test_directions_stay() -> None:
    one = torch.diag(torch.tensor([3.0, -0.5]))  # its orthogonal factor: diag(1, -1)
    found = orthogonal(one[None])[0]
    assert found[0, 0] > 0.6
    assert found[1, 1] < -0.6
    assert torch.equal(found - torch.diag(found.diag()), torch.zeros(2, 2))


def test_zeros_stay_zeros() -> None:
    assert torch.equal(orthogonal(torch.zeros(1, 3, 3)), torch.zeros(1, 3, 3))


def test_it_steps_as_torch_does_one_by_one() -> None:
    ours, theirs = ([matrix(8, 8), matrix(8, 4, seed=1), matrix(8, 8, seed=2)] for _ in range(2))
    one = Muon(ours, lr=0.1, weight_decay=0.5)
    other = torch.optim.Muon(theirs, lr=0.1, weight_decay=0.5, adjust_lr_fn="match_rms_adamw")
    for step in range(3):
        for mine, its in zip(ours, theirs, strict=True):
            mine.grad = torch.full_like(mine, 0.1).normal_(generator=torch.Generator().manual_seed(step))
            its.grad = mine.grad.clone()
        one.step()
        other.step()
    for mine, its in zip(ours, theirs, strict=True):
        moved = (mine - matrix(*mine.shape, seed=0)).norm()
        assert moved > 0.1
        assert (mine - its).norm() < 0.02 * its.norm()  # theirs is made orthogonal in bfloat16


def test_a_step_is_as_long_as_that_of_adam() -> None:
    one = matrix(8, 8)
    before, one.grad = one.detach().clone(), matrix(8, 8, seed=1).detach()
    Muon([one], lr=0.1, weight_decay=0.0).step()
    assert math.isclose(float((one.detach() - before).square().mean().sqrt()), 0.2 * 0.1, rel_tol=0.25)


def test_a_matrix_without_a_gradient_stays() -> None:
    one, other = matrix(3, 3), matrix(3, 3)
    one.grad = torch.ones(3, 3)
    Muon([one, other], lr=0.1, weight_decay=0.1).step()
    assert not torch.equal(one, other)
    assert torch.equal(other, matrix(3, 3))


def joint(one: nn.Parameter, other: nn.Parameter) -> Joint:
    return build_optimizer([one, other], [one], OptimConfig(learning_rate=0.1))


def stepped(optimizer: Joint) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def test_each_weight_has_one_of_the_two_optimizers() -> None:
    one, other = matrix(3, 3), matrix(3, 3)
    made = joint(one, other)
    assert [type(part) for part in made.parts] == [Muon, torch.optim.AdamW]
    assert [len(part.param_groups[0]["params"]) for part in made.parts] == [1, 1]
    assert made.parts[0].param_groups[0]["params"][0] is one


def test_one_schedule_reaches_both() -> None:
    made = joint(matrix(3, 3), matrix(3, 3))
    for group in made.param_groups:
        group["lr"] = 0.0
    stepped(made)
    assert [torch.equal(g["params"][0], matrix(3, 3)) for g in made.param_groups] == [True, True]


def test_a_state_that_is_loaded_goes_on_to_the_same_bits() -> None:
    whole = joint(matrix(3, 3), matrix(4, seed=1))
    stepped(whole)
    kept = deepcopy(whole.state_dict())
    resumed = joint(*(nn.Parameter(g["params"][0].detach().clone()) for g in whole.param_groups))
    resumed.load_state_dict(kept)
    stepped(whole)
    stepped(resumed)
    for one, other in zip(whole.param_groups, resumed.param_groups, strict=True):
        assert torch.equal(one["params"][0], other["params"][0])
    for group in resumed.param_groups:
        group["lr"] = 0.0  # the groups are shared again after loading
    assert all(part.param_groups[0]["lr"] == 0.0 for part in resumed.parts)


def test_weights_between_states_are_those_of_the_network(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = prepared(tmp_path_factory.mktemp("cache"))
    network = TypedGNN(ModelConfig(hidden_channels=8, num_layers=1), data.vocabulary)
    found = network.state_matrices()
    names = {name for name, p in network.named_parameters() if any(p is one for one in found)}
    assert all(one.shape == (8, 8) for one in found)
    assert len(names) == len(found)
    assert {"encoders.host.mix.weight", "layers.0.own.weight", "heads.host.hidden.weight"} <= names
    assert not {"encoders.host.linear.weight", "heads.host.last.weight", "op_heads.host.weight"} & names
