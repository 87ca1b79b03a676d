"""Databases of rocprofv3: generated files with the documented tables of schema 3, times in ns since boot.

thread 1   |roctx step 5 0..100 us                                          |
           |aten::mm 10..50                     |
               |hipLaunchKernel 20..25|   |hipMemcpyAsync 40..42|
stream 2                   |gemm 30..60 |  |copy 62..66|
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gnnperf.core.errors import InputError
from gnnperf.trace import read_run

SESSION, BOOT_NS = "_0000b1c7_4a5e", 77_000_000_000_001
STRINGS = ["HIP_RUNTIME_API", "MARKER_CORE_RANGE_API", "KERNEL_DISPATCH", "hipLaunchKernel", "hipMemcpyAsync", "step 5",
           "aten::mm, op_id = 2, sizes = [[8, 4], [4, 2]]", "MEMORY_COPY_HOST_TO_DEVICE"]  # fmt: skip
SIZES = {f"{what}_size_{axis}": size for what, size in (("workgroup", 64), ("grid", 640)) for axis in "xyz"}


def at(start_us: float, end_us: float, event: int) -> dict[str, Any]:
    return {"start": BOOT_NS + int(start_us * 1000), "end": BOOT_NS + int(end_us * 1000), "event_id": event, "pid": 1}


def tables() -> dict[str, list[dict[str, Any]]]:
    on_device = {"agent_id": 3, "stream_id": 2}
    return {
        "rocpd_metadata": [{"tag": "schema_version", "value": "3"}],
        "rocpd_string": [{"id": i, "string": text} for i, text in enumerate(STRINGS, 1)],
        "rocpd_info_agent": [{"id": 1, "type": "CPU", "type_index": 0, "name": "AMD EPYC", "product_name": ""},
                             {"id": 3, "type": "GPU", "type_index": 0, "name": "gfx942",
                              "product_name": "AMD Instinct MI300X"}],
        "rocpd_info_thread": [{"id": 9, "tid": 4242}],
        "rocpd_info_kernel_symbol": [{"id": 7, "display_name": "gemm", "kernel_name": "gemm.kd"}],
        "rocpd_event": [{"id": i, "stack_id": stack, "category_id": category}
                        for i, stack, category in ((1, 51, 1), (2, 52, 1), (3, 1, 2), (4, 2, 2), (5, 51, 3),
                                                   (6, 52, 3))],
        "rocpd_region": [{**at(start, end, event), "tid": 9, "name_id": name} for start, end, event, name in
                         ((0, 100, 3, 6), (10, 50, 4, 7), (20, 25, 1, 4), (40, 42, 2, 5))],
        "rocpd_kernel_dispatch": [{**at(30, 60, 5), **on_device, "kernel_id": 7, "group_segment_size": 1024, **SIZES}],
        "rocpd_memory_copy": [{**at(62, 66, 6), "dst_agent_id": 3, "src_agent_id": 1, "stream_id": 2, "size": 4096,
                               "name_id": 8}],
    }  # fmt: skip


def written(path: Path, content: dict[str, list[dict[str, Any]]]) -> Path:
    """The file, with the views that rocprofv3 puts over its tables."""
    with closing(sqlite3.connect(path)) as connection:
        for table, rows in content.items():
            connection.execute(f'CREATE TABLE "{table}{SESSION}" ({", ".join(rows[0])})')
            connection.execute(f'CREATE VIEW "{table}" AS SELECT * FROM "{table}{SESSION}"')
            for row in rows:
                marks = ", ".join("?" * len(row))
                connection.execute(f'INSERT INTO "{table}{SESSION}" VALUES ({marks})', list(row.values()))
        connection.commit()
    return path


def test_kernels_copies_calls_and_ranges_become_events(tmp_path: Path) -> None:
    run = read_run(written(tmp_path / "rank_2.db", tables()))
    (table,) = run.tables
    assert (table.meta.rank, table.meta.devices[0].name) == (2, "AMD Instinct MI300X")
    assert table.meta.base_time_ns == BOOT_NS
    events = table.events.set_index("name")
    assert events["kind"].to_dict() == {
        "ProfilerStep#5": "annotation", "aten::mm": "cpu_op", "hipLaunchKernel": "runtime", "gemm": "kernel",
        "hipMemcpyAsync": "runtime", "Memcpy HtoD": "memcpy",
    }  # fmt: skip
    assert events.loc["gemm", ["start_ns", "duration_ns", "grid", "block", "shared_bytes"]].tolist() == [
        30_000, 30_000, "[10,10,10]", "[64,64,64]", 1024]  # fmt: skip
    op = events["event_id"]["aten::mm"]
    assert events["op_event"][["gemm", "Memcpy HtoD"]].tolist() == [op, op]
    assert events["bytes"]["Memcpy HtoD"] == 4096 and set(events["thread"]) == {4242, -1}
    assert events["input_dims"]["aten::mm"] == "[[8,4],[4,2]]"


def test_shared_memory_that_is_not_stored_is_unknown_and_not_zero(tmp_path: Path) -> None:
    content = tables()
    content["rocpd_kernel_dispatch"][0]["group_segment_size"] = None
    (table,) = read_run(written(tmp_path / "rank_0.db", content)).tables
    assert table.events.set_index("name")["shared_bytes"]["gemm"] == -1  # unknown


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    other, two = tables(), tables()
    other["rocpd_metadata"][0]["value"] = "4"
    two["rocpd_kernel_dispatch"] += [{**two["rocpd_kernel_dispatch"][0], "pid": 2}]
    lacking = {name: rows for name, rows in tables().items() if name != "rocpd_kernel_dispatch"}
    for name, content, message in (
        ("a", other, "rocpd schema version '4'"), ("b", two, "kernels of 2 processes.*one rank per file"),
        ("c", lacking, "holds 0 sessions"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            read_run(written(tmp_path / f"{name}.db", content))
