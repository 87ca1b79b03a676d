from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gnnperf.gnn import ModelConfig, PreparedData, Step, TypedGNN, contended_step_time_us
from gnnperf.gnn.training.config import TrainConfig, TrainerConfig
from gnnperf.gnn.training.folds import grouped, leaving_programs_out, shrunk, unseen_shares
from gnnperf.gnn.training.shares import Judged, least_deviations
from gnnperf.gnn.trust import Shares, program_of, trust_kinds

KERNELS = "compute"


def test_groups_have_about_as_many_runs() -> None:
    assert grouped({"a": 9, "b": 5, "c": 4, "d": 2, "e": 2, "f": 1}) == [("a",), ("b",), ("c", "f"), ("d", "e")]
    assert grouped({"a": 9, "b": 1, "c": 1, "d": 1}) == []  # too few to judge


def left_out(step: Step, right: float, factor: float, program: str) -> Judged:
    """A step whose kernels take exp(right) times the base, and corrections that are `factor` times right."""
    kernels = (step.nodes["node_type"] == KERNELS).to_numpy()
    base_us = step.stored("base_us")
    data = step.data.clone()
    data[KERNELS].target = 0 * data[KERNELS].target + right  # where there is a label
    step_us = contended_step_time_us(step, base_us * np.exp(right * kernels))
    given = replace(step, workload=program, step_us=step_us, data=data)
    return Judged(given, np.stack([factor * right * kernels] * 2), trust_kinds(step.nodes, base_us), program)


@pytest.mark.parametrize(
    ("factors", "shrinkage", "usual", "scheduled"),
    [
        ((1.0,) * 5, 1.0, 1.0, 1.0),
        ((2.0,) * 5, 1.0, 0.5, 0.5),  # twice too large
        ((2.0,) * 5, 0.5, 1.0, 1.0),  # validation has halved them
        ((1.0,) * 4, 1.0, 1.0, 0.0),  # four programs are too few for steps
        # Gains of all corrections, over |right|:
        ((1.0, 1.0, 1.0, 1.0, 0.2), 1.0, 1.0, 1.0),  # (1, 1, 1, 1, 0.2): mean 0.84, standard error 0.16
        ((1.0, 1.0, 1.0, 1.0, -0.2), 1.0, 1.0, 0.0),  # (1, 1, 1, 1, -0.2): 0.76 and 0.24, not 4.3 times as much
    ],
)
def test_what_holds_in_left_out_programs_counts_in_others(
    data: PreparedData, factors: tuple[float, ...], shrinkage: float, usual: float, scheduled: float
) -> None:
    (step, *_) = data.steps["train"]
    steps = [left_out(step, 0.1 + place / 1000, factor, str(place)) for place, factor in enumerate(factors)]
    result = unseen_shares([shrunk(one, {KERNELS: Shares(shrinkage, shrinkage)}) for one in steps])
    kernels = {kind: shares for kind, shares in result.items() if kind.startswith(KERNELS)}
    assert set(kernels.values()) == {Shares(usual, scheduled)}


def test_few_groups_need_more_standard_errors() -> None:
    x = least_deviations(5)  # Student's t with 4 degrees of freedom has this distribution
    below = 0.5 + 0.375 * x / np.sqrt(1 + x**2 / 4) * (1 - x**2 / (1 + x**2 / 4) / 12)
    assert 1 - below == pytest.approx(0.0062, rel=0.05)  # beyond 2.5 standard deviations of a normal distribution
    assert least_deviations(100_000) == pytest.approx(2.5, abs=1e-3)


@pytest.mark.parametrize("cores", [1, 2])
def test_each_program_is_predicted_by_a_network_without_it(
    tmp_path: Path, data: PreparedData, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnnperf.gnn.training.evaluate.copyable_cores", lambda: cores)
    model = ModelConfig(hidden_channels=8, num_layers=1)
    config = TrainConfig(out=str(tmp_path), model=model, trainer=TrainerConfig(max_epochs=1, progress_bar=False))
    (step, *_) = data.steps["train"]
    named = tuple(replace(step, workload=name) for name in "abcde")
    with leaving_programs_out(config, replace(data, steps={**data.steps, "train": named}),
                              lambda: TypedGNN(model, data.vocabulary)) as judged:  # fmt: skip
        result = judged()
    assert sorted(program_of(one.step) for one in result) == list("abcdee")  # the validation run is one of "e"
    assert all(one.residuals.shape == (2, len(one.step.nodes)) and one.residuals.any() for one in result)
