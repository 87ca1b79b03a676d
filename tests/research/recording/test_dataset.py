"""Plans of runs, one of which breaks: recorded, resumed, built, with a card. Probes and calibration by themselves."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml

from gnnperf.core import InputError, files
from gnnperf.record import card
from research.recording import dataset
from research.recording.build import DAY_AXIS, _axes, build
from research.recording.data_card import BLOCK, front_matter, with_front_matter
from research.recording.dataset import Outcome, calibrate_first, copy_calibration, record_all
from research.recording.plan import Change, Pair, Plan
from research.recording.probe import NoiseProbe, drift, fastest, probe_us
from research.recording.run import RunSpec, Steps
from tests.research.recording.programs import TINY_DLRM, Doomed

DLRM, DOOMED = RunSpec(TINY_DLRM), RunSpec(Doomed())
NAME = f"{DLRM.name}/1"
PLAN = Plan(
    "tiny", (DLRM, DOOMED), Steps(1, 3, 2), {"run": {"train": [DLRM.name], "val": [], "test": []}}, {"run": "nothing"},
    pairs=(Pair(Change.SIZE, DLRM, DLRM, {}),), repeats=1, max_attempts=2,
)  # fmt: skip
DONE = replace(PLAN, runs=(DLRM,))


def quiet(_line: str) -> None:
    """Say nothing."""


def steady(cores: list[int]) -> list[float]:
    """A machine that does not drift."""
    return [100.0 for _ in cores]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Outcome]]:
    raw = tmp_path_factory.mktemp("raw")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset, "probe_us", steady)
        return raw, record_all(PLAN, raw, quiet)


def test_a_killed_rank_breaks_its_run_and_leaves_the_complete_one(recorded: tuple[Path, list[Outcome]]) -> None:
    raw, outcomes = recorded
    assert [(o.name, o.accepted) for o in outcomes] == [(NAME, True), (f"{DOOMED.name}/1", False)]
    result = files.read_json(raw / DOOMED.name / "1" / "run.json") or {}
    assert result["status"] == "broken" and "rank 1 was killed by SIGKILL" in str(result["reason"])
    assert sorted(p.name for p in (raw / NAME).iterdir()) == [
        "rank_0.kineto.json.gz", "rank_1.kineto.json.gz", "run.json"]  # fmt: skip


def test_the_card_of_two_ranks(recorded: tuple[Path, list[Outcome]]) -> None:
    result = json.loads((recorded[0] / NAME / "run.json").read_text())
    assert result["status"] == "complete" and result["world_size"] == 2
    assert result["workload"] == "dlrm" and result["parameters"]["rows"] == 1000 and result["batch"] == 8
    assert result["parallelism"] == {"dp": 2, "table_wise": 2}
    assert result["link"] == {"backend": "gloo", "medium": "loopback", "hosts": 1, "rate_gbit_per_s": None}
    assert result["probe"] == {"before_us": [100.0] * 2, "after_us": [100.0] * 2, "drift": 0.0, "max_drift": 0.03,
                             "rejected_drifts": []}  # fmt: skip
    for number, rank in enumerate(result["ranks"]):
        assert (rank["rank"], rank["host"], rank["backend"]) == (number, 0, "gloo")
        assert (rank["threads"], len(rank["cores"])) == (1, 1)


def test_resuming_keeps_what_is_there(recorded: tuple[Path, list[Outcome]]) -> None:
    raw = recorded[0]
    before = {p: p.stat().st_mtime_ns for p in (raw / NAME).iterdir()}
    assert record_all(DONE, raw, quiet, resume=True) == [Outcome(NAME, True, "already there")]
    assert {p: p.stat().st_mtime_ns for p in (raw / NAME).iterdir()} == before


def test_building_writes_tables_splits_and_a_card(recorded: tuple[Path, list[Outcome]], tmp_path: Path) -> None:
    from gnnperf.trace import read_run

    built = build(DONE, recorded[0], tmp_path)
    run = read_run(tmp_path / NAME)
    assert [table.meta.rank for table in run.tables] == [0, 1] and run.card is not None
    for table in run.tables:
        names = table.events["name"].astype(str)
        assert list(names[names.str.startswith("ProfilerStep")]) == ["ProfilerStep#2", "ProfilerStep#3"]
        assert (names == "gloo:all_to_all").sum() == 2 * 3  # indices, rows, gradients; two steps
    assert json.loads((tmp_path / "splits.json").read_text()) == {"run": {"train": [NAME], "val": [], "test": []}}
    pairs = json.loads((tmp_path / "interventions.json").read_text())["pairs"]
    assert pairs == [{"kind": "size", "a": DLRM.name, "b": DLRM.name, "edit": {}}]
    assert (tmp_path / "examples" / DLRM.name / "rank_1.kineto.json.gz").is_file()
    readme = (tmp_path / "README.md").read_text()
    assert readme.startswith("---\nlicense: apache-2.0\n")
    assert f"| {DLRM.name} | 8 |" in readme and "gnnperf record --recipe tiny" in readme
    assert "lists 1 pairs of runs" in readme and "declared_edits --trace" in readme  # one recording of each
    assert (built.recordings, built.runs) == (1, 1)
    assert built.size_bytes == sum(p.stat().st_size for p in (tmp_path / NAME).iterdir())


def test_what_is_built_stays_when_its_raw_traces_are_gone(
    monkeypatch: pytest.MonkeyPatch, recorded: tuple[Path, list[Outcome]], tmp_path: Path
) -> None:
    out, raw = tmp_path / "set", tmp_path / "raw"
    build(DONE, recorded[0], out)
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    assert record_all(DONE, raw, quiet, built=out, resume=True) == [Outcome(NAME, True, "already there")]
    with pytest.raises(InputError, match=rf"{out}.*holds 1 of 1 recordings"):
        record_all(DONE, raw, quiet, built=out)
    assert build(DONE, raw, out).recordings == 1
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before


def test_a_run_during_which_the_machine_drifts_is_recorded_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    probes = iter([[100.0, 100.0], [100.0, 94.0], [100.0, 100.0], [102.0, 99.0]])  # -6 %, then +2 %
    monkeypatch.setattr(dataset, "probe_us", lambda cores: next(probes))
    monkeypatch.setattr(dataset, "record_run", write_complete_card)
    (outcome,) = record_all(DONE, tmp_path, quiet)
    assert outcome.accepted and "attempt 2" in outcome.note
    result = json.loads((tmp_path / NAME / "run.json").read_text())
    assert result["probe"]["drift"] == pytest.approx(0.02)
    assert result["probe"]["rejected_drifts"] == pytest.approx([0.06])


def test_attempts_are_bounded_and_a_rejected_run_is_not_complete(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    probes = iter([[100.0], [200.0]] * 3)
    monkeypatch.setattr(dataset, "probe_us", lambda cores: next(probes))
    monkeypatch.setattr(dataset, "record_run", write_complete_card)
    (outcome,) = record_all(replace(DONE, max_attempts=3), tmp_path, quiet)
    assert not outcome.accepted and next(probes, None) is None
    assert json.loads((tmp_path / NAME / "run.json").read_text())["status"] == "rejected"


def test_repeats_of_a_run_are_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slept: list[float] = []
    monkeypatch.setattr(dataset, "probe_us", steady)
    monkeypatch.setattr(dataset, "record_run", write_complete_card)
    monkeypatch.setattr(dataset.time, "sleep", slept.append)
    twice = replace(DONE, repeats=2, min_gap_s=600.0)
    outcomes = record_all(twice, tmp_path, quiet)
    assert [o.name for o in outcomes] == [f"{DLRM.name}/1", f"{DLRM.name}/2"]
    assert len(slept) == 1 and 590 < slept[0] <= 600
    record_all(twice, tmp_path, quiet, resume=True)
    assert len(slept) == 1
    shutil.rmtree(tmp_path / DLRM.name / "2")
    assert len(record_all(twice, tmp_path, quiet, resume=True, budget_s=60.0)) == 1 and len(slept) == 1


def write_complete_card(run_dir: Path, spec: RunSpec, steps: Steps, *, repeat: int) -> None:
    run_dir.mkdir(parents=True)
    times = {kind: {"median_us": 1000.0} for kind in ("without_profiler", "with_profiler")}
    files.write_json(run_dir / "run.json", {"status": "complete", "recorded_at": card.now(), "step_time": times})


def test_a_second_day_divides_what_the_axis_of_runs_divides_and_nothing_where_there_is_none() -> None:
    cards = {
        f"{DLRM.name}/1": {"recorded_at": "2026-11-21T23:59:00Z"},
        "later/1": {"recorded_at": "2026-11-22T00:01:00Z"},
    }
    by_run = {"train": [DLRM.name, "later"], "val": [], "test": []}
    days = _axes(replace(DONE, splits={"run": by_run}), cards)[DAY_AXIS]
    assert days == {"train": [DLRM.name], "val": [], "test": ["later"]}
    held_out = {"unseen": {"train": [], "val": [], "test": [DLRM.name, "later"]}}
    assert _axes(replace(DONE, splits=held_out), cards) == held_out


@pytest.fixture
def calibrations(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that run; each writes its folder."""
    ran: list[list[str]] = []

    def run(command: list[str], *, check: bool) -> subprocess.CompletedProcess[bytes]:
        assert not check
        ran.append(command)
        folder = Path(command[command.index("--out") + 1])
        folder.mkdir()
        (folder / "device.yaml").write_text("name: here\n")
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(dataset.subprocess, "run", run)
    return ran


