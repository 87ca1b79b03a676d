from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from synthetic import prepared
from torch import nn

from gnnperf.gnn.data.step_time import step_time_us
from research.baselines.step_head import MAX_RESIDUAL, Reduction, StepHead, base_step_us, joined, one_step
from research.baselines.trees import work_values


class Spy(nn.Module):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.given = torch.zeros(0)

    def forward(self, reduced: torch.Tensor) -> torch.Tensor:
        self.given = reduced
        return reduced[:, :2]


def test_reductions_by_hand() -> None:
    head = StepHead(2)
    spy = Spy()
    head.hidden = spy  # type: ignore[assignment]
    state = torch.tensor([[1.0, -4.0], [3.0, -2.0], [5.0, 7.0]])
    reduction = Reduction(torch.tensor([0, 0, 1]), torch.tensor([0.25, 0.75, 1.0]),
                          torch.log(torch.tensor([1e4, 1e5])))  # fmt: skip
    head(state, reduction)
    expected = [
        [
            2.0,
            -3.0,
            3.0,
            -2.0,
            2.5,
            -2.5,
            0.0,
        ],  # mean, maximum, 1/4 of the first + 3/4 of the second, decades from 10 ms
        [5.0, 7.0, 5.0, 7.0, 5.0, 7.0, 1.0],
    ]
    torch.testing.assert_close(spy.given, torch.tensor(expected))


def test_untrained_it_answers_the_base_and_never_leaves_its_limit() -> None:
    head = StepHead(2)
    reduction = Reduction(torch.zeros(3, dtype=torch.int64), torch.ones(3) / 3, torch.zeros(1))
    state = 1e6 * torch.ones(3, 2)
    with torch.no_grad():
        assert head(state, reduction).tolist() == [0.0]
        nn.init.ones_(head.hidden.weight)
        nn.init.ones_(head.last.weight)
        assert head(state, reduction).tolist() == pytest.approx([MAX_RESIDUAL])


def test_one_step_and_several(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    steps = data.steps["train"][:2]
    parts = [one_step(s, work_values(s.data, "base_us")) for s in steps]
    both = joined(parts)
    sizes = [len(work_values(s.data, "base_us")) for s in steps]
    assert both.step.tolist() == [0] * sizes[0] + [1] * sizes[1]
    assert both.share.sum().item() == pytest.approx(2.0)
    expected = [math.log(base_step_us(s)) for s in steps]
    np.testing.assert_allclose(both.log_base_step.numpy(), expected, rtol=1e-6)


def test_the_base_step_is_the_schedule_of_the_base(tmp_path: Path) -> None:
    step = prepared(tmp_path).steps["val"][0]
    base = np.zeros(step.graph.num_nodes)
    base[work_values(step.data, "node_id")] = work_values(step.data, "base_us")
    assert base_step_us(step) == step_time_us(step, base)
    assert base_step_us(step) > 0
