from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from synthetic import prepared

from gnnperf.core.errors import InputError
from gnnperf.gnn.data import cache
from gnnperf.gnn.data.prepare import PreparedData, Step
from research.baselines.hops import trees_with_hops
from research.baselines.pooled import PooledSage
from research.baselines.sequence import OpsAsText
from research.baselines.trees import Trees
from research.baselines.tuning import Fitted, Range, Settings, Tunable, Tuned, search

SPACE = {"width": Range(1, 100, whole=True), "rate": Range(1e-3, 10.0)}
START = {"width": 50, "rate": 0.1, "fixed": 3.0}


@dataclass(frozen=True)
class Statement:
    settings: Settings

    def latency_us(self, step: Step) -> np.ndarray | None:
        return None

    def step_us(self, step: Step) -> float:
        return float(self.settings["rate"])


@dataclass
class Bowl:
    """|log(width / 7)| + |log(rate / 0.3)|, counting its fits."""

    fits: list[Settings] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)

    def fit(self, settings: Settings, seed: int) -> Fitted:
        self.fits.append(settings)
        self.seeds.append(seed)
        return Fitted(Statement(settings), abs(np.log(settings["width"] / 7)) + abs(np.log(settings["rate"] / 0.3)))


class Endless(Bowl):
    def fit(self, settings: Settings, seed: int) -> Fitted:
        return Fitted(Statement(settings), float("nan"))


@dataclass(frozen=True)
class Row:
    made: Bowl = field(default_factory=Bowl)
    name: str = "bowl"
    start: Settings = field(default_factory=lambda: START)
    space: Mapping[str, Range] = field(default_factory=lambda: SPACE)

    def bench(self, data: PreparedData) -> Bowl:
        return self.made


def test_the_search_starts_at_the_start_and_returns_the_best_it_saw() -> None:
    bowl = Bowl()
    result = search(bowl, SPACE, START, 12, seed=0)
    errors = [Bowl().fit(s, 0).val_error for s in bowl.fits]
    assert len(bowl.fits) == 12
    assert bowl.fits[0] == START
    assert result == bowl.fits[int(np.argmin(errors))]
    assert min(errors) < errors[0]


def test_the_search_keeps_its_bounds_whole_numbers_and_the_settings_it_does_not_search() -> None:
    bowl = Bowl()
    search(bowl, SPACE, START, 12, seed=0)
    assert all(isinstance(s["width"], int) and 1 <= s["width"] <= 100 for s in bowl.fits)
    assert all(1e-3 <= s["rate"] <= 10 and s["fixed"] == 3.0 for s in bowl.fits)


def test_the_search_repeats_and_leaves_numpys_generator_isolated() -> None:
    np.random.seed(5)  # noqa: NPY002
    expected = np.random.random()  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    one, two, other = Bowl(), Bowl(), Bowl()
    search(one, SPACE, START, 6, seed=0)
    assert np.random.random() == expected  # noqa: NPY002
    search(two, SPACE, START, 6, seed=0)
    search(other, SPACE, START, 6, seed=1)
    assert one.fits == two.fits
    assert one.fits[1:] != other.fits[1:]


def test_no_finite_error_is_refused() -> None:
    with pytest.raises(InputError, match="none of 3 trials"):
        search(Endless(), SPACE, START, 3, seed=0)


def test_one_trial_is_the_start(tmp_path: Path) -> None:
    row = Row()
    answer = Tuned(row, trials=1, store=tmp_path).fit(prepared(tmp_path), seed=4)
    assert row.made.fits == [START]
    assert row.made.seeds == [4]
    assert isinstance(answer, Statement)
    assert not list(tmp_path.glob("bowl_*"))


def test_settings_are_detected_once_and_serve_every_seed(tmp_path: Path) -> None:
    data, row = prepared(tmp_path), Row()
    tuned = Tuned(row, trials=4, store=tmp_path)
    tuned.fit(data, seed=1)
    assert len(row.made.fits) == 5  # four trials, then the fit
    tuned.fit(data, seed=2)
    assert len(row.made.fits) == 6
    assert row.made.fits[4] == row.made.fits[5]
    assert row.made.seeds == [0, 0, 0, 0, 1, 2]


def test_settings_of_another_budget_or_other_data_are_not_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, row = prepared(tmp_path), Row()
    Tuned(row, trials=2, store=tmp_path).fit(data, seed=0)
    Tuned(row, trials=3, store=tmp_path).fit(data, seed=0)
    assert len(list(tmp_path.glob("bowl_*.json"))) == 2
    monkeypatch.setattr(cache, "code_fingerprint", lambda: "other code")
    Tuned(row, trials=3, store=tmp_path).fit(data, seed=0)
    assert len(list(tmp_path.glob("bowl_*.json"))) == 2
    changed = type(data)(**{**vars(data), "training_fingerprint": "other"})
    Tuned(row, trials=3, store=tmp_path).fit(changed, seed=0)
    assert len(list(tmp_path.glob("bowl_*.json"))) == 3


def test_a_broken_file_of_settings_is_named(tmp_path: Path) -> None:
    data, row = prepared(tmp_path), Row()
    tuned = Tuned(row, trials=2, store=tmp_path)
    tuned.fit(data, seed=0)
    (path,) = tmp_path.glob("bowl_*.json")
    assert set(json.loads(path.read_text())) == set(START)
    path.write_text("{")
    with pytest.raises(InputError, match=r"bowl_.*delete it"):
        tuned.fit(data, seed=0)


def test_no_trial_is_refused() -> None:
    with pytest.raises(InputError, match="trials"):
        Tuned(Row(), trials=0)


def test_the_folder_is_not_part_of_the_name_of_a_row(tmp_path: Path) -> None:
    assert repr(Tuned(Row(), trials=2, store=tmp_path)) == repr(Tuned(Row(), trials=2))


def test_flaml_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flaml", None)
    with pytest.raises(InputError, match=r"flaml is not installed.*research\[baselines\]"):
        search(Bowl(), SPACE, START, 2, seed=0)


@pytest.mark.parametrize("row", [Trees(), trees_with_hops(), OpsAsText(), PooledSage()])
def test_every_row_searches_settings_it_has_and_travels_to_other_processes(row: Tunable) -> None:
    assert set(row.space) <= set(row.start)
    assert all(setting.low <= row.start[name] <= setting.high for name, setting in row.space.items())
    assert repr(pickle.loads(pickle.dumps(Tuned(row)))) == repr(Tuned(row))
    assert " at 0x" not in repr(Tuned(row))


def test_the_rows_have_names_of_their_own() -> None:
    rows: list[Tunable] = [Trees(), trees_with_hops(), OpsAsText(), PooledSage()]
    assert len({row.name for row in rows}) == len(rows)


def test_tuned_trees_answer(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    answer = Tuned(Trees(), trials=2, store=tmp_path).fit(data, seed=0)
    assert answer.step_us(data.steps["test"][0]) > 0
    assert len(list(tmp_path.glob("trees_*.json"))) == 1
