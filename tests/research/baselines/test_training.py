"""What was trained next to the trivial predictions: rows, cells on disk, the error that a search makes small."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gnnperf.gnn import LearnerConfig, LearnerKind, PreparedData
from gnnperf.gnn.training.look import Log
from research.baselines.judge import Fit, fitted, fitted_record, repeat_record
from research.baselines.rows import TRIVIAL, requested_fits, simpler
from research.baselines.training import Place, ensure_record, judged_rows, show_rows, validation_error, write_records
from research.baselines.trees import TREE_SETTINGS, OneHop, Own
from research.baselines.whole_steps import MedianStep, SameStep
from research.evaluation.records import Origin, read_records
from research.evaluation.row_errors import REPEAT, node_figures, step_figures
from tests.research.baselines.made_data import Scaled


def test_rows_and_records(repeated_data: PreparedData, tmp_path: Path) -> None:
    """The floor stands where a run is there twice, last; a cell states what it was made from."""
    judged = judged_rows({"mine": fitted(Scaled(1.2), repeated_data, 5)}, repeated_data, ["val", "test"])
    assert {part: set(rows) for part, rows in judged.items()} == {
        "val": {"mine", *TRIVIAL}, "test": {"mine", *TRIVIAL, REPEAT},
    }  # fmt: skip
    assert list(judged["test"])[-1] == REPEAT
    write_records(judged, tmp_path)
    for part in ("val", "test"):
        assert len(read_records(tmp_path / part, part)) == len(judged[part])
    (retained,) = (record for record in read_records(tmp_path / "test") if record.origin.row == "mine")
    assert (tmp_path / "test" / "run" / "mine" / "5.parquet").is_file()
    assert (tmp_path / "test" / "run" / "analytic" / "fixed.parquet").is_file()
    assert retained.origin.learner == repr(Scaled(1.2)) and retained.origin.data == repeated_data.fingerprint
    assert retained.steps["predicted_us"].tolist() == pytest.approx([1.25 * 185, 1.25 * 1.2 * 185])


def test_the_error_that_a_search_makes_small(repeated_data: PreparedData) -> None:
    """1.25 of every node but the collective, which holds the base's; of steps only where there are no nodes."""
    steps = Fit(SameStep(2 * 185.0), "twice", 0, 0.0)
    judged = judged_rows({"mine": fitted(Scaled(1.2), repeated_data, 5), "steps": steps}, repeated_data, ["val"])
    nodes = judged["val"]["mine"][0].nodes
    assert nodes is not None
    error = (nodes["predicted_us"] / nodes["measured_us"] - 1).abs()
    assert error.iloc[:-1].to_numpy() == pytest.approx(0.25)
    assert validation_error(judged, "mine") == pytest.approx((0.25**10 * error.iloc[-1]) ** (1 / 11), rel=1e-4)
    assert validation_error(judged, "steps") == pytest.approx(1.0)


