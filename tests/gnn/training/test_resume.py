"""Processes of train.py: a stopped training resumes to the same bits, two processes train what one would."""

import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from synthetic import load_toys, prepared

import gnnperf.gnn.data.prepare
import train
from gnnperf.core.errors import InputError
from gnnperf.gnn.checkpoint import load_checkpoint
from gnnperf.gnn.data.prepare import PreparedData
from gnnperf.gnn.settings import ModelConfig
from gnnperf.gnn.training.config import OptimConfig, TrainConfig
from gnnperf.gnn.training.evaluate import Processes, processes
from gnnperf.gnn.training.fit import build_model, fit, resume_path
from gnnperf.gnn.training.module import LatencyModule
from tests.gnn.training.test_fit import config

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

    given = replace(again, data=replace(again.data, batch_size=3))
    with pytest.raises(InputError, match=r"another training: data\.batch_size differ"):
        fit(given, data, build_model(given, data))
    other = replace(again, seed=9)
    with pytest.raises(InputError, match="another training: seed, network at the start differ"):
        fit(other, data, build_model(other, data))
    with pytest.raises(InputError, match="another training: network at the start differ"):
        fit(again, data, build_model(other, data))  # as `init_from` of another checkpoint would begin
    slower = replace(again, optim=OptimConfig(learning_rate=1e-4))
    with pytest.raises(InputError, match=r"another training: optim\.learning_rate differ"):
        fit(slower, data, build_model(slower, data))
    wider = replace(again, model=ModelConfig(hidden_channels=16))
    with pytest.raises(InputError, match="of another network"):
        fit(wider, data, build_model(wider, data))
    content = torch.load(tmp_path / "last.ckpt", weights_only=True)
    del content[LatencyModule.CHECKPOINT_HYPER_PARAMS_KEY]["optimizer"]  # as before there were two
    torch.save(content, tmp_path / "last.ckpt")
    with pytest.raises(InputError, match="another training: optimizer differ"):
        fit(again, data, build_model(again, data))
    (tmp_path / "last.ckpt").write_text("not a checkpoint")
    with pytest.raises(InputError, match="not a checkpoint"):
        fit(again, data, build_model(again, data))


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
