from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from gnnperf.core.errors import InputError
from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.data.step_time import contended_step_time_us
from gnnperf.gnn.models.gnn import MAX_RESIDUAL, TypedGNN
from gnnperf.gnn.settings import ModelConfig
from gnnperf.gnn.training.config import LoggerConfig, LoggerKind, OptimConfig, TrainConfig, TrainerConfig
from gnnperf.gnn.training.evaluate import (
    evaluate,
    isolated_prediction,
    print_comparison,
    wide_console,
    write_comparison,
)
from gnnperf.gnn.training.fit import build_model, fit, keep_what_helps
from gnnperf.gnn.trust import Shares


def config(out: Path, epochs: int = 3, **changes: object) -> TrainConfig:
    made = TrainConfig(
        out=str(out), model=ModelConfig(hidden_channels=8, num_layers=1, op_dropout=0.2),
        trainer=TrainerConfig(max_epochs=epochs, progress_bar=False),
    )  # fmt: skip
    made.data.batch_size = 2
    return replace(made, **changes)  # type: ignore[arg-type]


def trained(made: TrainConfig, data: PreparedData) -> TypedGNN:
    return fit(made, data, build_model(made, data))


def value(table: pd.DataFrame, node_type: str, estimate: str, column: str) -> float:
    result = table[(table["node_type"] == node_type) & (table["predictor"] == estimate)][column]
    return float(result.to_numpy()[0])


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[k], two[k]) for k in one)


def test_training_beats_the_base_it_starts_from(tmp_path: Path, data: PreparedData) -> None:
    made = config(tmp_path, epochs=24, model=ModelConfig(hidden_channels=16, num_layers=1))
    table = evaluate(trained(made, data), data)["test"]
    assert value(table, "compute", "base", "gmae") > 0.3
    assert value(table, "compute", "gnn", "gmae") < 0.1
    assert value(table, "all", "gnn", "coverage") == 1.0


def test_the_same_seed_gives_the_same_bits_and_every_loss_changes_them(tmp_path: Path, data: PreparedData) -> None:
    one, two = (trained(config(tmp_path / name), data).state_dict() for name in ("one", "two"))
    assert same(one, two)
    optim = OptimConfig(scheduled_weight=0.0)
    assert not same(one, trained(config(tmp_path / "three", optim=optim), data).state_dict())
    assert not same(one, trained(config(tmp_path / "four", seed=1), data).state_dict())


def test_gradients_of_several_batches_make_one_step(tmp_path: Path, data: PreparedData) -> None:
    halves = config(tmp_path / "halves", epochs=1, optim=OptimConfig(batches_per_step=2))
    halves.data.batch_size = 1
    trained(halves, data)
    trained(config(tmp_path / "whole", epochs=1), data)
    steps = [
        torch.load(tmp_path / name / "best.ckpt", weights_only=True)["global_step"] for name in ("halves", "whole")
    ]
    assert steps[0] == steps[1] > 0


def test_graphs_that_do_not_fit_train_in_segments(tmp_path: Path, data: PreparedData) -> None:
    made = config(tmp_path, epochs=5)
    made.data.batch_size, made.data.max_nodes_per_batch = 1, 12  # the toy has 15 nodes of work
    table = evaluate(trained(made, data), data)["test"]
    assert value(table, "compute", "gnn", "gmae") < 0.7 * value(table, "compute", "base", "gmae")


def test_curves_as_csv_no_noise_and_torch_as_it_was(
    tmp_path: Path, data: PreparedData, capsys: pytest.CaptureFixture[str]
) -> None:
    before = torch.are_deterministic_algorithms_enabled()
    trained(config(tmp_path, epochs=1), data)
    assert torch.are_deterministic_algorithms_enabled() is before
    curves = pd.read_csv(tmp_path / "curves" / "version_0" / "metrics.csv")
    assert {"train_loss", "val_loss", "val_log_error", "epoch"} <= set(curves.columns)
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""


