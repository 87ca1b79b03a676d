"""Files of every form -> the same table."""

import gzip
import json
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gnnperf.core import InputError, schema, workers
from gnnperf.trace import assembly, read_run, reader
from gnnperf.trace.scanner import Scanner
from gnnperf.trace.trace_sources import Source
from tests.trace import kineto_files as files


def test_a_file_becomes_one_sorted_linked_table(tmp_path: Path) -> None:
    run = read_run(files.write(tmp_path / "demo.json", files.document(files.step_events())))
    events = run.tables[0].events
    schema.validate(events, schema.EVENT_COLUMNS, "test")
    assert run.name == "demo"
    assert events["name"].tolist() == [
        "ProfilerStep#5", "aten::linear", "aten::addmm", "cudaLaunchKernel", "gemm", "aten::relu", "cudaLaunchKernel",
        "relu",
    ]  # fmt: skip
    work = ["cpu_op", "runtime", "kernel"]  # of the outer linear's addmm, and of relu
    assert events["kind"].tolist() == ["annotation", "cpu_op", *work, *work]
    assert events["start_ns"].tolist() == [0, 10_000, 15_000, 20_000, 30_000, 60_000, 65_000, 75_000]
    assert events["op_event"].tolist() == [-1, -1, 1, 2, 2, -1, 5, 5]
    assert events["launch_event"].tolist() == [-1, -1, -1, -1, 3, -1, -1, 6]
    assert events["link"].dropna().tolist() == ["correlation", "correlation"]
    assert events["input_dims"].dropna().tolist() == ["[[8,4],[2,4]]"]
    assert events["thread"].tolist() == [1, 1, 1, 1, -1, 1, 1, -1]
    assert events.loc[4, ["device", "stream", "correlation"]].tolist() == [0, 7, 901]
    meta = run.tables[0].meta
    assert (meta.rank, meta.rank_source, meta.world_size, meta.backend) == (0, "metadata", 1, "nccl")
    assert meta.devices[0].name == "Tesla V100-SXM2-32GB"
    assert meta.link_method == "correlation" and meta.has_shapes


@pytest.mark.parametrize("form", ["folder", "nested", "list", "tar", "zip", "packed"])
def test_every_container_gives_the_same_ranks(tmp_path: Path, form: str) -> None:
    members = {f"run/rank{r}.json": json.dumps(files.document(files.step_events(), r, 2)).encode() for r in (0, 1)}
    path: Any
    if form in ("folder", "nested", "packed", "list"):
        for name, data in members.items():
            folder = tmp_path / (name[-6] if form == "nested" else "run")
            files.write(folder / Path(name).name, data, packed=form == "packed")
        path = tmp_path if form == "nested" else tmp_path / "run"
        path = sorted(path.iterdir()) if form == "list" else path
    else:
        archive = files.tar if form == "tar" else files.zipped
        path = archive(tmp_path / f"run.{form}", members)
    run = read_run(path)
    assert [t.meta.rank for t in run.tables] == [0, 1]
    assert run.world_size == 2
    assert run.tables[0].events["op_event"].tolist() == [-1, -1, 1, 2, 2, -1, 5, 5]
    pd.testing.assert_frame_equal(run.tables[0].events, run.tables[1].events)


def test_a_bare_list_of_2020_is_read(tmp_path: Path) -> None:
    old = [
        {"ph": "X", "cat": "Operator", "name": "ProfilerStep#1", "pid": 9, "tid": "42", "ts": 0, "dur": 90,
         "args": {"External id": 1, "Input dims": [[]]}},
        {"ph": "X", "cat": "Operator", "name": "aten::mm", "pid": 9, "tid": "42", "ts": 10, "dur": 30,
         "args": {"External id": 2}},
        {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 42, "ts": 15, "dur": 5,
         "args": {"correlation": 7, "external id": 2}},
        {"ph": "X", "cat": "Kernel", "name": "sgemm", "pid": 0, "tid": "stream 7", "ts": 30, "dur": 9,
         "args": {"device": 0, "stream": 7, "correlation": 7, "external id": 2}},
        {"ph": "s", "cat": "async", "name": "launch", "id": 7, "pid": 9, "tid": 42, "ts": 15},
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Traces", "tid": "x", "ts": 0, "dur": 90},
    ]  # fmt: skip
    run = read_run(files.write(tmp_path / "worker3.json", old))
    events = run.tables[0].events
    assert events["kind"].tolist() == ["annotation", "cpu_op", "runtime", "kernel"]
    assert events["thread"].tolist() == [42, 42, 42, -1]
    assert events["op_event"].tolist() == [-1, -1, 1, 1]
    assert events["link"].dropna().tolist() == ["external_id"]
    assert events["stream"].tolist()[-1] == 7
    assert (run.tables[0].meta.rank, run.tables[0].meta.rank_source) == (3, "file name")