def test_calibration_runs_once_and_goes_into_the_data_set(calibrations: list[list[str]], tmp_path: Path) -> None:
    raw, sentences = tmp_path / "raw", list[str]()
    for _ in range(2):
        calibrate_first(raw, 3.0, sentences.append)
    assert [command[1:] for command in calibrations] == [
        ["-m", "gnnperf", "calibrate", "--out", str(raw / "calibration"), "--minutes", "3"]]  # fmt: skip
    assert sentences == ["calibrating for 3 min"]
    for _ in range(2):
        copy_calibration(raw, tmp_path / "set")
    assert (tmp_path / "set" / "calibration" / "device.yaml").read_text() == "name: here\n"


def test_drift_is_the_largest_change_of_any_core() -> None:
    assert drift([100.0, 200.0], [101.0, 190.0]) == pytest.approx(0.05)
    assert drift([100.0], [108.0]) == pytest.approx(0.08)


def test_the_probe_times_every_core_and_leaves_the_process_as_it_was() -> None:
    cores, threads = os.sched_getaffinity(0), torch.get_num_threads()
    times_us = probe_us(sorted(cores))
    assert len(times_us) == len(cores) and min(times_us) > 1.0  # 33 MFLOP: no core does that in a microsecond
    assert os.sched_getaffinity(0) == cores and torch.get_num_threads() == threads


