"""`gnnperf data build`: a killed worker loses nothing, what is there is not made again, and training reads it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from gnnperf.cli import main
from gnnperf.core.errors import InputError
from gnnperf.gnn.data import prepare
from gnnperf.gnn.data.build import CACHE, raw_runs
from gnnperf.gnn.data.prepare import DataConfig, load_data
from tests.trace import kineto_files as files

distributed = pytest.importorskip("distributed")
NUM_RUNS = 12


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    for run in range(NUM_RUNS):
        files.marked_steps(folder / f"run{run}" / "rank_0.json", steps=4 + run)
    files.write(folder / "broken" / "rank_0.json", '{"traceEvents": [')
    return folder


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        yield cluster


def _kill_once_a_run_is_built(worker: int, out: Path) -> None:
    while not list(out.glob("run*")):
        time.sleep(0.001)
    os.kill(worker, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(400)  # workers import torch, and one of them twice
def test_a_killed_worker_loses_nothing_and_a_second_build_makes_nothing(
    raw: Path, cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    out, before = tmp_path / "out", {nanny.pid for nanny in cluster.workers.values()}
    command = ["data", "build", str(raw), "--out", str(out), "--scheduler", cluster.scheduler_address, "--json"]
    killer = Thread(target=_kill_once_a_run_is_built, args=(min(before), out))
    killer.start()
    assert main(command) == 2
    killer.join()
    assert {nanny.pid for nanny in cluster.workers.values()} != before
    printed = capsys.readouterr()
    done = json.loads(printed.out)
    assert done["runs"] == NUM_RUNS and list(done["failed"]) == ["broken"]
    assert "1 of 13 runs cannot be used" in printed.err and "broken" in printed.err
    assert sorted(path.name for path in out.glob("[!.]*")) == sorted(f"run{i}" for i in range(NUM_RUNS))

    made = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    assert main(command) == 2
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()} == made

    monkeypatch.setattr(prepare, "features", None)  # would fail if training made features
    data = load_data(DataConfig(path=str(out), cache_dir=str(out / CACHE)))
    assert sum(map(len, data.steps.values())) == NUM_RUNS


def test_no_scheduler_and_no_runs_are_refused(raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "build", str(raw), "--out", str(tmp_path), "--scheduler", "nothing://here"]) == 2
    assert "no Dask scheduler can be reached" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no runs"):
        raw_runs([tmp_path / "empty"])
    with pytest.raises(InputError, match="is in two folders"):
        raw_runs([raw, raw])
