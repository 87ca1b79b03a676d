"""One side of a comparison: read back from a folder, or measured in a trace."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from gnnperf.core.errors import InputError
from gnnperf.core.schema import StepTimeKind
from gnnperf.report import write_report
from gnnperf.report.compare.side import is_prediction, measured_side, read_measured, read_prediction
from tests.predict.answers import GEMM_1, toy_answer
from tests.toys import two_rank_graph


def test_folder_is_read_back(tmp_path: Path) -> None:
    write_report(toy_answer({GEMM_1: 305.0}), tmp_path / "out")
    side = read_prediction(tmp_path / "out")
    assert (side.run, side.who, side.hardware) == ("toy", "analytic", "v100_sxm2_32gb")
    assert (side.step_time_us, side.step_time_kind) == (370.0, StepTimeKind.MAKESPAN)
    assert not side.is_lower_bound
    assert len(side.nodes) == 15  # the three hardware nodes are no work
    assert side.nodes["critical_us"].sum() == 370.0


def test_a_folder_without_a_prediction_is_a_trace(tmp_path: Path) -> None:
    assert not is_prediction(tmp_path)
    (tmp_path / "prediction.json").write_text("{}")
    assert is_prediction(tmp_path)
    assert not is_prediction(tmp_path / "prediction.json")


@pytest.mark.parametrize("text", ["[1]", "{", '{"format": "gnnperf.prediction", "format_version": 99}'])
def test_a_document_of_someone_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "prediction.json").write_text(text)
    with pytest.raises(InputError, match=r"prediction\.json"):
        read_prediction(tmp_path)


@pytest.mark.parametrize(("key", "value"), [("step_time_us", None), ("step_time_us", -1.0), ("step_time_kind", "x")])
def test_a_value_that_cannot_be_is_refused(tmp_path: Path, key: str, value: object) -> None:
    write_report(toy_answer(), tmp_path / "out")
    document = tmp_path / "out" / "prediction.json"
    document.write_text(json.dumps({**json.loads(document.read_text()), key: value}))
    with pytest.raises(InputError, match="cannot be understood"):
        read_prediction(tmp_path / "out")


def test_nodes_of_an_earlier_version_are_refused_by_name(tmp_path: Path) -> None:
    write_report(toy_answer(), tmp_path / "out")
    path = tmp_path / "out" / "nodes.parquet"
    pd.read_parquet(path).drop(columns="critical_us").to_parquet(path)
    with pytest.raises(InputError, match=r"no column 'critical_us'.*predict again"):
        read_prediction(tmp_path / "out")
    path.unlink()
    with pytest.raises(InputError, match=r"nodes\.parquet: cannot be read"):
        read_prediction(tmp_path / "out")


def test_measured_step_has_the_measured_time_and_its_critical_path() -> None:
    side = measured_side(two_rank_graph(), "toy.json")
    assert (side.who, side.step_time_us, side.step_time_kind) == ("measured", 185.0, StepTimeKind.MAKESPAN)
    assert side.hardware == "v100_sxm2_32gb"  # as predictions call it
    by_type = side.nodes.groupby("node_type")["critical_us"].sum()
    assert by_type[by_type > 0].to_dict() == {"host": 10.0 + 5.0, "compute": 120.0, "collective": 50.0}
    assert side.nodes["critical_us"].sum() == 185.0


def test_nothing_there_is_stated(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or directory"):
        read_measured(tmp_path / "nowhere")
