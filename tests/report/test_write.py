"""The output folder: all four files or nothing, and no one else's files are touched."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gnnperf.core import PREDICTION_COLUMNS, InputError, to_json
from gnnperf.hardware import device_from, load_device
from gnnperf.report.json_document import document
from gnnperf.report.summary import nodes_table
from gnnperf.report.write import FILES, check_output, write_report, write_tables
from tests.command import Command
from tests.predict.predictions import GEMM_1, toy_prediction
from tests.trace import kineto_files as files


def test_all_four_files_and_nothing_with_them(tmp_path: Path) -> None:
    prediction = toy_prediction()
    written = write_report(prediction, tmp_path / "deep" / "out")
    assert [p.name for p in written] == list(FILES)
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["out"]
    assert json.loads((tmp_path / "deep/out/prediction.json").read_text())["step_time_us"] == 185.0
    nodes = pd.read_parquet(tmp_path / "deep/out/nodes.parquet")
    assert len(nodes) == 18
    pd.testing.assert_frame_equal(nodes, nodes_table(prediction))  # texts, whatever they are stored as
    assert json.loads(gzip.decompress((tmp_path / "deep/out/timeline.json.gz").read_bytes()))["traceEvents"]


def test_folder_with_other_files_is_refused_and_retained(tmp_path: Path) -> None:
    write_report(toy_prediction(), tmp_path / "out")
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"notes\.txt"):
        write_report(toy_prediction(), tmp_path / "out")
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


def test_files_of_our_names_by_someone_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("another tool's")
    with pytest.raises(InputError, match="not a prediction of gnnperf"):
        check_output(tmp_path)


def test_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    assert check_output(tmp_path) == tmp_path  # empty
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError, match="cannot be written to"):
        write_tables(toy_prediction(), tmp_path / "out")
    with pytest.raises(InputError, match="is not a folder"):
        check_output(tmp_path / "out")
    with pytest.raises(InputError, match="cannot be written to"):
        check_output(tmp_path / "out" / "deeper")


GOLDEN = {
    "format": "gnnperf.prediction", "format_version": 1, "run": "toy", "mode": "analytic",
    "hardware": "v100_sxm2_32gb", "cluster": "one_node", "step_time_us": 370.0,
    "step_time_is_lower_bound": False, "throughput": None, "traced_hardware": "Tesla V100-SXM2-32GB",
    "hardware_numbers": None, "traced_hardware_numbers": None, "world_size": 2, "traced_ranks": [0, 1], "step": 0,
    "step_name": "ProfilerStep#0", "structure_step": 0, "step_time_kind": "makespan",
    "step_time_interval_us": [300.0, 400.0], "interval_level": 0.9,
    "measured_step_time_us": 185.0, "step_time_error": 1.0, "traced_step_time_us": 185.0,
    "traced_step_prediction_us": None, "without_profiler": None, "step_time_ratio": None,
    "step_time_ratio_interval": None, "placement": None,
    "hardware_table": None, "measured_steps": None, "measured_rank_start_skew_us": 0.0, "step_makespan_us": 370.0,
    "rank_step_time_us": {"0": 370.0, "1": 370.0},
    "num_nodes": {"host": 8, "compute": 2, "memory": 0, "comm": 4, "collective": 1, "device": 2, "link": 1},
    "num_nodes_by_source": {"analytic": 15}, "num_nodes_by_reason": {"analytic": {"no network in use": 15}},
    "source_share": {"analytic": 1.0},
    "critical_path_share": {
        "compute": 0.8243243243243243, "collective": 0.13513513513513514, "host": 0.04054054054054054, "comm": 0.0,
    },
    "critical_path_delay_us": 0.0, "uncovered_ops": {}, "uncovered_measured_share": 0.0,
    "peak_memory": None, "findings": None, "whatif": None, "warnings": ["the sun shines"], "notes": [],
    "provenance": {"gnnperf": "0", "input_sha256": {"toy": "00"}},
}  # fmt: skip


def test_golden_document() -> None:
    """gemm of rank 1: 305 us, so 10 + 305 + 50 + 5 = 370 us, twice the measured step; keys in this order."""
    prediction = replace(toy_prediction({GEMM_1: 305.0}), step_time_interval_us=(300.0, 400.0), interval_level=0.9,
                     warnings=("the sun shines",))  # fmt: skip
    assert to_json(document(prediction)).decode() == json.dumps(GOLDEN, indent=2) + "\n"


def test_numbers_of_the_hardware_are_those_of_its_file_and_nothing_in_words() -> None:
    device = replace(load_device("h100_sxm"), source="a secret", provenance={"host": "mine"})
    result = document(toy_prediction(device=device, traced_device=load_device("v100_sxm2_32gb")))
    assert result["hardware_numbers"]["flops_per_s"]["bfloat16_matrix"] == 989.4e12
    assert result["hardware_numbers"]["memory_bandwidth_bytes_per_s"] == device.memory_bandwidth_bytes_per_s
    assert result["traced_hardware_numbers"]["flops_per_s"]["float32"] == 15.7e12
    assert not {"source", "host", "provenance"} & set(result["hardware_numbers"])
    assert device_from(json.loads(to_json(result))["hardware_numbers"], "here") == replace(
        device, source="", provenance={}
    )


def test_without_an_interval_it_is_null() -> None:
    result = document(toy_prediction())
    assert result["step_time_interval_us"] is None and result["interval_level"] is None


def test_unknown_is_null_in_strict_json() -> None:
    text = to_json({"a": float("nan"), "b": [float("inf"), 1.0], "c": {"d": None}})
    assert json.loads(text) == {"a": None, "b": [None, 1.0], "c": {"d": None}}


def test_nodes_have_the_vocabulary_and_keep_holes() -> None:
    nodes = nodes_table(toy_prediction({GEMM_1: np.nan}))
    assert list(nodes.columns) == [c.name for c in PREDICTION_COLUMNS]
    assert [str(t) for t in nodes.dtypes] == [c.dtype for c in PREDICTION_COLUMNS]
    gemm = nodes.loc[GEMM_1]
    assert np.isnan(gemm["latency_us"])
    assert gemm["source"] == "uncovered"
    assert gemm["measured_latency_us"] == 120.0
    assert gemm["start_us"] == 10.0
    assert nodes["segment"].isna().sum() == 2 + 1 + 3  # kernels, the collective, hardware
    assert nodes.loc[0, "segment"] == "T2"


def test_tables_hold_the_sums_over_ranks(tmp_path: Path) -> None:
    written = write_tables(toy_prediction({GEMM_1: 305.0}), tmp_path / "deep" / "tables")
    tables = {path.stem: pd.read_csv(path) for path in written}
    gemm = tables["ops"].query("op_name == 'aten::mm' and node_type == 'compute'").iloc[0]
    assert (gemm["num_nodes"], gemm["predicted_us"], gemm["measured_us"]) == (2, 405.0, 220.0)
    assert tables["kernels"]["predicted_us"].sum() == 405.0
    assert tables["collectives"][["op_name", "predicted_us"]].to_numpy().tolist() == [["c10d::allreduce_", 50.0]]
    parts = ["active_us", "transfer_us", "wait_us", "host_us", "idle_us"]
    assert tables["ranks"][parts].sum(axis=1).tolist() == [370.0, 370.0]


def test_the_command_writes_them(tmp_path: Path, command: Command) -> None:
    trace = files.write_ranks(tmp_path / "traces", 2)
    words = ("--out", tmp_path / "out", "--tables", tmp_path / "csv", "--set", "cache_dir=null")
    shown = command.shown("predict", trace, *words)
    assert sorted(p.name for p in (tmp_path / "csv").iterdir()) == [
        "collectives.csv", "kernels.csv", "ops.csv", "ranks.csv",
    ]  # fmt: skip
    assert f"wrote {tmp_path / 'csv' / 'ops.csv'}" in shown
