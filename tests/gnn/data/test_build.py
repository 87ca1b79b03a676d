"""`gnnperf data build`: nothing of the user's is lost, what is there is not made again, training gets the same bits."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gnnperf.cli import main
from gnnperf.core.errors import InputError
from gnnperf.gnn.data import build
from gnnperf.gnn.data.build import attempted, build_data
from gnnperf.gnn.data.cache import content_digest
from gnnperf.gnn.data.module import StepDataModule
from gnnperf.gnn.data.prepare import PreparedData, _predicted, load_data
from gnnperf.gnn.settings import DataConfig
from gnnperf.predict.build_cli import _mapped
from tests.trace import kineto_files as files

HARDWARE = (None, None)


def in_turn(function: Callable[[Any], Any], items: Sequence[Any], what: str) -> list[Any]:
    return [attempted(item, function) for item in items]


def built(raw: Path, out: Path, config: DataConfig | None = None) -> dict[str, str]:
    """Failures of a build in this process."""
    given = config or DataConfig(path=str(raw), cache_dir=str(out), max_nodes_per_batch=64)
    return build_data(given, HARDWARE, 2, in_turn)[1]


def recorded(path: Path, steps: int = 4) -> None:
    """Steps of eight ops, each with a kernel."""
    events = []
    for start in range(0, steps * files.STEP_US, files.STEP_US):
        events.append(files.host(f"ProfilerStep#{start}", start, files.STEP_US - 1, "user_annotation"))
        for at in range(start + 10, start + 810, 100):
            events += [files.host("aten::mm", at, 50), files.call("cudaLaunchKernel", at + 20, 5, at),
                       files.device("gemm", at + 30, 30 + steps, at)]  # fmt: skip
    files.write(path, files.document(events, 0, 4))


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
    folder = tmp_path_factory.mktemp("out") / "built"
    before = contents(raw)
    failed = built(raw, folder)
    assert list(failed) == ["broken"] and "not readable JSON" in failed["broken"]
    assert contents(raw) == before
    return folder


def contents(folder: Path) -> dict[Path, tuple[int, bytes]]:
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def read(path: Path, tmp_path: Path, max_nodes: int = 64) -> tuple[PreparedData, StepDataModule]:
    config = DataConfig(path=str(path), cache_dir=str(tmp_path / "cache"), batch_size=4, max_nodes_per_batch=max_nodes)
    data = load_data(config)
    return data, StepDataModule(data, config, num_hops=2, seed=0)


def test_what_is_read_from_disk_has_the_bits_of_what_is_in_memory(raw: Path, out: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    shutil.copytree(raw, whole)
    shutil.rmtree(whole / "broken")
    (stored, from_disk), (data, in_memory) = read(out, tmp_path), read(whole, tmp_path)
    assert stored.split == data.split
    for part, steps in data.steps.items():
        assert [content_digest(_predicted(step)) for step in stored.steps[part]] == [
            content_digest(_predicted(step)) for step in steps
        ]
    assert [step.run for step in stored.recordings] == [step.run for step in data.recordings]
    for name in ("vocabulary", "constants", "floors", "normalizer"):
        assert content_digest(getattr(stored, name)) == content_digest(getattr(data, name))
    assert len(from_disk.train) == len(in_memory.train) > len(data.steps["train"])  # some are in segments
    for place in range(len(in_memory.train)):
        assert content_digest(from_disk.train[place].to_dict()) == content_digest(in_memory.train[place].to_dict())


def test_a_second_build_makes_nothing_and_a_repaired_run_joins(raw: Path, out: Path, tmp_path: Path) -> None:
    again, repaired = tmp_path / "again", tmp_path / "repaired"
    shutil.copytree(out, again)
    shutil.copytree(raw, repaired)
    before = contents(again)
    built(raw, again)
    assert {path for path, one in contents(again).items() if one != before.get(path)} == {
        path for path in before if path.name == "build.json" or path.name.startswith("fitted")
    }
    recorded(repaired / "broken" / "rank_0.json")
    assert built(repaired, again) == {}
    assert len(set(again.glob("steps/*")) - {path.parent for path in before}) == 1


def test_folders_with_anything_else_are_refused(raw: Path, out: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    for folder in (raw, raw / "out", raw.parent, tmp_path):
        with pytest.raises(InputError, match="a new folder"):
            built(raw, folder)
    with pytest.raises(InputError, match="a new folder"):
        built(out, tmp_path / "new")


def test_training_refuses_other_code_settings_and_sizes(
    raw: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="segments of 8 nodes"):
        read(out, tmp_path, max_nodes=8 * 4)
    with pytest.raises(InputError, match="axis is workload"):
        load_data(DataConfig(path=str(out), axis="workload"))
    with pytest.raises(InputError, match=r"data\.test_path"):
        load_data(DataConfig(path=str(out), test_path=str(raw)))
    monkeypatch.setattr(build, "code_fingerprint", lambda: "other constants")
    with pytest.raises(InputError, match="other code, constants or libraries"):
        load_data(DataConfig(path=str(out)))
    monkeypatch.setattr(build, "_without", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        built(raw, tmp_path / "stopped")
    with pytest.raises(InputError, match="not finished"):
        load_data(DataConfig(path=str(tmp_path / "stopped")))


def test_the_command(
    raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["data", "build", str(raw), "--out", str(tmp_path / "out")]
    assert main([*command, "--workers", "0"]) == 2
    assert "1 to 1024" in capsys.readouterr().err
    distributed = pytest.importorskip("distributed")
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
        assert [str(one) for one in _mapped(client, lambda n: 6 // n, [3, 0], "dividing")] == [
            "2", "Failed(reason='ZeroDivisionError: integer division or modulo by zero')"
        ]  # fmt: skip
        assert main([*command, "--scheduler", client.scheduler.address, "--json"]) == 2
    printed = capsys.readouterr()
    assert json.loads(printed.out)["recordings"] == 6
    assert "1 recordings cannot be used" in printed.err and "broken" in printed.err
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(command) == 2
    assert "pip install 'gnnperf[dask]'" in capsys.readouterr().err
