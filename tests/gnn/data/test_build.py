"""`gnnperf data build`: nothing of the user's is lost, what is there is not made again, training gets the same bits."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from gnnperf.cli import main
from gnnperf.core.errors import InputError, attempted
from gnnperf.gnn.data import build
from gnnperf.gnn.data.build import build_data
from gnnperf.gnn.data.cache import content_digest
from gnnperf.gnn.data.module import StepDataModule
from gnnperf.gnn.data.prepare import PreparedData, _predicted, load_data
from gnnperf.gnn.settings import DataConfig
from gnnperf.predict.build_cli import _mapped
from tests.trace import kineto_files as files


def recorded(path: Path, steps: int = 4) -> None:
    """Steps of eight ops, each with a kernel."""
    events = []
    for start in range(0, steps * files.STEP_US, files.STEP_US):
        events.append(files.host(f"ProfilerStep#{start}", start, files.STEP_US - 1, "user_annotation"))
        for at in range(start + 10, start + 810, 100):
            events += [files.host("aten::mm", at, 50), files.call("cudaLaunchKernel", at + 20, 5, at),
                       files.device("gemm", at + 30, 30 + steps, at)]  # fmt: skip
    files.write(path, files.document(events, 0, 4))


def built(raw: Path, out: Path) -> dict[str, str]:
    """Failures of a build in this process."""
    config = DataConfig(path=str(raw), cache_dir=str(out), max_nodes_per_batch=64)
    return build_data(config, (None, None), 2, lambda function, items, _: [attempted(i, function) for i in items])[1]


def contents(folder: Path) -> dict[Path, tuple[int, bytes]]:
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two recordings of a run, five further runs, one of them broken."""
    folder = tmp_path_factory.mktemp("raw")
    for place, name in enumerate(("a/1", "a/2", "b", "c", "d", "e")):
        recorded(folder / name / "rank_0.json", steps=4 + place)
    files.write(folder / "broken" / "rank_0.json", '{"traceEvents": [')
    return folder


@pytest.fixture(scope="module")
def out(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, before = tmp_path_factory.mktemp("out") / "built", contents(raw)
    failed = built(raw, folder)
    assert list(failed) == ["broken"] and "not readable JSON" in failed["broken"]
    assert contents(raw) == before
    return folder


def read(path: Path, tmp_path: Path, max_nodes: int = 64) -> tuple[PreparedData, StepDataModule]:
    config = DataConfig(path=str(path), cache_dir=str(tmp_path / "cache"), batch_size=4, max_nodes_per_batch=max_nodes)
    data = load_data(config)
    return data, StepDataModule(data, config, num_hops=2, seed=0)


def test_what_is_read_from_disk_has_the_bits_of_what_is_in_memory(raw: Path, out: Path, tmp_path: Path) -> None:
    shutil.copytree(raw, tmp_path / "whole", ignore=shutil.ignore_patterns("broken"))
    (stored, from_disk), (data, in_memory) = read(out, tmp_path), read(tmp_path / "whole", tmp_path)
    for name in ("split", "vocabulary", "constants", "floors", "normalizer"):
        assert content_digest(getattr(stored, name)) == content_digest(getattr(data, name))
    for part, steps in {**data.steps, "": data.recordings}.items():
        ours = stored.steps[part] if part else stored.recordings
        assert list(map(content_digest, map(_predicted, ours))) == list(map(content_digest, map(_predicted, steps)))
    assert len(from_disk.train) == len(in_memory.train) > len(data.steps["train"])  # some are in segments
    for place in range(len(in_memory.train)):
        assert content_digest(from_disk.train[place].to_dict()) == content_digest(in_memory.train[place].to_dict())


def test_a_second_build_makes_what_is_missing_only(raw: Path, out: Path, tmp_path: Path) -> None:
    again, before = tmp_path / "again", tmp_path / "repaired"
    shutil.copytree(out, again)
    shutil.copytree(raw, before)
    known = contents(again)
    recorded(before / "broken" / "rank_0.json")
    assert built(before, again) == {}
    assert {path: one for path, one in contents(again).items() if path.parts[-3] == "steps" and path in known} == {
        path: one for path, one in known.items() if path.parts[-3] == "steps"
    }
    assert len(list(again.glob("steps/*"))) == 1 + len(list(out.glob("steps/*")))


def test_folders_with_anything_else_are_refused(raw: Path, out: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    for folders in ((raw, raw), (raw, raw / "out"), (raw, raw.parent), (raw, tmp_path), (out, tmp_path / "new")):
        with pytest.raises(InputError, match="a new folder"):
            built(*folders)


def test_training_refuses_other_code_settings_and_sizes(
    raw: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="segments of 8 nodes"):
        read(out, tmp_path, max_nodes=8 * 4)
    for config in (DataConfig(str(out), axis="workload"), DataConfig(str(out), test_path=str(raw))):
        with pytest.raises(InputError, match=r"axis is workload|data\.test_path"):
            load_data(config)
    monkeypatch.setattr(build, "code_fingerprint", lambda: "other constants")
    with pytest.raises(InputError, match="other code, constants or libraries"):
        load_data(DataConfig(path=str(out)))
    monkeypatch.setattr(build, "_without", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        built(raw, tmp_path / "stopped")
    with pytest.raises(InputError, match="not finished"):
        load_data(DataConfig(path=str(tmp_path / "stopped")))


def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")

    def squared(number: int) -> int:
        if number == 3 and not (tmp_path / "killed").exists():
            (tmp_path / "killed").touch()
            os.kill(os.getpid(), 9)
        return number**2 // (number - 5)

    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50)
    with cluster, distributed.Client(cluster) as client:
        *results, failed, last = _mapped(client, squared, list(range(7)), "squaring")
    assert results == [0, -1, -2, -5, -16] and last == 36
    assert failed.reason == "ZeroDivisionError: integer division or modulo by zero"
    assert (tmp_path / "killed").exists()


def test_the_command(
    raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["data", "build", str(raw), "--out", str(tmp_path / "out")]
    assert main([*command, "--workers", "0"]) == 2
    assert "1 to 1024" in capsys.readouterr().err
    distributed = pytest.importorskip("distributed")
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
        assert main([*command, "--scheduler", client.scheduler.address, "--json"]) == 2
    printed = capsys.readouterr()
    assert json.loads(printed.out)["recordings"] == 6
    assert "1 recordings cannot be used" in printed.err and "broken" in printed.err
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(command) == 2
    assert "pip install 'gnnperf[dask]'" in capsys.readouterr().err
