"""`gnnperf data build`: nothing of the user's is lost, what is there is not made again, training gets the same bits."""

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import msgspec
import pytest
import torch

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core.errors import InputError, attempted
from gnnperf.core.files import UnwritableError
from gnnperf.gnn.data import build, runs
from gnnperf.gnn.data.build import as_built, build_data, cards_of, manifest_of
from gnnperf.gnn.data.cache import content_digest
from gnnperf.gnn.data.module import StepDataModule
from gnnperf.gnn.data.prepare import PreparedData, _predicted, load_data
from gnnperf.gnn.data.runs import Recorded, read_step, write_step
from gnnperf.gnn.settings import DataConfig
from gnnperf.predict.build_cli import _mapped
from gnnperf.predict.train_cli import keys_of
from tests.command import Command
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


def without_workers() -> Any:
    """Dask whose scheduler has no worker."""
    client = MagicMock()
    client.return_value.__enter__.return_value = client.return_value
    client.return_value.wait_for_workers.side_effect = TimeoutError
    return SimpleNamespace(Client=client, LocalCluster=None)


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


def test_constants_are_fitted_while_held_out_runs_are_read_unless_a_recording_is_unusable(
    raw: Path, tmp_path: Path
) -> None:
    shutil.copytree(raw, tmp_path / "whole", ignore=shutil.ignore_patterns("broken"))
    stages: dict[str, list[str]] = {}
    for name, folder in (("all usable", tmp_path / "whole"), ("one broken", raw)):

        def mapped(function: Any, items: Any, what: str, of: str = name) -> list[Any]:
            stages.setdefault(of, []).append(what)
            return [attempted(item, function) for item in items]

        build_data(DataConfig(path=str(folder), cache_dir=str(tmp_path / name)), (None, None), 2, mapped)
    both = ["reading training runs", "fitting, reading held-out runs"]
    assert stages["all usable"] == [*both, "building features"]
    assert stages["one broken"] == [*both, "fitting", "building features"]
    first, second = (manifest_of(tmp_path / name) for name in stages)
    assert first is not None and second is not None
    assert (first.fitted, first.split) == (second.fitted, second.split)


