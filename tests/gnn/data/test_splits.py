"""Splits of a data set, and recordings of other data sets in them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gnnperf.core.errors import InputError
from gnnperf.gnn.data import splits as rules
from gnnperf.gnn.data.prepare import DataConfig, opened
from tests.gnn.data.data_sets import write_card


def dataset(root: Path, splits: object) -> Path:
    for run in ("a", "b", "c", "g/1", "g/2"):
        (root / run).mkdir(parents=True)
    (root / "splits.json").write_text(splits if isinstance(splits, str) else json.dumps(splits))
    return root


def test_reads_an_axis(tmp_path: Path) -> None:
    root = dataset(tmp_path, {"size": {"train": ["a", "b"], "val": ["c"]}})
    split = rules.read_split(root, "size")
    assert split == rules.Split("size", ("a", "b"), ("c",), ())
    assert split.part("val") == ("c",)


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"size": {"train": ["a"], "val": ["a"]}}, "run 'a' is in train and val"),
        ({"size": {"train": ["a", "a"], "val": ["b"]}}, "run 'a' is in train and train"),
        ({"size": {"train": ["a"], "val": ["z"]}}, "run 'z' is not a folder"),
        ({"size": {"train": [], "val": ["a"]}}, "part 'train' has no runs"),
        ({"size": {"train": ["a"], "val": []}}, "part 'val' has no runs"),
        ({"size": {"train": "a", "val": ["b"]}}, "part 'train' is not a list"),
        ({"size": ["a"]}, "part 'train' is not a list"),
        ({"link": {}}, "no split axis 'size'.*Allowed: link"),
        (["a"], "not an object"),
        ("{", "not JSON"),
        ("[" * 100_000, "nested deeper"),
        ({"size": {"train": ["../a"], "val": ["b"]}}, r"run '\.\./a' is not inside"),
        ({"size": {"train": ["/etc"], "val": ["b"]}}, "run '/etc' is not inside"),
        ({"size": {"train": ["."], "val": ["b"]}}, r"run '\.' is not inside"),
        ({"size": {"train": ["\0"], "val": ["b"]}}, "is not a folder"),
        ({"size": {"train": ["a" * 5000], "val": ["b"]}}, "File name too long"),
        ({"size": {"train": [["a"]], "val": ["b"]}}, "part 'train' is not a list"),
        ({"size": {"train": ["a", "g/1"], "val": ["g/2"]}}, r"'g/1' \(train\) and 'g/2' \(val\) are two recordings"),
    ],
)
def test_refuses(tmp_path: Path, splits: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        rules.read_split(dataset(tmp_path, splits), "size")


def test_other_axes_than_runs_and_programs_need_the_file_in_utf8(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"splits\.json: no such file.*data\.axis=run"):
        rules.read_split(tmp_path, "size")
    (dataset(tmp_path, {}) / "splits.json").write_bytes(b'{"\xff": 1}')
    with pytest.raises(InputError, match="not JSON"):
        rules.read_split(tmp_path, "size")


SPLIT = rules.Split("run", ("a/1", "a/2"), ("b/1",), ("c/1",))


def recorded(root: Path, *names: str, status: str = "complete", program: str | None = "") -> Path:
    """A folder of recordings with an empty trace and, unless `program` is None, a card."""
    for name in names:
        (root / name).mkdir(parents=True)
        (root / name / "rank_0.json").write_text("{}")
        if program is not None:
            write_card(root / name, 10.0, status=status, workload=program)
    return root


def test_what_the_split_knows_is_left_out_whatever_machine_it_ran_on(tmp_path: Path) -> None:
    other = recorded(tmp_path / "second", "a/1", "b/1", "b/2", "c/1", "c/2", "d/1")
    result = rules.with_tests_of(SPLIT, other)
    assert result == rules.Split("run-second", SPLIT.train, SPLIT.val, ("c/1", "c/2", "d/1"))


def test_a_recording_that_is_not_complete_is_no_test(tmp_path: Path) -> None:
    other = recorded(recorded(tmp_path / "second", "c/1"), "d/1", status="rejected")
    assert rules.with_tests_of(SPLIT, other).test == ("c/1",)


def test_nothing_new_is_refused(tmp_path: Path) -> None:
    other = recorded(tmp_path / "second", "a/1", "b/7")
    with pytest.raises(InputError, match="none of its 2 recordings is of a run that `run` neither trains nor"):
        rules.with_tests_of(SPLIT, other)


def test_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder") as refused:
        rules.with_tests_of(SPLIT, tmp_path / "nowhere")
    assert "data.test_path" in str(refused.value)


def test_a_configuration_names_folders_to_test_and_to_train_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnperf.gnn.data.runs.read_run", lambda root, name, *_: root / name)
    own = recorded(tmp_path / "first", "a/1", "b/1", "c/1", program="cnn")
    (own / "splits.json").write_text(json.dumps({"run": {"train": ["a/1"], "val": ["b/1"], "test": ["c/1"]}}))
    other = recorded(tmp_path / "second", "b/2", "d/1")
    config = DataConfig(path=str(own), test_path=str(other))
    split, read = opened(config)
    assert split == rules.Split("run-second", ("a/1",), ("b/1",), ("d/1",))
    assert [read(name) for name in ("a/1", "b/1", "d/1")] == [own / "a/1", own / "b/1", other / "d/1"]
    assert repr(config) == repr(DataConfig(path=str(own)))  # the same learner: it is given nothing else
    more = [str(recorded(tmp_path / name, "d/1", program="unet")) for name in ("more", "most")]
    split, read = opened(DataConfig(path=str(own), train_paths=more))
    assert [read(name) for name in split.train] == [own / "a/1", *(Path(folder) / "d/1" for folder in more)]
    assert split == rules.Split("run+more+most", ("a/1", "more/d/1", "most/d/1"), ("b/1",), ("c/1",))


def test_other_programs_are_trained_on_too_under_names_of_their_own(tmp_path: Path) -> None:
    own = recorded(tmp_path / "first", "c/1", program="cnn")
    other = recorded(recorded(tmp_path / "more", "a/1", "b/2", "d/1", program="unet"), "e/1", program="cnn")
    result = rules.with_more_to_train(SPLIT, other, [own / "c/1"])
    assert result == rules.Split("run+more", ("a/1", "a/2", "more/a/1", "more/d/1"), SPLIT.val, SPLIT.test)


@pytest.mark.parametrize("axis", ["link", "size", "world_size", "workloads"])
def test_what_an_axis_holds_out_another_data_set_may_hold(tmp_path: Path, axis: str) -> None:
    other = recorded(tmp_path / "more", "d/1", program="unet")
    with pytest.raises(InputError, match=f"another data set may hold what `{axis}` holds out"):
        rules.with_more_to_train(replace(SPLIT, axis=axis), other, [])


@pytest.mark.parametrize("axis", ["run", "run-second", "workload", "workload-cnn", "workload+more"])
def test_axes_that_go_by_programs_take_more(tmp_path: Path, axis: str) -> None:
    other = recorded(tmp_path / "more", "d/1", program="unet")
    assert rules.with_more_to_train(replace(SPLIT, axis=axis), other, []).axis == f"{axis}+more"


def test_recordings_that_cannot_be_reported_from_tested_ones_are_refused(tmp_path: Path) -> None:
    known, unknown = recorded(tmp_path / "a", "d/1", program="unet"), recorded(tmp_path / "b", "c/1")
    with pytest.raises(InputError, match="no card names its program"):
        rules.with_more_to_train(SPLIT, unknown, [])
    with pytest.raises(InputError, match="no card names its program"):
        rules.with_more_to_train(SPLIT, known, [unknown / "c/1"])
    with pytest.raises(InputError, match="holds only runs that are validated on and programs that are tested on"):
        rules.with_more_to_train(SPLIT, known, [known / "d/1"])
    with pytest.raises(InputError, match="a folder of that name is trained on already"):
        rules.with_more_to_train(rules.with_more_to_train(SPLIT, known, []), known, [])
    with pytest.raises(InputError, match="no such folder") as refused:
        rules.with_more_to_train(SPLIT, tmp_path / "nowhere", [])
    assert "data.train_paths" in str(refused.value)


# A split is drawn by runs, or by programs, where no splits.json is there; nothing is written.


def test_recordings_are_folders_with_traces_and_no_broken_card(tmp_path: Path) -> None:
    recorded(tmp_path, "a/10", "a/2", "plain", ".hidden/1", program=None)
    recorded(tmp_path, "b/1", program="gpt", status="broken")
    recorded(tmp_path, "b/2", program="gpt")
    (tmp_path / "empty").mkdir()
    (tmp_path / "README.md").write_text("notes")
    assert list(rules.recordings_below(tmp_path)) == ["a/2", "a/10", "b/2", "plain"]


def test_repeats_of_a_run_stay_together_and_every_recording_is_used(tmp_path: Path) -> None:
    names = [f"run{i}/{repeat}" for i in range(10) for repeat in (1, 2)]
    recorded(tmp_path, *names, program=None)
    parts = rules.drawn_parts(tmp_path, "run")
    assert {part: len(recordings) for part, recordings in parts.items()} == {"train": 12, "val": 4, "test": 4}
    assert sorted(name for recordings in parts.values() for name in recordings) == sorted(names)
    runs = {part: {name.partition("/")[0] for name in recordings} for part, recordings in parts.items()}
    assert not runs["train"] & runs["val"] and not runs["train"] & runs["test"] and not runs["val"] & runs["test"]
    assert rules.drawn_parts(tmp_path, "run") == parts


def test_whole_programs_are_left_out_where_cards_name_several(tmp_path: Path) -> None:
    programs = {"gpt": {"run0", "run1", "run2"}, "dlrm": {"run3", "run4"}, "cnn": {"run5"}}
    for program, names in programs.items():
        recorded(tmp_path, *names, program=program)
    assert rules.drawn_axis(tmp_path) == "workload"
    parts = rules.drawn_parts(tmp_path, "workload")
    assert set(parts["val"]) in programs.values() and parts["test"] == []  # three programs: too few to test on one
    assert len(parts["train"]) + len(parts["val"]) == 6


@pytest.mark.parametrize("programs", [["gpt", "gpt"], [None, None], ["gpt", None]])
def test_runs_are_left_out_where_at_most_one_program_is_named(tmp_path: Path, programs: list[str | None]) -> None:
    for i, program in enumerate(programs):
        recorded(tmp_path, f"run{i}", program=program)
    assert rules.drawn_axis(tmp_path) == "run"
    parts = rules.drawn_parts(tmp_path, "run")
    assert (len(parts["train"]), len(parts["val"]), len(parts["test"])) == (1, 1, 0)


@pytest.mark.parametrize(("names", "count"), [([], "0 runs"), (["a/1", "a/2"], "1 run;"), (["1", "2"], "1 run;")])
def test_fewer_than_two_runs_are_too_little_data(tmp_path: Path, names: list[str], count: str) -> None:
    recorded(tmp_path, *names, program=None)
    with pytest.raises(InputError, match=f"too little data: {count}"):
        rules.drawn_parts(tmp_path, "run")


def test_read_split_draws_one_and_writes_nothing(tmp_path: Path) -> None:
    recorded(tmp_path, *(f"run{i}" for i in range(5)), program=None)
    before = sorted(tmp_path.rglob("*"))
    split = rules.read_split(tmp_path, "run")
    assert split.axis == "run" and (len(split.train), len(split.val), len(split.test)) == (3, 1, 1)
    assert sorted(tmp_path.rglob("*")) == before
