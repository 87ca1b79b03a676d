"""SQLite exports of Nsight Systems: the events of a Kineto file, step marks, ops, waits, what is refused."""

import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gnnperf.core.errors import InputError
from gnnperf.graph import build_graph
from gnnperf.trace import RunTrace, nsight, read_run
from tests.command import Command
from tests.trace import kineto_files
from tests.trace.kineto_files import refused, zipped
from tests.trace.nsight_files import PID, SCHEMA, START_NS, Export, step


def events_of(export: Export, folder: Path) -> list[dict[str, Any]]:
    """Rows of the one rank."""
    return rows_of(read_run(export.write(folder / "rank_0.sqlite")))


def rows_of(run: RunTrace) -> list[dict[str, Any]]:
    (table,) = run.tables
    return [{str(key): value for key, value in row.items()} for row in table.events.astype(object).to_dict("records")]


def named(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (row,) = [row for row in rows if row["name"] == name]
    return row


def test_an_export_gives_the_events_of_the_kineto_file_of_the_same_step(tmp_path: Path) -> None:
    columns = ["kind", "name", "start_ns", "duration_ns", "thread", "device", "stream", "correlation", "op_event",
               "launch_event", "link", "grid", "block", "registers", "shared_bytes"]  # fmt: skip
    events = kineto_files.step_events()
    events[-1]["args"] |= kineto_files.LAUNCH
    kineto = kineto_files.write(tmp_path / "kineto" / "rank_0.json", kineto_files.document(events))
    both = [read_run(p).tables[0].events for p in (kineto, step(Export()).write(tmp_path / "rank_0.sqlite"))]
    expected, result = (events[columns].astype(object).to_dict("list") for events in both)
    assert str(result) == str(expected)


def test_shapes_sequence_devices_and_absolute_time_are_read(tmp_path: Path) -> None:
    run = read_run(step(Export(), at_us=50).write(tmp_path / "rank_3.sqlite"))
    (table,) = run.tables
    rows = rows_of(run)
    addmm = named(rows, "aten::addmm")
    assert (addmm["input_dims"], addmm["sequence"]) == ("[[2],[8,4],[4,2]]", 901)
    assert (table.meta.rank, table.meta.source_format) == (3, "nsight_systems")
    assert table.meta.base_time_ns == START_NS + 50_000
    (device,) = table.meta.devices
    assert (device.name, device.memory_bytes, device.num_sms) == ("NVIDIA H100 80GB HBM3", 85_000_000_000, 132)
    assert device.clock_hz == 1_980_000_000


def test_copies_and_memsets_have_kineto_s_names_and_bytes(tmp_path: Path) -> None:
    export = step(Export())
    export.device("MEMCPY", 90, 91, 910, bytes=4096, copyKind=1, srcKind=1, dstKind=2)
    export.device("MEMCPY", 92, 93, 911, bytes=64, copyKind=10)
    export.device("MEMCPY", 94, 95, 912, bytes=64, copyKind=11, srcKind=4, dstKind=4)
    export.device("MEMSET", 96, 97, 913, bytes=512, memKind=2)
    path = export.write(tmp_path / "rank_0.sqlite")
    run = read_run(path)
    rows = rows_of(run)
    assert named(rows, "Memcpy HtoD (Pinned -> Device)")["bytes"] == 4096
    assert named(rows, "Memcpy PtoP")["kind"] == "memcpy"
    assert named(rows, "Memset (Device)")["bytes"] == 512
    assert run.warnings == ("rank_0.sqlite: 1 copies of managed memory were left out",)


def test_a_wait_names_the_stream_of_the_last_record_of_its_event_before_it(tmp_path: Path) -> None:
    export = step(Export())
    for correlation, recorded_on in ((903, 13), (905, 20), (909, 7)):
        export.add("CUPTI_ACTIVITY_KIND_CUDA_EVENT", deviceId=0, streamId=recorded_on, correlationId=correlation,
                   globalPid=PID, eventId=3)  # fmt: skip
    export.device("SYNCHRONIZATION", 90, 91, 906, syncType=2, eventId=3)
    export.device("SYNCHRONIZATION", 92, 93, 907, syncType=3, eventId=2**32 - 1)
    export.device("SYNCHRONIZATION", 94, 95, 908, stream=2**32 - 1, syncType=4, eventId=2**32 - 1)
    rows = events_of(export, tmp_path)
    wait, stream, context = (named(rows, name) for name in ("Stream Wait Event", "Stream Sync", "Context Sync"))
    assert (wait["stream"], wait["waiting_stream"], wait["wait_event"]) == (20, 7, 905)
    assert (stream["stream"], stream["waiting_stream"], stream["wait_event"]) == (7, -1, -1)
    assert context["stream"] == -1


@pytest.mark.parametrize("text", ["ProfilerStep#5", "step 5", "Step #5", "iteration 5", "iter: 5", "step_5"])
def test_ranges_that_number_steps_are_step_marks(tmp_path: Path, text: str) -> None:
    assert named(events_of(step(Export(), mark=text), tmp_path), "ProfilerStep#5")["kind"] == "annotation"


def test_iterations_mark_steps_where_both_are_numbered(tmp_path: Path) -> None:
    export = step(Export(), mark="iteration 7")
    export.range("step 1", 12, 40)
    rows = events_of(export, tmp_path)
    assert named(rows, "ProfilerStep#7")["duration_ns"] == 100_000
    assert named(rows, "annotation_1")["start_ns"] == 12_000


def test_ranges_of_programs_and_libraries_are_annotations_without_their_text(tmp_path: Path) -> None:
    export = step(Export())
    export.range("load /home/ann/data.bin", 1, 2)
    export.range("cub::DeviceReduce", 3, 4, domainId=12)
    export.range(None, 5, 6, textId=export.name("ann@gpu7.example.org"))  # type: ignore[arg-type]
    export.range("aten::mm", 7, 8, eventType=60)
    rows = [row for row in events_of(export, tmp_path) if row["kind"] == "annotation"]
    assert [row["name"] for row in rows] == ["ProfilerStep#5", *(f"annotation_{i}" for i in range(1, 5))]


def test_a_range_without_an_end_is_left_out_and_counted(tmp_path: Path) -> None:
    export = step(Export())
    export.range("aten::mm", 90, None)
    run = read_run(export.write(tmp_path / "rank_0.sqlite"))
    assert run.warnings == ("rank_0.sqlite: 1 events with a missing, negative or absurd time were left out",)


def test_a_backward_op_is_tied_to_its_forward_op_by_sequence(tmp_path: Path) -> None:
    export = step(Export())
    export.range("autograd::engine::evaluate_function: AddmmBackward0, seq = 901, op_id = 950", 90, 95, thread=2)
    rows = events_of(export, tmp_path)
    backward = named(rows, "autograd::engine::evaluate_function: AddmmBackward0")
    assert backward["kind"] == "cpu_op"
    assert backward["forward_event"] == named(rows, "aten::addmm")["event_id"]


def test_only_the_process_with_kernels_is_read(tmp_path: Path) -> None:
    export = step(Export())
    export.range("aten::mul", 5, 9, globalTid=PID + (1 << 24) + 1)  # a worker that loads data
    assert "aten::mul" not in [row["name"] for row in events_of(export, tmp_path)]


def test_devices_are_in_the_order_of_the_process(tmp_path: Path) -> None:
    """Process 100 sees the second GPU as its first."""
    export = step(Export(gpu="NVIDIA A100-SXM4-80GB"))
    export.add("TARGET_INFO_GPU", id=1, name="NVIDIA H100 80GB HBM3")
    export.rows["TARGET_INFO_CUDA_DEVICE"] = [
        {"gpuId": 1, "cudaId": 0, "pid": 100},
        {"gpuId": 0, "cudaId": 0, "pid": 9},
    ]
    (table,) = read_run(export.write(tmp_path / "rank_0.sqlite")).tables
    assert table.meta.devices[0].name == "NVIDIA H100 80GB HBM3"


def test_cuda_graphs_without_kernels_are_a_warning(tmp_path: Path) -> None:
    export = step(Export())
    export.device("GRAPH_TRACE", 90, 95, 910)
    (warning,) = read_run(export.write(tmp_path / "rank_0.sqlite")).warnings
    assert "1 launches of CUDA graphs whose kernels nsys profile --cuda-graph-trace=node records were left" in warning


def test_rank_files_in_a_folder_are_one_run(tmp_path: Path) -> None:
    for rank in range(2):
        step(Export()).write(tmp_path / f"rank_{rank}.sqlite")
    (tmp_path / "rank_0.nsys-rep").write_bytes(b"the report itself")
    run = read_run(tmp_path)
    assert [table.meta.rank for table in run.tables] == [0, 1]
    assert run.warnings == ()


def three_steps() -> Export:
    """Steps 0, 1, 2 begin at 0, 120 and 240 us and take 100 us; kernels of 30 and 10 us each."""
    export = Export()
    for i in range(3):
        step(export, at_us=120 * i, mark=f"iteration {i}", first=900 + 10 * i)
    return export


def test_a_graph_has_the_period_and_the_kernels_of_the_steps(tmp_path: Path) -> None:
    graph = build_graph(read_run(three_steps().write(tmp_path / "rank_0.sqlite")))
    compute = graph.nodes[(graph.nodes["node_type"] == "compute").to_numpy()]
    assert [s.name for s in graph.steps] == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]
    assert [s.period_us for s in graph.steps][1:] == [120.0, 100.0]
    assert compute["latency_us"].tolist() == [30.0, 10.0] * 3
    assert compute["op_name"].tolist() == ["aten::addmm", "aten::relu"] * 3
    assert compute["flops"].tolist()[0] == 2 * 8 * 4 * 2


