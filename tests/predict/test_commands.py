"""`gnnperf ops predict`: one answer per row, reasons counted, errors where measured, one message for bad input."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import yaml

from gnnperf.core.errors import InputError
from gnnperf.hardware import conf_dir, load_cluster, load_device
from gnnperf.predict.request import Mode, Request, check
from gnnperf.predict.target import choose_target, collective_models_text, with_collective_models
from tests.command import Command
from tests.toys import two_rank_graph

MM = {"op": "aten::mm", "shapes": [[512, 256], [256, 1024]], "dtype": "bfloat16"}
VIEW = {"op": "aten::view", "shapes": [[4]], "dtype": "float32"}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "ops.jsonl"
    path.write_text("\n".join(json.dumps(e) for e in ({**MM, "latency_us": 8.0}, VIEW, {**VIEW, "op": "my::op"})))
    return path


def predict(table: Path, *more: object, hardware: str | Path = "h100_sxm") -> tuple[object, ...]:
    return ("ops", "predict", table, "--hardware", hardware, *more)


def test_every_row_is_predicted_or_states_why(table: Path, command: Command) -> None:
    shown = command.shown(*predict(table))
    assert "1 of 3 rows predicted for h100_sxm" in shown
    assert "no prediction for 1: no cost formula for this op" in shown
    assert "error against 1 measured rows: mean " in shown


def test_json_has_nulls_and_counts(table: Path, command: Command) -> None:
    result = command.document(*predict(table))
    assert (result["num_rows"], result["num_answered"], sum(result["unanswered"].values())) == (3, 1, 2)
    assert [r["latency_us"] is None for r in result["rows"]] == [False, True, True]
    assert [r["bound"] for r in result["rows"]][1:] == [None, None]
    first = result["rows"][0]
    assert first["measured_latency_us"] == 8.0 and first["bound"] in ("compute", "memory", "launch")
    assert result["errors"]["mean_ape"] == pytest.approx(abs(first["latency_us"] / 8.0 - 1))


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_the_table_is_written_with_its_predictions(suffix: str, table: Path, tmp_path: Path, command: Command) -> None:
    out = tmp_path / f"answers.{suffix}"
    command.shown(*predict(table, "--out", out))
    read = {"parquet": pd.read_parquet, "csv": pd.read_csv, "jsonl": lambda p: pd.read_json(p, lines=True)}[suffix]
    result = read(out)
    assert result["op"].tolist() == ["aten::mm", "aten::view", "my::op"]
    assert result["latency_us"].notna().tolist() == [True, False, False]
    assert result["reason"].notna().tolist() == [False, True, True]
    assert result["measured_latency_us"].tolist()[0] == 8.0


def test_written_tables_can_be_requested_again(tmp_path: Path, command: Command) -> None:
    table, out = tmp_path / "ops.jsonl", tmp_path / "answers.parquet"
    requested = {"op": "aten::sum", "shapes": [[64, 32]], "dtype": "float32", "latency_us": 9.0}
    rows = [{**requested, "arguments": {"dim": dim}} for dim in (0, [0])]
    table.write_text("\n".join(map(json.dumps, [*rows, VIEW])))
    command.shown(*predict(table, "--out", out))
    result = command.document(*predict(out))
    assert result["num_answered"] == 2 and result["errors"]["mean_ape"] > 0.1  # against 9 us, not the earlier answer
    assert [r["measured_latency_us"] for r in result["rows"]] == [9.0, 9.0, None]


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_predictions_are_never_taken_for_measurements(suffix: str, tmp_path: Path, command: Command) -> None:
    table, out = tmp_path / "ops.jsonl", tmp_path / f"answers.{suffix}"
    table.write_text(json.dumps(MM))
    command.shown(*predict(table, "--out", out))
    shown = command.shown(*predict(out, hardware="t4"))
    assert "1 of 1 rows predicted for t4" in shown and "error against" not in shown


def test_times_with_the_launch_are_not_compared_on_a_gpu(table: Path, command: Command) -> None:
    table.write_text(json.dumps({**MM, "latency_us": 8.0, "launch_included": True}))
    shown = command.shown(*predict(table))
    assert "1 measured rows are not compared" in shown and "error against" not in shown
    assert "error against 1 measured rows" in command.shown(*predict(table, hardware="cpu_generic"))


def test_a_device_file_is_hardware(table: Path, tmp_path: Path, command: Command) -> None:
    mine = {**yaml.safe_load((conf_dir("hardware") / "t4.yaml").read_text()), "name": "mine"}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(mine))
    assert "predicted for mine" in command.shown(*predict(table, hardware=tmp_path / "mine.yaml"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--hardware", "h1000"], "no hardware named 'h1000'; did you mean"),
        (["--hardware", "t4", "--out", "answers.txt"], "suffix '.txt'"),
        (["--hardware", "t4", "--out", "no/such/folder/a.csv"], "no such folder"),
    ],
)
def test_bad_options_are_one_message(arguments: list[str], message: str, table: Path, command: Command) -> None:
    error = command.refused("ops", "predict", table, *arguments)
    assert message in error and error.count("\n") == 1


def test_a_missing_table_is_one_message(tmp_path: Path, command: Command) -> None:
    assert "none.csv: no such file" in command.refused(*predict(tmp_path / "none.csv"))


def test_a_cluster_has_its_own_collective_models_by_device() -> None:
    for device, name in (("h100_sxm", "h100_sxm_nccl_2_29"), ("h200", "h200_nccl_2_29")):
        sentences = collective_models_text(choose_target(two_rank_graph(), load_device(device), None).cluster)
        assert sentences.startswith(f"{name}: ") and "Apache-2.0" in sentences
    assert collective_models_text(load_cluster("dgx1_v100")) == "by specification: the links of cluster dgx1_v100"


def test_collective_models_that_are_requested_for_come_first() -> None:
    target = choose_target(two_rank_graph(), load_device("h100_sxm"), None)
    assert target.with_collective_models(None) == target
    assert target.with_collective_models("specification").cluster.collective_models_name is None
    assert collective_models_text(target.with_collective_models("a100_vtrain").cluster).startswith("a100_vtrain: ")


def test_collective_models_of_another_medium_are_not_used_and_say_so() -> None:
    cluster = replace(load_cluster("hgx_h100"), intra=load_cluster("pcie_gen4_8").intra)
    cluster = replace(cluster, inter=replace(cluster.inter, medium="loopback"))
    assert "links of another kind" in collective_models_text(with_collective_models(cluster, "a100_vtrain"))


def test_a_name_that_is_none_is_refused_before_the_trace_is_read(tmp_path: Path) -> None:
    (tmp_path / "toy.json").write_text("{}")
    with pytest.raises(InputError, match="did you mean a100_vtrain"):
        check(Request(trace=tmp_path / "toy.json", collectives="a100_vtrai"))
    with pytest.raises(InputError, match="cannot be read"):
        check(Request(trace=tmp_path / "toy.json", collectives=str(tmp_path / "mine.yaml")))
    with pytest.raises(InputError, match="collectives: has no use in mode=replay"):
        check(Request(trace=tmp_path / "toy.json", mode=Mode.replay, collectives="a100_vtrain"))
    check(Request(trace=tmp_path / "toy.json", collectives="specification"))
