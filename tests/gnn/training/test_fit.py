import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from synthetic import load_toys, prepared

import gnnperf.gnn.data.prepare
import train
from gnnperf.core.errors import InputError
from gnnperf.gnn import ModelConfig, PreparedData, contended_step_time_us, load_checkpoint
from gnnperf.gnn.models.gnn import MAX_RESIDUAL, TypedGNN
from gnnperf.gnn.training.config import LoggerConfig, LoggerKind, OptimConfig, TrainConfig, TrainerConfig
from gnnperf.gnn.training.evaluate import (
    Processes,
    evaluate,
    isolated_prediction,
    print_comparison,
    processes,
    wide_console,
    write_comparison,
)
from gnnperf.gnn.training.fit import build_model, fit, keep_what_helps, resume_path
from gnnperf.gnn.training.module import LatencyModule
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
    def settings() -> tuple[bool, bool]:
        rules: Any = torch.utils.deterministic
        return torch.are_deterministic_algorithms_enabled(), rules.fill_uninitialized_memory

    before = settings()
    trained(config(tmp_path, epochs=1), data)
    assert settings() == before
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


SMALL = ("trainer.progress_bar=false", "model.hidden_channels=8", "model.num_layers=1", "data.batch_size=2",
         "trainer.max_epochs=4", "evaluate_on=[val]")  # fmt: skip


def end_in_epoch_2(module: LatencyModule, outputs: object, batch: object, batch_idx: int) -> None:
    """What a scheduler does to a process whose time is over."""
    if (module.current_epoch, batch_idx) == (2, 0):
        os.kill(os.getpid(), signal.SIGTERM)


def small(out: Path, **changes: object) -> TrainConfig:
    """The configuration that SMALL makes."""
    return config(out, epochs=4, model=ModelConfig(hidden_channels=8, num_layers=1), **changes)


@pytest.mark.slow
def test_an_ended_training_resumes_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch, pytest.raises(SystemExit) as ended:
        load_toys(patch, tmp_path / "cache")
        patch.setattr(LatencyModule, "on_train_batch_end", end_in_epoch_2)
        patch.setattr(sys, "argv", ["train.py", *SMALL, f"out={tmp_path / 'parts'}"])
        train.main()
    assert ended.value.code == 143
    assert "stopped by SIGTERM; resume=auto goes on" in capsys.readouterr().err
    assert not (tmp_path / "parts" / "checkpoint.pt").exists()
    assert torch.load(tmp_path / "parts" / "last.ckpt", weights_only=True)["epoch"] == 1

    data = prepared(tmp_path / "cache")
    configs = (small(tmp_path / "parts", resume="auto"), small(tmp_path / "whole"))
    resumed, whole = (fit(each, data, build_model(each, data)).state_dict() for each in configs)
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)
    last = [torch.load(tmp_path / out / "last.ckpt", weights_only=True) for out in ("parts", "whole")]
    assert last[0]["epoch"] == last[1]["epoch"] == 3
    assert all(torch.equal(last[0]["state_dict"][name], value) for name, value in last[1]["state_dict"].items())


def test_resume_paths(tmp_path: Path) -> None:
    assert resume_path(None, tmp_path) is None
    assert resume_path("auto", tmp_path) is None
    with pytest.raises(InputError, match=r"resume=nowhere\.ckpt: no such file"):
        resume_path("nowhere.ckpt", tmp_path)