def test_a_prediction_on_the_recorded_and_on_another_gpu(tmp_path: Path, command: Command) -> None:
    path = three_steps().write(tmp_path / "rank_0.sqlite")
    words = ("predict", path, "--out", tmp_path / "out")
    own, other = command.document(*words), command.document(*words, "--gpu", "h200")
    assert own["hardware"] == "h100_sxm"
    assert own["step_time_us"] == pytest.approx(100.0)
    assert other["hardware"] == "h200"
    assert other["step_time_us"] == pytest.approx(100.0)  # host bound


def without(*tables: str, version: str = "3.28.1") -> Export:
    export = step(Export(version))
    for table in tables:
        del export.rows[table]
    return export


def two_processes() -> Export:
    export = step(Export())
    export.kernel("gemm", 30, 60, 901, globalPid=PID + (1 << 24))
    return export


@pytest.mark.parametrize(
    ("export", "message"),
    [
        (without(version="2.7.1"), r"schema version '2\.7\.1'.*schema version 3\.x.*nsys export --type sqlite"),
        (without(version="4.0.0"), r"schema version '4\.0\.0'"),
        (without("META_DATA_EXPORT"), "without META_DATA_EXPORT.*export of Nsight Systems"),
        (without("CUPTI_ACTIVITY_KIND_KERNEL"), "no table CUPTI_ACTIVITY_KIND_KERNEL.*--trace=cuda,nvtx"),
        (without("CUPTI_ACTIVITY_KIND_RUNTIME"), "no table CUPTI_ACTIVITY_KIND_RUNTIME.*--trace=cuda,nvtx"),
        (two_processes(), r"kernels of 2 processes.*one rank per file.*nsys profile -o rank_%q\{RANK\}"),
    ],
)
def test_exports_that_cannot_be_used_are_refused(tmp_path: Path, export: Export, message: str) -> None:
    refused(export.write(tmp_path / "rank_0.sqlite"), message)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    kernel = "CUPTI_ACTIVITY_KIND_KERNEL"
    schema = SCHEMA | {kernel: SCHEMA[kernel].replace("gridZ INTEGER NOT NULL", "gridW INTEGER")}
    refused(step(Export()).write(tmp_path / "a.sqlite", schema), "lacks the column gridZ of CUPTI_ACTIVITY_KIND_KERNEL")