def test_python_frames_flows_and_gpu_annotations_are_left_out(tmp_path: Path) -> None:
    noise = [
        files.host("frame.py(1): f", 0, 5, "python_function", **{"Python id": 1}),
        files.host("ProfilerStep#5", 2, 98, "gpu_user_annotation", thread=7),
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 901, "pid": 1, "tid": 1, "ts": 20},
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 3, "args": {"Bytes": 4}},
        {"ph": "X", "cat": "a_category_of_tomorrow", "name": "x", "pid": 1, "tid": 1, "ts": 1, "dur": 1},
    ]
    run = read_run(files.write(tmp_path / "t.json", files.document(files.step_events() + noise)))
    assert len(run.tables[0].events) == 8
    assert run.tables[0].meta.warnings == ()


def test_ranks_share_one_absolute_clock(tmp_path: Path) -> None:
    base = 1_700_000_000_000_000_000
    shifted = [{**e, "ts": e["ts"] + 3.25} for e in files.step_events()]
    files.write(tmp_path / "rank0.json", files.document(files.step_events(), 0, 2, baseTimeNanoseconds=base))
    files.write(tmp_path / "rank1.json", files.document(shifted, 1, 2, baseTimeNanoseconds=base))
    first, second = read_run(tmp_path).tables
    assert first.meta.base_time_ns == base
    assert second.meta.base_time_ns + second.events["start_ns"][0] == base + 3250


def test_nanoseconds_of_absolute_times_survive(tmp_path: Path) -> None:
    start = "1712195495519689.047"  # float64 would give ...689.0
    text = json.dumps(files.document([files.host("aten::mm", 1, 2), files.host("aten::add", 2, 2)]))
    text = text.replace('"ts": 1,', f'"ts": {start},').replace('"ts": 2,', '"ts": 1712195495519695.812,')
    table = read_run(files.write(tmp_path / "t.json", text)).tables[0]
    assert table.meta.base_time_ns == 1712195495519689047
    assert table.events["start_ns"].tolist() == [0, 6765]


def test_the_rank_is_taken_from_metadata_then_name_then_the_difference_of_names(tmp_path: Path) -> None:
    for number in (4, 5):
        files.write(tmp_path / f"kineto_{number}.json", files.document(files.step_events(), None))
    assert [t.meta.rank for t in read_run(tmp_path).tables] == [4, 5]
    lone = read_run(tmp_path / "kineto_4.json")
    assert lone.tables[0].meta.rank_source == "assumed"
    assert not any("assumed" in w for w in lone.warnings)  # the only rank: which one does not matter
    of_two = files.write(
        tmp_path / "x" / "t.json", files.document(files.step_events(), None, distributedInfo={"world_size": 2})
    )
    assert any("rank 0 is assumed" in w for w in read_run(of_two).warnings)


def test_missing_ranks_and_missing_steps_are_warnings(tmp_path: Path) -> None:
    run = read_run(files.write_ranks(tmp_path, 4, [0, 2]))
    assert any("2 of 4 ranks are missing: 1, 3" in w for w in run.warnings)
    unmarked = files.write(tmp_path / "u" / "t.json", files.document(files.step_events()[1:]))
    assert any("no rank has step marks" in w for w in read_run(unmarked).warnings)
    host_only = files.write(tmp_path / "h" / "t.json", files.document(files.step_events()[:2]))
    assert any("no device work" in w for w in read_run(host_only).warnings)


