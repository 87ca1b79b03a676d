from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from research.baselines.table import Place, SplitData, ensure_record
from research.evaluation.records import read_records
from tests.research.baselines.made_data import Scaled, twice_recorded


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> SplitData:
    return SplitData(twice_recorded(tmp_path_factory.mktemp("cache")))


def fits(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.is_file() else 0


def test_a_table_goes_on_record_by_record(tmp_path: Path, split: SplitData) -> None:
    counted = tmp_path / "fits"
    learner, places = Scaled(1.2, counted), [Place(tmp_path, "scaled", seed) for seed in (0, 1)]
    assert ensure_record(places[0], learner, split)
    assert fits(counted) == 1  # killed here
    assert [ensure_record(place, learner, split) for place in places] == [False, True]
    assert fits(counted) == 2
    assert [record.origin.seed for record in read_records(tmp_path)] == [0, 1]


def test_a_record_of_other_data_or_another_learner_is_made_anew(tmp_path: Path, split: SplitData) -> None:
    counted, place = tmp_path / "fits", Place(tmp_path, "scaled", None)
    ensure_record(place, Scaled(1.2, counted), split)
    other = replace(split, data=replace(split.data, fingerprint="of other inputs"))
    assert ensure_record(place, Scaled(1.2, counted), other)
    assert read_records(tmp_path)[0].origin.data == "of other inputs"
    assert ensure_record(place, Scaled(1.3, counted), other)
    assert ensure_record(replace(place, part="val"), Scaled(1.3, counted), other)
    assert fits(counted) == 4