def test_a_data_set_that_is_read_again_is_taken_from_the_cache(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(raw, tmp_path / "whole", ignore=shutil.ignore_patterns("broken"))
    first, _ = read(tmp_path / "whole", tmp_path)
    monkeypatch.setattr(runs, "read_run", None)  # would fail if they were called
    monkeypatch.setattr(AnalyticPredictor, "predict", None)
    again, _ = read(tmp_path / "whole", tmp_path)
    assert (again.fingerprint, again.training_fingerprint) == (first.fingerprint, first.training_fingerprint)


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


def test_the_settings_of_a_build_are_no_words_of_a_command_line(out: Path, tmp_path: Path) -> None:
    shutil.copytree(out, tmp_path / "built")
    document = json.loads((tmp_path / "built" / "build.json").read_bytes())
    document["settings"]["axis"] = "${oc.env:HOME}"
    (tmp_path / "built" / "build.json").write_text(json.dumps(document))
    assert keys_of(str(tmp_path / "built")) == ["data.op_tables=[]"]
    config = DataConfig(path=str(tmp_path / "built"), op_tables=["mine"], batch_size=2)
    made = as_built(config, ["data.batch_size"])
    assert (made.axis, made.op_tables, made.max_nodes_per_batch) == ("${oc.env:HOME}", [], 16 * 2)
    assert as_built(config, ["data.axis"]).axis == "run"


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("settings", "max_nodes"), None),
        (("settings", "op_tables"), 3),
        (("runs", 0, "features"), "../../../../etc/hostname"),
        (("runs", 0, "examples"), ["/etc/hostname"]),
        (("runs", 0, "examples"), []),
        (("runs",), []),
        (("runs", 0, "step"), ".."),
        (("runs", 0, "step_us"), 0),
        (("runs", 0, "num_nodes"), 0),
        (("runs", 0, "part"), "elsewhere"),
        (("split", "val"), ["../../etc"]),
        (("fitted",), "fitted-" + "0" * 32 + ".pt"),
    ],
)
def test_a_damaged_build_is_refused(out: Path, tmp_path: Path, where: tuple[Any, ...], value: Any) -> None:
    shutil.copytree(out, tmp_path / "built")
    place = document = json.loads((tmp_path / "built" / "build.json").read_bytes())
    for key in where[:-1]:
        place = place[key]
    if value is None:
        del place[where[-1]]
    else:
        place[where[-1]] = value
    (tmp_path / "built" / "build.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"build\.json|fitted-0"):
        read(tmp_path / "built", tmp_path)


def test_damaged_files_of_a_build_are_refused(out: Path, tmp_path: Path) -> None:
    shutil.copytree(out, tmp_path / "built")
    step = read(tmp_path / "built", tmp_path)[0].steps["train"][0]
    for file in tmp_path.glob("built/features/*"):
        file.unlink()
    with pytest.raises(InputError, match=r"features/\w+\.pt: is damaged"):
        _ = step.data
    (fitted,) = tmp_path.glob("built/fitted-*")
    torch.save({**torch.load(fitted, weights_only=True), "normalizer": {"scale": 1}}, fitted)
    with pytest.raises(InputError, match=r"fitted-\w+\.pt: is damaged"):
        read(tmp_path / "built", tmp_path)


@pytest.mark.parametrize("stage", [(Recorded, "typical"), (build, "_encoded")])
@pytest.mark.parametrize("error", [AssertionError("odd"), UnwritableError("disk full")])
def test_what_the_machine_fails_at_does_not_count_as_a_bad_recording(
    raw: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: tuple[object, str], error: Exception
) -> None:
    shutil.copytree(out, tmp_path / "out")
    manifest = manifest_of(out)
    assert manifest is not None
    (tmp_path / "out" / "build.json").write_bytes(msgspec.json.encode(replace(manifest, split=None, runs=())))
    with monkeypatch.context() as patched, pytest.raises(InputError, match=r"(?s)not finished.*(odd|disk full)"):
        patched.setattr(*stage, MagicMock(side_effect=error))
        built(raw, tmp_path / "out")
    assert getattr(manifest_of(tmp_path / "out"), "split", "") is None
    assert list(built(raw, tmp_path / "out")) == ["broken"]


def test_workers_of_other_code_are_refused(raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = iter(["of the command"])
    monkeypatch.setattr(build, "code_fingerprint", lambda: next(codes, "of a worker"))
    with pytest.raises(InputError, match="a worker has other code"):
        built(raw, tmp_path / "out")


def test_two_workers_may_write_one_step(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = read_step(next(out.glob("steps/*")), "a", (None, None), "")
    monkeypatch.setattr(runs, "replacing_folder", MagicMock(side_effect=UnwritableError("Directory not empty")))
    with pytest.raises(UnwritableError):
        write_step(step, tmp_path / "step")
    (tmp_path / "step").mkdir()
    write_step(step, tmp_path / "step")


def test_cards_cannot_clash_with_files_of_the_build(raw: Path, tmp_path: Path) -> None:
    for name, run in (("build.json", "a/1"), ("steps", "b")):
        shutil.copytree(raw / run, tmp_path / "raw" / name)
        (tmp_path / "raw" / name / "run.json").write_text('{"status": "complete"}')
    assert built(tmp_path / "raw", tmp_path / "out") == {}
    (card,) = cards_of(tmp_path / "out").glob("*/run.json")
    assert card.parent.name in ("build.json", "steps") and cards_of(raw) == raw


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


def test_the_command(raw: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("data", "build", raw, "--out", tmp_path / "out")
    assert "1 to 1024" in command.refused(*words, "--workers", 0)
    distributed = pytest.importorskip("distributed")
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
        shown, message = command.ended(2, *words, "--scheduler", client.scheduler.address, "--json")
    assert json.loads(shown)["recordings"] == 6
    assert "1 recording cannot be used" in message and "broken" in message
    for key in ("data.path", "+data.cache_dir"):
        assert "is another argument's" in command.refused(*words, "--set", f"{key}=elsewhere")
    monkeypatch.setitem(sys.modules, "distributed", without_workers())
    assert "no Dask worker within 30 s" in command.refused(*words, "--scheduler", "tcp://somewhere:1")
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "pip install 'gnnperf[dask]'" in command.refused(*words)