def test_the_table(tmp_path: Path, data: PreparedData, capsys: pytest.CaptureFixture[str]) -> None:
    tables = evaluate(build_model(config(tmp_path), data), data)
    assert set(tables) == {"val", "test"}
    untrained = tables["val"]
    assert value(untrained, "all", "gnn", "gmae") == value(untrained, "all", "base", "gmae")
    assert value(untrained, "all", "gnn", "num_nodes") == 11
    print_comparison("val", tables["val"], wide_console())
    printed = capsys.readouterr().out
    assert "nearest run" in printed
    assert "collective" in printed
    assert "…" not in printed
    write_comparison(tables, tmp_path / "errors.csv")
    assert set(pd.read_csv(tmp_path / "errors.csv")["part"]) == {"val", "test"}


class NotLoggedIn(Exception):
    """As wandb raises it."""

    __module__ = "wandb.errors.errors"


class LoggerWithoutLogin:
    def __init__(self, **_: object) -> None:
        pass

    @property
    def experiment(self) -> object:
        raise NotLoggedIn("No API key configured.")


def test_wandb_without_a_login_is_one_message(
    tmp_path: Path, data: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnnperf.gnn.training.look.WandbLogger", LoggerWithoutLogin)
    with pytest.raises(InputError, match=r"logger=wandb: No API key.*wandb login"):
        trained(config(tmp_path, epochs=1, logger=LoggerConfig(kind=LoggerKind.wandb)), data)


def biased(data: PreparedData, compute_factor: float) -> tuple[TypedGNN, float]:
    """A network that corrects compute nodes by `compute_factor` times what validation needs, and this correction."""
    store = data.steps["val"][0].data["compute"]
    right = float(torch.log(store.latency_us / store.base_us).nanmedian())
    network = TypedGNN(ModelConfig(hidden_channels=8), data.vocabulary)
    set_bias(network, "compute", compute_factor * right)
    return network, right


def set_bias(network: TypedGNN, node_type: str, residual: float) -> None:
    with torch.no_grad():
        bent = MAX_RESIDUAL * np.arctanh(residual / MAX_RESIDUAL)
        network.heads[node_type].last.bias[0] = bent  # type: ignore[union-attr, index]


def test_a_node_type_that_loses_on_validation_keeps_its_base(data: PreparedData) -> None:
    network, _ = biased(data, 1.0)
    step = data.steps["val"][0]
    set_bias(network, "host", 4.0)
    assert keep_what_helps(network, data) == {"host": Shares(0.0, 0.0), "compute": Shares(1.0, 0.0)}
    assert network.is_silent("host") and not network.is_silent("compute")
    store = step.data["host"]
    assert isolated_prediction(network, step).usual_us[store.node_id.numpy()].tolist() == store.base_us.tolist()


def test_a_correction_that_is_twice_too_large_is_halved(data: PreparedData) -> None:
    network, right = biased(data, 2.0)
    step = data.steps["val"][0]
    assert keep_what_helps(network, data) == {"compute": Shares(0.5, 0.0)}
    store = step.data["compute"]
    corrected = isolated_prediction(network, step).usual_us[store.node_id.numpy()] / store.base_us.numpy()
    assert np.log(corrected) == pytest.approx(right, rel=3e-2)  # tanh bends it a little


@pytest.mark.parametrize(
    ("num_runs", "factor", "at_base", "scheduled"),
    [(5, 1.0, 0, 1.0), (5, 2.0, 0, 0.5), (5, -1.0, 0, 0.0), (4, 1.0, 0, 0.0), (6, 1.0, 3, 0.5)],
)
def test_kernels_are_corrected_in_steps_where_enough_validation_runs_gain(
    data: PreparedData, num_runs: int, factor: float, at_base: int, scheduled: float
) -> None:
    """Right corrections gain in steps as the labels give them, wrong ones lose; half, where half the runs gain."""
    network, right = biased(data, 1.0)
    with torch.no_grad():
        network.heads["compute"].last.bias[1] = factor * right  # type: ignore[union-attr, index]
    step = data.steps["val"][0]
    base_us, target = step.stored("base_us"), np.nan_to_num(step.stored("target"))
    times_us = [contended_step_time_us(step, base_us * np.exp(given)) for given in (target, 0.0 * target)]
    runs = tuple(replace(step, run=str(run), step_us=times_us[run < at_base] * (1 + run / 1000))
                 for run in range(num_runs))  # fmt: skip
    shares = keep_what_helps(network, replace(data, steps={**data.steps, "val": runs}))
    assert shares.get("compute", Shares(1.0, 1.0)) == Shares(1.0, scheduled)
