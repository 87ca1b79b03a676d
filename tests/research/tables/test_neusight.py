import json
import math
from pathlib import Path

import pandas as pd
import pytest

from gnnperf.core.errors import InputError
from gnnperf.hardware import match_device
from research.tables import read_aiconfigurator, read_neusight
from research.tables.aiconfigurator import PATTERN
from research.tables.model_labels import ROOT, node_times, peer_us, read_model_labels, run_of
from research.tables.neusight import FOLDER


def _write(mirror: Path, name: str, rows: list[dict[str, object]]) -> None:
    folder = mirror / FOLDER.replace("*", "") / name / "p2.1.0"
    folder.mkdir(parents=True)
    pd.DataFrame([{"Device": "Tesla T4", **row} for row in rows]).to_csv(folder / "Tesla T4.csv", index=False)


def test_the_summed_length_of_a_batched_product_is_column_n(tmp_path: Path) -> None:
    _write(tmp_path, "bmm", [{"Latency": 0.5, "B": 2, "M": 3, "N": 4, "K": 5}])
    row = read_neusight(tmp_path).rows.iloc[0]
    assert (row["op"], row["shapes"]) == ("aten::bmm", "[[2, 3, 4], [2, 4, 5]]")
    assert tuple(row[["batch", "m", "n", "k"]]) == (2, 3, 5, 4)
    assert row["latency_us"] == 500.0
    assert row["flops"] == 2 * 2 * 3 * 5 * 4
    assert row["moved_bytes"] == 4 * 2 * (3 * 4 + 4 * 5 + 3 * 5)
    assert row["launch_included"] and row["cache"] == "warm" and row["dtype"] == "float32"


def test_a_linear_layer_has_its_weight_by_rows(tmp_path: Path) -> None:
    _write(tmp_path, "linear", [{"Latency": 0.1, "B": 1, "M": 3, "N": 4, "K": 5}])
    row = read_neusight(tmp_path).rows.iloc[0]
    assert row["shapes"] == "[[3, 4], [5, 4]]" and tuple(row[["m", "n", "k"]]) == (3, 5, 4)


def test_a_convolution_counts_the_products_of_its_windows(tmp_path: Path) -> None:
    size = {
        "B": 2, "Input_Channel": 3, "Output_Channel": 4, "Kernel_Szie": 3, "Input_Size": 5, "Stride": 2, "Padding": 1,
    }  # fmt: skip
    _write(tmp_path, "conv", [{"Latency": 1.0, **size}, {"Latency": 2.0, **size, "B": 1}])
    rows = read_neusight(tmp_path).rows
    row = rows.iloc[0]
    assert rows["calls_before"].tolist() == [0.0, 1.0]  # in the order of the file, in which they were measured
    assert row["shapes"] == "[[2, 3, 5, 5], [4, 3, 3, 3]]"
    assert row["flops"] == 2 * (2 * 4 * 3 * 3) * (3 * 3 * 3)  # the result is 3 x 3
    assert row["moved_bytes"] == 4 * (2 * 3 * 25 + 4 * 3 * 9 + 2 * 4 * 9)


@pytest.mark.parametrize(
    ("name", "op", "tensors"), [("add", "aten::add", 3), ("addu", "aten::add", 2), ("ln", "aten::layer_norm", 2)]
)
def test_elementwise_ops_read_and_write_whole_tensors(tmp_path: Path, name: str, op: str, tensors: int) -> None:
    _write(tmp_path, name, [{"Latency": 0.1, "B": 7, "H": 11}])
    row = read_neusight(tmp_path).rows.iloc[0]
    assert (row["op"], row["moved_bytes"]) == (op, tensors * 4 * 77)
    assert tuple(row[["rows", "columns"]]) == (7, 11) and pd.isna(row["k"])


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    size: dict[str, object] = {"B": 1, "M": 3, "N": 4, "K": 5}
    rows: list[dict[str, object]] = [{"Latency": ms, **size} for ms in (0.1, 0.3)]
    rows += [{"Latency": 0.1, **size, "M": 0}, {"Latency": None, **size, "M": 9}]
    rows += [{"Latency": 9.0, **size, "B": 2}, {"Latency": 4.0, "B": 2, "M": 8, "N": 8, "K": 8}]  # the larger is faster
    _write(tmp_path, "bmm", rows)
    table = read_neusight(tmp_path)
    assert sorted(table.rows["latency_us"]) == [200.0, 4000.0]  # the median of the repeated point
    assert sorted(table.dropped.values()) == [1, 1, 1, 1]
    assert all(reason.startswith("sitar-lab/NeuSight: ") for reason in table.dropped)