def test_what_is_not_of_this_training_is_refused(tmp_path: Path, data: PreparedData) -> None:
    """Another network, other settings, another start, no checkpoint at all; more epochs are the same training."""
    begun = small(tmp_path)
    fit(begun, data, build_model(begun, data))
    again = replace(begun, resume="auto", trainer=replace(begun.trainer, max_epochs=5))
    fit(again, data, build_model(again, data))
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["epoch"] == 4

    def refused(given: TrainConfig, message: str, start: TrainConfig | None = None) -> None:
        with pytest.raises(InputError, match=message):
            fit(given, data, build_model(start or given, data))

    refused(replace(again, data=replace(again.data, batch_size=3)), r"another training: data\.batch_size differ")
    other = replace(again, seed=9)
    refused(other, "another training: seed, network at the start differ")
    refused(again, "another training: network at the start differ", other)  # `init_from` of another checkpoint
    slower = replace(again, optim=OptimConfig(learning_rate=1e-4))
    refused(slower, r"another training: optim\.learning_rate differ")
    refused(replace(again, model=ModelConfig(hidden_channels=16)), "of another network")
    content = torch.load(tmp_path / "last.ckpt", weights_only=True)
    del content[LatencyModule.CHECKPOINT_HYPER_PARAMS_KEY]["optimizer"]  # as before there were two
    torch.save(content, tmp_path / "last.ckpt")
    refused(again, "another training: optimizer differ")
    (tmp_path / "last.ckpt").write_text("not a checkpoint")
    refused(again, "not a checkpoint")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Processes(rank=0, count=1, count_here=1)),
        ({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}, Processes(rank=5, count=8, count_here=4)),
    ],
)
def test_processes_of_torchrun(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: Processes
) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert processes() == expected
    assert processes().is_first == (not environment)


def free_port() -> int:
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        return int(each.getsockname()[1])


def val_log_errors(out: Path) -> np.ndarray:
    """[epochs]."""
    (curves,) = (out / "curves").rglob("metrics.csv")
    return pd.read_csv(curves)["val_log_error"].dropna().to_numpy()


def train_as(folder: Path, rank: int, environment: Mapping[str, str]) -> None:
    """train.py, as a process of its own runs it; what it prints goes to `<rank>.out` and `.err`."""
    os.environ.update(environment, RANK=str(rank), LOCAL_RANK=str(rank))
    for stream, suffix in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / f"{rank}.{suffix}", os.O_CREAT | os.O_WRONLY), stream)
    gnnperf.gnn.data.prepare.load_data = lambda *_: prepared(folder / "cache")  # type: ignore[assignment]
    sys.argv = ["train.py", *SMALL, f"out={folder / 'two'}"]
    train.main()


@pytest.mark.slow
def test_two_processes_give_the_numbers_of_one_within_the_noise_of_seeds(tmp_path: Path, data: PreparedData) -> None:
    for seed in (0, 1, 2):
        made = small(tmp_path / str(seed), seed=seed)
        fit(made, data, build_model(made, data))
    of_torchrun = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    # Forks of a server that has loaded what training needs: this process may have threads, which forks lack.
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["train", "lightning.pytorch", "torch._dynamo", "gnnperf.gnn.training.fit",
                                   "gnnperf.gnn.training.look", "research.baselines.training"])  # fmt: skip
    ranks = [server.Process(target=train_as, args=(tmp_path, rank, of_torchrun)) for rank in range(2)]
    for process in ranks:
        process.start()
    for rank, process in enumerate(ranks):
        process.join(100)
        assert process.exitcode == 0, (tmp_path / f"{rank}.err").read_text()
    printed = "".join((tmp_path / f"{rank}.out").read_text() for rank in range(2))
    assert printed.count("sha256") == printed.count("train: 4 steps") == 1  # printed once
    assert [path.name for path in (tmp_path / "two").rglob("*.pt")] == ["checkpoint.pt"]
    assert load_checkpoint(tmp_path / "two" / "checkpoint.pt").sha256 in printed

    seeds = [val_log_errors(tmp_path / str(seed)) for seed in (0, 1, 2)]
    result = val_log_errors(tmp_path / "two")
    assert len(result) == 4
    assert abs(result - seeds[0]).max() < np.std([each[-1] for each in seeds])
    assert not np.array_equal(result, seeds[0])  # each process weighs its half of a batch by itself
