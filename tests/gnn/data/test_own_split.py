"""A split is drawn by runs, or by programs, where no splits.json is there; nothing is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnperf.core.errors import InputError
from gnnperf.gnn.data.splits import drawn_axis, drawn_parts, read_split, recordings_below


def record(root: Path, name: str, *, program: str | None = None, status: str = "complete") -> None:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "rank_0.json").write_text("{}")
    if program is not None:
        (folder / "run.json").write_text(json.dumps({"status": status, "workload": program}))


def test_recordings_are_folders_with_traces_and_no_broken_card(tmp_path: Path) -> None:
    for name in ("a/10", "a/2", "plain", ".hidden/1"):
        record(tmp_path, name)
    record(tmp_path, "b/1", program="gpt", status="broken")
    record(tmp_path, "b/2", program="gpt")
    (tmp_path / "empty").mkdir()
    (tmp_path / "README.md").write_text("notes")
    assert list(recordings_below(tmp_path)) == ["a/2", "a/10", "b/2", "plain"]


def test_repeats_of_a_run_stay_together_and_every_recording_is_used(tmp_path: Path) -> None:
    names = [f"run{i}/{repeat}" for i in range(10) for repeat in (1, 2)]
    for name in names:
        record(tmp_path, name)
    parts = drawn_parts(tmp_path, "run")
    assert {part: len(recordings) for part, recordings in parts.items()} == {"train": 12, "val": 4, "test": 4}
    assert sorted(name for recordings in parts.values() for name in recordings) == sorted(names)
    runs = {part: {name.partition("/")[0] for name in recordings} for part, recordings in parts.items()}
    assert not runs["train"] & runs["val"] and not runs["train"] & runs["test"] and not runs["val"] & runs["test"]
    assert drawn_parts(tmp_path, "run") == parts


def test_whole_programs_are_left_out_where_cards_name_several(tmp_path: Path) -> None:
    for i, program in enumerate(["gpt", "gpt", "gpt", "dlrm", "dlrm", "cnn"]):
        record(tmp_path, f"run{i}", program=program)
    assert drawn_axis(tmp_path) == "workload"
    parts = drawn_parts(tmp_path, "workload")
    programs = {"gpt": {"run0", "run1", "run2"}, "dlrm": {"run3", "run4"}, "cnn": {"run5"}}
    assert set(parts["val"]) in programs.values() and parts["test"] == []  # three programs: too few to test on one
    assert len(parts["train"]) + len(parts["val"]) == 6


@pytest.mark.parametrize("programs", [["gpt", "gpt"], [None, None], ["gpt", None]])
def test_runs_are_left_out_where_at_most_one_program_is_named(tmp_path: Path, programs: list[str | None]) -> None:
    for i, program in enumerate(programs):
        record(tmp_path, f"run{i}", program=program)
    assert drawn_axis(tmp_path) == "run"
    parts = drawn_parts(tmp_path, "run")
    assert (len(parts["train"]), len(parts["val"]), len(parts["test"])) == (1, 1, 0)


@pytest.mark.parametrize(("names", "count"), [([], "0 runs"), (["a/1", "a/2"], "1 run;"), (["1", "2"], "1 run;")])
def test_fewer_than_two_runs_are_too_little_data(tmp_path: Path, names: list[str], count: str) -> None:
    for name in names:
        record(tmp_path, name)
    with pytest.raises(InputError, match=f"too little data: {count}"):
        drawn_parts(tmp_path, "run")


def test_read_split_draws_one_and_writes_nothing(tmp_path: Path) -> None:
    for i in range(5):
        record(tmp_path, f"run{i}")
    before = sorted(tmp_path.rglob("*"))
    split = read_split(tmp_path, "run")
    assert split.axis == "run" and (len(split.train), len(split.val), len(split.test)) == (3, 1, 1)
    assert sorted(tmp_path.rglob("*")) == before


def test_other_axes_need_the_file(tmp_path: Path) -> None:
    record(tmp_path, "a")
    with pytest.raises(InputError, match=r"splits\.json: no such file.*data\.axis=run"):
        read_split(tmp_path, "size")
