"""Collective tables: sizes become bytes of one rank's input, whatever a source counts; what is left out is counted."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gnnperf.core.errors import InputError
from gnnperf.record.calibrate.ops_file import COLUMNS as OP_COLUMNS
from gnnperf.record.calibrate.ops_file import parquet_bytes
from research.tables import collective_sources
from research.tables.collective_tables import COLUMNS, collective_table, link_name, read_collective_table

ONE: dict[str, Any] = {
    "kind": "all_reduce", "message_bytes": 8.0, "group_size": 2, "nodes": 1, "device": "d", "platform": "p",
    "link": "nvlink", "dtype": "float16", "latency_us": 5.0, "source": "s", "method": "m",
}  # fmt: skip


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame(rows)
    frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, index=False)


def test_rows_that_measure_nothing_are_counted() -> None:
    table = collective_table({**ONE, "latency_us": [5.0, 0.0, np.nan]}, 3)
    assert len(table.rows) == 1 and list(table.rows) == list(COLUMNS)
    assert table.dropped == {"s: latency, size or group is missing or not positive": 2}
    both = collective_sources.joined([table, table])
    assert len(both.rows) == 2 and sum(both.dropped.values()) == 4
    assert collective_sources.joined([]).rows.empty
    with pytest.raises(KeyError, match="speed"):
        collective_table({**ONE, "speed": 1}, 1)


def test_aiconfigurator_counts_elements_of_the_whole_output(tmp_path: Path) -> None:
    row = {"nccl_dtype": "half", "num_gpus": 4, "message_size": 1024, "latency": 0.01}
    path = tmp_path / "ai-dynamo+aiconfigurator/core/data/h100_sxm/comm/nccl/2.23/nccl_perf.parquet"
    write(path, [{**row, "op_name": "all_gather"}, {**row, "op_name": "alltoall", "nccl_dtype": "int8"}])
    rows = collective_sources.read_aiconfigurator(tmp_path).rows
    assert rows["message_bytes"].tolist() == [512.0, 1024.0]  # 1024 x 2 bytes / 4 ranks; 1024 x 1 byte
    assert rows["kind"].tolist() == ["all_gather", "all_to_all"]
    assert rows["latency_us"].tolist() == [10.0, 10.0]
    assert set(rows["platform"]) == {"h100_sxm nccl 2.23"} and set(rows["link"]) == {"nvlink"}


def test_estimate_train_time_counts_float16_and_joins_files(tmp_path: Path) -> None:
    folder = tmp_path / "DebarghaG+estimate-train-time/data/Perlmutter/nccl"
    row = {"shape": 100.0, "nodes": 2.0, "GPUsPerNode": 4.0, "dur(us)": 7.0}
    write(folder / "NVIDIAA100-SXM4-80GB_allreduce_large_fp16_2_4.csv", [row])
    write(folder / "NVIDIAA100-SXM4-80GB_allreduce_large_fp16.csv", [row, row])
    table = collective_sources.read_estimate_train_time(tmp_path)
    assert table.rows[["kind", "message_bytes", "group_size", "nodes", "link"]].values.tolist() == [
        ["all_reduce", 200.0, 8, 2, "network"]
    ]
    assert list(table.dropped.values()) == [2]


def test_vidur_counts_bytes_and_a_copied_file_is_left_out(tmp_path: Path) -> None:
    row = {"time_stats.all_reduce.median": 0.02, "num_workers": 4, "size": 4096, "collective": "all_reduce"}
    folder = tmp_path / "microsoft+vidur/data/profiling/network"
    write(folder / "a100_pairwise_nvlink/all_reduce.csv", [{**row, "devices_per_node": 4}])
    write(folder / "h100_pairwise_nvlink/all_reduce.csv", [{**row, "devices_per_node": 4}])
    write(folder / "a100_dgx/all_reduce.csv", [{**row, "devices_per_node": 2}, {**row, "devices_per_node": 4}])
    table = collective_sources.read_vidur(tmp_path)
    result = table.rows[["platform", "message_bytes", "nodes", "link", "latency_us"]].values.tolist()
    assert result == [
        ["a100_dgx", 4096.0, 2, "network", 20.0], ["a100_dgx", 4096.0, 1, "nvlink", 20.0],
        ["a100_pairwise_nvlink", 4096.0, 1, "pcie", 20.0],
    ]  # fmt: skip
    assert list(table.dropped.values()) == [1]


def test_vtrain_has_both_places(tmp_path: Path) -> None:
    path = tmp_path / "VIA-Research+vTrain/trace/v100/AR_GPU8_1M_1024M_LUT"
    path.parent.mkdir(parents=True)
    head = "size(B),count,type,time(ns),busbw(GB/s),time(ns),busbw(GB/s)"
    path.write_text(f"{head}\n1048576,262144,float,79930,1,78610,1\n")
    rows = collective_sources.read_vtrain(tmp_path).rows
    assert rows["latency_us"].tolist() == [79.93, 78.61] and set(rows["link"]) == {"nvlink_mesh"}
    assert rows["method"].tolist() == ["nccl-tests, out of place", "nccl-tests, in place"]


@pytest.mark.mirror
def test_the_mirror_reads_and_no_rank_sends_faster_than_its_links(mirror: Path) -> None:
    table = collective_sources.read_collectives(mirror)
    rows = table.rows
    assert set(rows["kind"]) == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"}
    assert rows["source"].value_counts().min() > 1000 and all(count > 0 for count in table.dropped.values())
    # Were a size in the wrong unit, some bus bandwidth would be beyond the fastest link there is (GB200: 900 GB/s).
    parts = rows["group_size"].astype(float)
    factor = parts.where(rows["kind"] == "all_gather", 1.0).where(rows["kind"] != "all_reduce", 2.0)
    bus = rows["message_bytes"] * factor * (1 - 1 / rows["group_size"]) / rows["latency_us"] * 1e6
    assert bus.groupby(rows["device"]).max().lt(900e9).all()
    large = rows["message_bytes"] > 1e8
    assert bus[large & (rows["device"] == "h100_sxm") & (rows["group_size"] == 8)].between(200e9, 500e9).all()


ROW = {**dict.fromkeys(OP_COLUMNS), "op": "all_reduce", "kind": "collective", "message_bytes": 1024.0,
       "ranks": "[0, 1]", "link": "lo", "device": "cpu", "latency_us": 70.0}  # fmt: skip


def test_own_collectives_are_read_and_other_rows_are_not(tmp_path: Path) -> None:
    path = tmp_path / "ops.parquet"
    rows = [ROW, {**ROW, "op": "send", "link": "0.25g"}, {**ROW, "op": "aten::mm", "kind": "op", "ranks": None}]
    path.write_bytes(parquet_bytes(rows))
    result = read_collective_table(path).rows
    assert result[["kind", "message_bytes", "group_size", "nodes", "link", "latency_us"]].values.tolist() == [
        ["all_reduce", 1024.0, 2, 1, "loopback", 70.0],
        ["send_recv", 1024.0, 2, 2, "network", 70.0],
    ]


@pytest.mark.parametrize(
    ("measured", "kind"), [("NV18", "nvlink"), ("PIX", "pcie"), ("SYS", "pcie"), ("1g", "network")]
)
def test_links_by_their_measured_names(measured: str, kind: str) -> None:
    assert link_name(measured) == kind


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ops.parquet"
    pd.DataFrame({"op": ["all_reduce"]}).to_parquet(path)
    with pytest.raises(InputError, match="'kind' is missing"):
        read_collective_table(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_collective_table(tmp_path / "none.parquet")