def test_a_report_is_refused_with_the_command_that_exports_it(tmp_path: Path) -> None:
    (tmp_path / "a.nsys-rep").write_bytes(b"report")
    refused(tmp_path / "a.nsys-rep", "report of Nsight Systems.*nsys export --type sqlite a.nsys-rep")


def test_databases_in_archives_are_not_read(tmp_path: Path) -> None:
    data = step(Export()).write(tmp_path / "rank_0.sqlite").read_bytes()
    refused(zipped(tmp_path / "a.zip", {"rank_0.sqlite": data}), "holds no trace file")


ENDLESS = (
    "CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    "SELECT i AS start, i + 1 AS end, 59 AS eventType, 'a' AS text, 1 AS globalTid FROM n"
)
COMPUTED = SCHEMA["CUPTI_ACTIVITY_KIND_MEMCPY"].replace("dstKind INTEGER", "dstKind AS (length(zeroblob(1000000000)))")


@pytest.mark.parametrize(
    "statement", [ENDLESS, "CREATE VIRTUAL TABLE NVTX_EVENTS USING rtree(id, start, end)",
                  "CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN SELECT 1; END"],
)  # fmt: skip
def test_what_computes_rows_is_refused_before_it_runs(tmp_path: Path, statement: str) -> None:
    export = step(Export())
    del export.rows["NVTX_EVENTS"]
    refused(export.write(tmp_path / "a.sqlite", None, statement), "view, trigger or virtual table")