def _read_by(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with so many cores, and what a copy does not compute is not computed here."""
    ours = os.getpid()

    def in_copy(function: Callable[[], Any]) -> AbstractContextManager[Callable[[], Any]]:
        return workers.in_copy(lambda: function() if os.getpid() != ours else pytest.fail("is computed here"))

    monkeypatch.setattr(assembly, "copyable_cores", lambda: cores)
    monkeypatch.setattr(assembly, "in_copy", in_copy)


@pytest.mark.parametrize(("cores", "is_scanned"), [(1, False), pytest.param(3, False, marks=pytest.mark.skipif(
    sys.platform != "linux", reason="processes are copied on Linux only")), (1, True), (3, True)])  # fmt: skip
def test_long_files_are_read_in_place_by_copies_or_threads_with_the_same_result(
    cores: int, is_scanned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Any] = [{**e, "ts": e["ts"] + 200 * k} for k in range(30) for e in files.step_events()]
    for k, event in enumerate(events):
        if "correlation" in event["args"]:
            event["args"] = event["args"] | {"correlation": event["args"]["correlation"] + 10 * (k // 8)}
        if k % 56 == 1:  # texts, collectives and what is left out, in each share
            stated = {"Collective name": "allreduce", "In msg nelems": k, "Group size": 2, "Input Dims": [[k]]}
            event |= {"name": "record_param_comms", "args": event["args"] | stated}
        if k % 56 == 2:
            event["dur"] = -1
    events.insert(-1, 7)  # no event
    path = files.write(tmp_path / "t.json", files.document(events, baseTimeNanoseconds=5))
    whole = read_run(path).tables[0]
    monkeypatch.setattr("gnnperf.trace.kineto.STRETCH_BYTES", 700)
    monkeypatch.setattr("gnnperf.trace.trace_sources.LARGE_BYTES", 0)
    monkeypatch.setattr(assembly, "_scans", lambda: (lambda data: Scanner(data).scanned) if is_scanned else None)
    _read_by(cores, monkeypatch)
    cut = read_run(path).tables[0]
    assert len(cut.events) == 235 and cut.events["collective"].notna().sum() >= 5
    assert len(whole.meta.warnings) >= 2
    assert cut.meta == whole.meta
    pd.testing.assert_frame_equal(cut.events, whole.events)


def test_a_file_that_breaks_off_in_the_share_of_a_copy_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnnperf.trace.kineto.STRETCH_BYTES", 700)
    monkeypatch.setattr(assembly, "copyable_cores", lambda: 2)
    path = files.write(tmp_path / "t.json", files.document([e for _ in range(30) for e in files.step_events()]))
    path.write_text(path.read_text()[:-60])
    files.refused(path, "cut off")


def test_copies_of_the_process_share_many_files_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(source: Source, **given: Any) -> Any:
        (tmp_path / f"process {os.getpid()}").touch()
        return real(source, **given)

    for rank in range(3):
        files.write(tmp_path / "run" / f"rank{rank}.json", files.document(files.step_events(), rank, 3))
    one, real = read_run(tmp_path / "run"), reader._read_kineto
    monkeypatch.setattr(reader, "SHARED_BYTES", 0)
    monkeypatch.setattr(reader, "_read_kineto", read)
    monkeypatch.setattr(workers, "usable_cores", lambda: 2)
    several = read_run(tmp_path / "run")
    assert len([*tmp_path.glob("process *")]) == 2
    for a, b in zip(one.tables, several.tables, strict=True):
        assert a.meta == b.meta
        pd.testing.assert_frame_equal(a.events, b.events)
    files.write(tmp_path / "run" / "rank1.json", '{"traceEvents": [{')
    files.refused(tmp_path / "run", "is not readable JSON")


def test_a_list_of_no_paths_is_refused() -> None:
    files.refused([], "no path")


def test_a_numbered_recording_is_named_after_its_run(tmp_path: Path) -> None:
    folder = tmp_path / "gpt" / "2"
    folder.mkdir(parents=True)
    files.write(folder / "rank_0.json", files.document(files.step_events()))
    assert read_run(folder).name == "gpt/2"


def _handler_files(folder: Path, num_ranks: int) -> None:
    """Two recordings of each rank, as torch's handler names them: of a schedule that repeats, ten minutes apart."""
    for rank in range(num_ranks):
        for cycle in range(2):
            stamp = 1_698_958_768_000_000_000 + cycle * 600 * 10**9
            document = files.document(files.step_events(), rank, num_ranks, baseTimeNanoseconds=stamp)
            files.write(folder / f"gpu7_{4242 + rank}.{stamp + rank}.pt.trace.json.gz", document, packed=True)


def test_two_recordings_of_each_rank_are_listed(tmp_path: Path) -> None:
    _handler_files(tmp_path, 2)
    with pytest.raises(InputError) as caught:
        read_run(tmp_path)
    text = str(caught.value)
    assert "holds 2 recordings. Allowed: 1: 2023-11-02 20:59:28 UTC (2 ranks: gpu7_4242.1698958768000000000.pt" in text
    assert "; 2: 2023-11-02 21:09:28 UTC (2 ranks: " in text
    assert "choose one by --run NUMBER" in text


@pytest.mark.parametrize(("number", "seconds"), [(1, 0), (2, 600)])
def test_a_recording_is_chosen_by_its_number(tmp_path: Path, number: int, seconds: int) -> None:
    _handler_files(tmp_path, 2)
    run = read_run(tmp_path, recording=number)
    assert [t.meta.rank for t in run.tables] == [0, 1]
    assert {t.meta.base_time_ns for t in run.tables} == {(1_698_958_768 + seconds) * 10**9}


def test_recordings_of_a_program_without_ranks_are_listed_too(tmp_path: Path) -> None:
    _handler_files(tmp_path, 1)
    for path in tmp_path.iterdir():
        stated = json.loads(gzip.decompress(path.read_bytes()))
        del stated["distributedInfo"]
        files.write(path, stated, packed=True)
    files.refused(tmp_path, "holds 2 recordings")
    assert read_run(tmp_path, recording=2).tables[0].meta.rank == 0


def test_a_recording_that_is_not_there(tmp_path: Path) -> None:
    files.write_ranks(tmp_path, 2)
    with pytest.raises(
        InputError, match=r"has no recording 2. Allowed: 1: 1970-01-01 00:00:00 UTC \(2 ranks: rank_0.json, "
    ):
        read_run(tmp_path, recording=2)