def test_what_is_shown_is_retained(
    repeated_data: PreparedData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_rows(judged_rows({"mine": fitted(Scaled(1.2), repeated_data, 5)}, repeated_data, ["test"]), Log(tmp_path))
    printed = capsys.readouterr().out
    for words in ("run, test: node latencies", "run, test: step time", "mine", "another-recording", "ridge-step"):
        assert words in printed
    table = pd.read_csv(tmp_path / "tables" / "test_rows.csv").set_index(["row", "of"])
    assert table.loc[("mine", "steps"), "gmae"] == pytest.approx(0.25)
    assert ("median-step", "nodes") not in table.index and ("median-step", "steps") in table.index


def fits(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.is_file() else 0


def test_a_table_goes_on_record_by_record(tmp_path: Path, repeated_data: PreparedData) -> None:
    counted = tmp_path / "fits"
    learner, places = Scaled(1.2, counted), [Place(tmp_path, "scaled", seed) for seed in (0, 1)]
    assert ensure_record(places[0], learner, repeated_data)
    assert fits(counted) == 1  # killed here
    assert [ensure_record(place, learner, repeated_data) for place in places] == [False, True]
    assert fits(counted) == 2
    assert [record.origin.seed for record in read_records(tmp_path)] == [0, 1]


def test_a_record_of_other_data_or_another_learner_is_made_anew(tmp_path: Path, repeated_data: PreparedData) -> None:
    counted, place = tmp_path / "fits", Place(tmp_path, "scaled", None)
    ensure_record(place, Scaled(1.2, counted), repeated_data)
    other = replace(repeated_data, fingerprint="of other inputs")
    assert ensure_record(place, Scaled(1.2, counted), other)
    assert read_records(tmp_path)[0].origin.data == "of other inputs"
    assert ensure_record(place, Scaled(1.3, counted), other)
    assert ensure_record(replace(place, part="val"), Scaled(1.3, counted), other)
    assert fits(counted) == 4


@pytest.mark.parametrize(("kind", "choice"), [(LearnerKind.trees, Own()), (LearnerKind.trees_hops, OneHop())])
def test_the_kind_decides_the_columns_and_settings_are_those_by_hand(kind: LearnerKind, choice: object) -> None:
    result = simpler(LearnerConfig(kind))
    assert (result.choice, result.settings) == (choice, TREE_SETTINGS)


def test_fits(data: PreparedData) -> None:
    """A fit carries the row's name, its seed and what was given; where nothing is learned there is none."""
    assert requested_fits(LearnerConfig(LearnerKind.trivial), "none", data, 3) == {}
    requested = LearnerConfig(LearnerKind.trees, {"num_leaves": 4.0, "lambda_l2": 2.5})
    result = requested_fits(requested, "small", data, 3)
    assert list(result) == ["small"]
    assert result["small"].seed == 3 and result["small"].fit_s > 0
    assert result["small"].given == repr(simpler(requested)) and "'lambda_l2': 2.5" in result["small"].given
    assert "'num_leaves': 4," in result["small"].given  # LightGBM refuses 4.0
    assert result["small"].estimate.step_us(data.steps["test"][0]) > 0


def origin(part: str = "test", seed: int | None = 0) -> Origin:
    return Origin("run", part, "scaled", seed, "d", "l", "c")


def test_a_record_by_hand(repeated_data: PreparedData) -> None:
    """Seed 5 adds 5 % to 1.2; the collective, without a prediction, holds the base's; arrivals do not count."""
    record = fitted_record(Scaled(1.2), repeated_data, origin(seed=5))
    assert record.steps["recording"].tolist() == ["f/1", "f/2"]
    assert record.steps["run"].tolist() == ["f", "f"]
    assert record.steps["workload"].tolist() == ["toy", "toy"]
    assert record.steps["predicted_us"].tolist() == pytest.approx([1.25 * 185, 1.25 * 1.2 * 185])
    nodes = record.nodes
    assert nodes is not None
    first = nodes[nodes["recording"] == 0]
    assert first["kind"].tolist() == [*["host T2", "host T4", "host T3", "compute", "host T1"] * 2, "collective"]
    ratio = (first["predicted_us"] / first["measured_us"]).to_numpy()
    assert ratio[:-1] == pytest.approx(1.25)
    step = repeated_data.steps["test"][0]
    assert first["predicted_us"].iloc[-1] == pytest.approx(float(step.data["collective"].base_us[0]))
    assert record.coverage == pytest.approx(10 / 11)
    assert record.fit_s >= 0


def test_the_noise_floor_by_hand(repeated_data: PreparedData) -> None:
    """f/2 is longer by 10 % per node and 20 % per step: errors of 0.1 and 1 - 1 / 1.1, of 0.2 and 1 - 1 / 1.2."""
    record = repeat_record(repeated_data, origin(seed=None))
    assert record.steps["recording"].tolist() == ["f/1 by f/2", "f/2 by f/1"]
    nodes, steps = node_figures([record]), step_figures([record])
    assert nodes is not None
    assert nodes.count == 22
    assert nodes.gmae == pytest.approx(np.sqrt(0.1 * (1 - 1 / 1.1)), rel=1e-4)
    assert steps.gmae == pytest.approx(np.sqrt(0.2 * (1 - 1 / 1.2)))


def test_whole_steps_only(repeated_data: PreparedData) -> None:
    record = fitted_record(MedianStep(), repeated_data, origin())
    assert record.nodes is None
    assert np.isnan(record.coverage)
    assert record.steps["predicted_us"].tolist() == [185.0, 185.0]