def test_the_mirror_holds_five_gpus(mirror: Path) -> None:
    rows = read_neusight(mirror).rows
    known = [match_device(name) for name in rows["device"].unique()]
    assert {device.name for device in known if device} >= {"p100", "t4", "v100_pcie_32gb"}
    products = rows[rows["table"] == "bmm"]
    assert (products.groupby("device").size() > 16_000).all() and products["device"].nunique() == 5
    assert rows["latency_us"].between(20, 2e7).all()
    peak = products["device"].map({"Tesla T4": 8.1e12, "Tesla P100-PCIE-16GB": 9.3e12})
    assert not (products["flops"] / products["latency_us"] * 1e6 > peak).any()


def _write_label(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_a_name_states_what_was_run() -> None:
    run = run_of("gpt2_large-train-1024-4-dp4")
    assert (run.model, run.training, run.length, run.batch, run.variant) == ("gpt2_large", True, 1024, 4, "dp4")
    assert run_of("opt_13-inf-2048-2").variant == ""
    with pytest.raises(InputError, match="run 'opt'"):
        run_of("opt")


def test_peers_and_nodes_belong_to_a_label_in_microseconds(tmp_path: Path) -> None:
    raw = {"num_layer": 0, "e2e_latency": 3.0}
    _write_label(tmp_path / ROOT / "label" / "Tesla_T4" / "m-train-8-1.json", json.dumps(raw))
    _write_label(tmp_path / ROOT / "label" / "Tesla_T4" / "m-train-8-1.csv",
           "Name,fw_latency,bw_latency,acc_latency\nadd,0.5,0.25,0.125\n")  # fmt: skip
    peers = tmp_path / ROOT / "results" / "prediction" / "Tesla_T4" / "micro"
    _write_label(peers / "m-train-8-1.json", json.dumps({"e2e_latency": 4.0}))
    _write_label(tmp_path / ROOT / "label" / "Tesla_T4" / "n-inf-8-1.json", json.dumps(raw))
    label, other = read_model_labels(tmp_path)
    assert (other.device, other.total_us) == ("Tesla T4", 3000.0)
    assert math.isnan(peer_us(tmp_path, other, "micro")) and node_times(tmp_path, other) is None
    assert peer_us(tmp_path, label, "micro") == 4000.0
    times = node_times(tmp_path, label)
    assert times is not None and times.loc["add"].tolist() == [500.0, 375.0]


def _write_gemm(mirror: Path, rows: list[tuple[str, int, int, int, float]]) -> None:
    path = mirror / PATTERN.replace("*", "x")
    path.parent.mkdir(parents=True)
    columns = ["gemm_dtype", "m", "n", "k", "latency"]
    pd.DataFrame(rows, columns=columns).assign(device="NVIDIA H200").to_parquet(path)


def test_milliseconds_become_microseconds_and_empty_products_are_counted(tmp_path: Path) -> None:
    _write_gemm(tmp_path, [("bfloat16", 2, 3, 4, 0.005), ("bfloat16", 0, 3, 4, 0.001), ("fp8", 2, 3, 4, 0.004)])
    table = read_aiconfigurator(tmp_path)
    assert len(table.rows) == 1
    row = table.rows.iloc[0]
    assert row["latency_us"] == 5.0 and row["flops"] == 48.0 and row["moved_bytes"] == 2 * (8 + 12 + 6)
    assert row["shapes"] == "[[2, 4], [3, 4]]" and row["dtypes"] == '["bfloat16", "bfloat16"]'
    assert row["op"] == "aten::linear" and row["turns"] == 6
    assert not row["launch_included"] and row["device"] == "NVIDIA H200"
    assert sorted(table.dropped.values()) == [1, 1]


def test_eight_bits_have_our_name_and_size(tmp_path: Path) -> None:
    _write_gemm(tmp_path, [("bfloat16", 2, 3, 4, 0.005), ("fp8", 2, 3, 4, 0.004), ("fp8_block", 2, 3, 4, 0.003)])
    rows = read_aiconfigurator(tmp_path, ("bfloat16", "fp8")).rows
    assert rows["dtype"].tolist() == ["bfloat16", "float8"]
    assert rows["moved_bytes"].tolist() == [2 * (8 + 12 + 6), 8 + 12 + 6]


def test_the_mirror_holds_the_same_shapes_on_every_gpu(mirror: Path) -> None:
    rows = read_aiconfigurator(mirror).rows
    shapes = rows.groupby("device")["shapes"].nunique()
    assert len(shapes) >= 4 and (shapes == shapes.iloc[0]).all()
    assert rows["latency_us"].between(1.0, 2e6).all()
