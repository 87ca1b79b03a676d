"""A test part of another data set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnperf.data.config import DataConfig
from gnnperf.data.elsewhere import read_from_both, with_tests_of
from gnnperf.data.prepare import opened
from gnnperf.data.runs import RunGraph
from gnnperf.data.splits import Split
from gnnperf.errors import InputError
from tests.synthetic import read

SPLIT = Split("run", ("a/1", "a/2"), ("b/1",), ("c/1",))


def recorded(root: Path, *names: str, status: str = "complete") -> Path:
    """A folder of recordings that have a card and nothing else."""
    for name in names:
        (root / name).mkdir(parents=True)
        times = {way: {"median_us": 10.0} for way in ("without_profiler", "with_profiler")}
        (root / name / "run.json").write_text(json.dumps({"status": status, "step_time": times}))
    return root


def test_what_the_split_knows_is_left_out_whatever_machine_it_ran_on(tmp_path: Path) -> None:
    other = recorded(tmp_path / "second", "a/1", "b/1", "b/2", "c/1", "c/2", "d/1")
    found = with_tests_of(SPLIT, other)
    assert found == Split("run-second", SPLIT.train, SPLIT.val, ("c/1", "c/2", "d/1"))


def test_a_recording_that_is_not_complete_is_no_test(tmp_path: Path) -> None:
    other = recorded(recorded(tmp_path / "second", "c/1"), "d/1", status="rejected")
    assert with_tests_of(SPLIT, other).test == ("c/1",)


def test_nothing_new_is_refused(tmp_path: Path) -> None:
    other = recorded(tmp_path / "second", "a/1", "b/7")
    with pytest.raises(InputError, match="none of its 2 recordings is of a run that `run` neither trains nor"):
        with_tests_of(SPLIT, other)


def test_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder") as refused:
        with_tests_of(SPLIT, tmp_path / "nowhere")
    assert "data.test_path" in str(refused.value)


def test_each_run_is_read_from_its_own_data_set() -> None:
    other = {name: RunGraph(f"other {name}", read("a").graph, read("a").cluster) for name in SPLIT.test}
    both = read_from_both(SPLIT, read, other.__getitem__)
    assert both("c/1").run == "other c/1"
    assert both("a").run == read("a").run


def test_a_configuration_names_the_other_folder(tmp_path: Path) -> None:
    own = recorded(tmp_path / "first", "a/1", "b/1", "c/1")
    (own / "splits.json").write_text(json.dumps({"run": {"train": ["a/1"], "val": ["b/1"], "test": ["c/1"]}}))
    other = recorded(tmp_path / "second", "b/2", "d/1")
    config = DataConfig(path=str(own), test_path=str(other))
    split, _ = opened(config)
    assert split == Split("run-second", ("a/1",), ("b/1",), ("d/1",))
    assert repr(config) == repr(DataConfig(path=str(own)))  # the same learner: it is told nothing else
