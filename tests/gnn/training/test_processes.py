"""Processes of torchrun: who they are, and that two of them train what one would."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic import prepared

from gnnperf.gnn.checkpoint import load_checkpoint
from gnnperf.gnn.training.evaluate import Processes, processes
from gnnperf.gnn.training.fit import build_model, fit
from tests.gnn.training.programs import program, run, small


def test_one_process_without_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert processes() == Processes(rank=0, count=1, count_here=1)
    assert processes().is_first


def test_as_torchrun_states(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_WORLD_SIZE", "4")):
        monkeypatch.setenv(name, value)
    assert processes() == Processes(rank=5, count=8, count_here=4)
    assert not processes().is_first
    assert processes().num_machines == 2


def val_log_errors(out: Path) -> np.ndarray:
    """[epochs]."""
    (curves,) = (out / "curves").rglob("metrics.csv")
    return pd.read_csv(curves)["val_log_error"].dropna().to_numpy()


@pytest.mark.slow
def test_two_processes_give_the_numbers_of_one_within_the_noise_of_seeds(tmp_path: Path) -> None:
    data = prepared(tmp_path / "cache")
    for seed in (0, 1, 2):
        config = small(tmp_path / str(seed), seed=seed)
        fit(config, data, build_model(config, data))
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    two = run(*torchrun, program(tmp_path), overrides=[f"out={tmp_path / 'two'}"])
    assert two.returncode == 0, two.stderr
    assert two.stdout.count("sha256") == two.stdout.count("train: 4 steps") == 1  # printed once
    assert [path.name for path in (tmp_path / "two").rglob("*.pt")] == ["checkpoint.pt"]
    assert load_checkpoint(tmp_path / "two" / "checkpoint.pt").sha256 in two.stdout

    seeds = [val_log_errors(tmp_path / str(seed)) for seed in (0, 1, 2)]
    result = val_log_errors(tmp_path / "two")
    assert len(result) == 4
    assert abs(result - seeds[0]).max() < np.std([each[-1] for each in seeds])
    assert not np.array_equal(result, seeds[0])  # each process weighs its half of a batch by itself