def test_computed_columns_are_not_columns(tmp_path: Path) -> None:
    export = step(Export())
    export.device("MEMCPY", 90, 91, 910, bytes=64, copyKind=1, srcKind=1)
    path = export.write(tmp_path / "rank_0.sqlite", SCHEMA | {"CUPTI_ACTIVITY_KIND_MEMCPY": COMPUTED})
    begin = time.monotonic()
    rows = read_run(path).tables[0].events["name"].tolist()
    assert "Memcpy HtoD" in rows
    assert time.monotonic() - begin < 5


def test_steps_texts_and_values_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = step(Export()).write(tmp_path / "rank_0.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        database = nsight.Database(connection, size=3, where="a.sqlite")
        with pytest.raises(InputError, match="more text than the file has bytes"):
            database.text(1)
    monkeypatch.setattr(nsight, "MAX_TEXT_BYTES", 100)
    refused(path, "not a readable SQLite file.*too big")
    monkeypatch.undo()
    monkeypatch.setattr(nsight, "BASE_STEPS", 0)
    monkeypatch.setattr(nsight, "STEPS_PER_BYTE", 0)
    monkeypatch.setattr(nsight, "STEPS_AT_ONCE", 10)
    refused(path, "not a readable SQLite file.*interrupted")


def other_types(export: Export) -> None:
    export.rows["CUPTI_ACTIVITY_KIND_RUNTIME"][0]["start"] = "soon"
    export.rows["CUPTI_ACTIVITY_KIND_KERNEL"][0] |= {
        "registersPerThread": b"\xff",
        "gridX": 1.5,
        "correlationId": 2**63 - 1,
    }


def unknown_numbers(export: Export) -> None:
    export.rows["CUPTI_ACTIVITY_KIND_KERNEL"][0] |= {"demangledName": 4711, "streamId": -(2**63), "deviceId": 2**40}
    export.rows["TARGET_INFO_GPU"][0] |= {"name": None, "totalMemory": -5, "clockRate": None}
    export.rows["TARGET_INFO_SESSION_START_TIME"][0]["utcEpochNs"] = None


@pytest.mark.parametrize("change", [other_types, unknown_numbers])
def test_values_of_other_kinds_are_unknown(tmp_path: Path, change: Callable[[Export], None]) -> None:
    export = step(Export())
    change(export)
    (table,) = read_run(export.write(tmp_path / "rank_0.sqlite")).tables
    assert len(table.events) >= 7


def test_a_file_is_read_in_place_and_nothing_is_written_next_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "a ? folder # of 100%"
    path = step(Export()).write(folder / "rank_0.sqlite")
    path.with_name("rank_0.sqlite-journal").write_bytes(b"a journal that would be played back")
    before = path.read_bytes()
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    read_run(path)
    folder.chmod(stat.S_IRWXU)
    assert sorted(p.name for p in folder.iterdir()) == ["rank_0.sqlite", "rank_0.sqlite-journal"]
    assert path.read_bytes() == before
