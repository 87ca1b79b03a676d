from __future__ import annotations

import pytest
import torch

from research.recording.workloads.rl import PythonCartPoles, TensorCartPoles, returns_of


def test_a_pushed_cart_moves_as_the_equations_say() -> None:
    carts = PythonCartPoles([[0.0, 0.0, 0.0, 0.0]], seed=0)
    assert carts.push(torch.tensor([1.0])).tolist() == [1.0]
    # upright and at rest: push 10 / 1.1; angular -push / (0.5 (4/3 - 0.1 / 1.1)); linear push - 0.05 angular / 1.1
    push = 10 / 1.1
    angular = -push / (0.5 * (4 / 3 - 0.1 / 1.1))
    linear = push - 0.05 * angular / 1.1
    assert carts.states().tolist() == [pytest.approx([0.0, 0.02 * linear, 0.0, 0.02 * angular], rel=1e-6)]


def test_both_kinds_of_carts_move_alike_until_they_fall() -> None:
    starts = [[0.01, 0.0, 0.02, 0.0], [-0.04, 0.03, -0.01, 0.02], [2.3, 3.0, 0.0, 0.0]]
    one, together = PythonCartPoles([list(s) for s in starts], seed=0), TensorCartPoles(starts, seed=0)
    for move in range(6):
        actions = torch.tensor([move % 2, 1 - move % 2, 1.0])
        assert one.push(actions).tolist() == together.push(actions).tolist() == [1.0, 1.0, 0.0 if move == 1 else 1.0]
        assert torch.allclose(one.states()[:2], together.states()[:2], atol=1e-5)
        fallen = torch.stack([one.states()[2], together.states()[2]])
        assert move != 1 or (fallen.abs() <= 0.05).all()  # it begins again near the middle


def test_returns_end_where_a_cart_falls() -> None:
    # cart 0 balances twice and falls; cart 1 balances to the end
    returns = returns_of([torch.tensor([1.0, 1.0]), torch.tensor([1.0, 1.0]), torch.tensor([0.0, 1.0])])
    assert torch.stack(returns).tolist() == [pytest.approx([1.95, 2.8525]), pytest.approx([1.0, 1.95]), [0.0, 1.0]]