def probe(*result: Sequence[float]) -> list[Sequence[float]]:
    """What the probe finds, one after another, the last first."""
    return list(reversed(result))


def test_it_waits_until_the_machine_is_as_fast_as_at_its_best() -> None:
    noise = NoiseProbe(max_drift=0.03, patience_s=60.0)
    assert noise.wait(probe([100.0, 100.0]).pop) == [100.0, 100.0]  # nothing better is known
    result = probe([104.0, 100.0], [100.0, 120.0], [102.0, 102.5], [0.0, 0.0])
    assert noise.wait(result.pop) == [102.0, 102.5]
    assert result == [[0.0, 0.0]]


def test_what_earlier_recordings_detected_counts() -> None:
    noise = NoiseProbe(0.03, fastest([[100.0], [99.0, 101.0], [98.0, 103.0]]), patience_s=60.0)
    assert noise.wait(probe([110.0, 101.0], [99.0, 101.0]).pop) == [99.0, 101.0]


DATASETS = sorted(Path("datasets").glob("*/README.md"))


@pytest.mark.parametrize("path", DATASETS, ids=lambda path: path.parent.name)
def test_every_data_set_has_the_card_of_what_it_holds(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == with_front_matter(text, path.parent)
    match = BLOCK.match(text)
    assert match is not None and text[match.end() :].startswith("# ")
    card = yaml.safe_load(match[0].strip().strip("-"))
    assert card["task_categories"][0] == "tabular-regression"
    for config in card["configs"]:
        assert [list(path.parent.glob(one["path"])) != [] for one in config["data_files"]] == [True]
    assert card["license"] == ("apache-2.0" if card["configs"] else "other")


@pytest.mark.parametrize(("rows", "size"), [(999, "n<1K"), (1000, "1K<n<10K"), (250_000, "100K<n<1M")])
def test_sizes_are_those_of_rows(rows: int, size: str, tmp_path: Path) -> None:
    pd.DataFrame({"a": range(rows)}).to_parquet(tmp_path / "ops.parquet")
    assert f"size_categories:\n- {size}\n" in front_matter(tmp_path)
    assert with_front_matter(with_front_matter("# a\n", tmp_path), tmp_path).count("---\n") == 2
