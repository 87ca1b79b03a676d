"""CSV tables of a prediction: by the command, and their sums."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from gnnperf import cli
from gnnperf.core.errors import InputError
from gnnperf.report import write_tables
from tests.predict.predictions import GEMM_1, toy_prediction
from tests.trace import kineto_files as files


def test_tables_hold_the_sums_over_ranks(tmp_path: Path) -> None:
    written = write_tables(toy_prediction({GEMM_1: 305.0}), tmp_path / "deep" / "tables")
    tables = {path.stem: pd.read_csv(path) for path in written}
    gemm = tables["ops"].query("op_name == 'aten::mm' and node_type == 'compute'").iloc[0]
    assert (gemm["num_nodes"], gemm["predicted_us"], gemm["measured_us"]) == (2, 405.0, 220.0)
    assert tables["kernels"]["predicted_us"].sum() == 405.0
    assert tables["collectives"][["op_name", "predicted_us"]].to_numpy().tolist() == [["c10d::allreduce_", 50.0]]
    parts = ["active_us", "transfer_us", "wait_us", "host_us", "idle_us"]
    assert tables["ranks"][parts].sum(axis=1).tolist() == [370.0, 370.0]


def test_the_command_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = files.write_ranks(tmp_path / "traces", 2)
    arguments = ["--out", str(tmp_path / "out"), "--tables", str(tmp_path / "csv"), "--set", "cache_dir=null"]
    assert cli.main(["predict", str(trace), *arguments]) == 0
    assert sorted(p.name for p in (tmp_path / "csv").iterdir()) == [
        "collectives.csv", "kernels.csv", "ops.csv", "ranks.csv",
    ]  # fmt: skip
    assert f"wrote {tmp_path / 'csv' / 'ops.csv'}" in capsys.readouterr().out


def test_a_folder_that_cannot_be_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written to"):
        write_tables(toy_prediction(), tmp_path / "file")
