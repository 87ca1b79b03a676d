"""Bad input: one clear message, or a warning and the rest of the trace; never a traceback, never a hang."""

import gzip
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnperf.core import untrusted
from gnnperf.trace import RunTrace, limits, read_run
from gnnperf.trace.assembly import assemble
from tests.trace import kineto_files as files

TEXT = json.dumps(files.document(files.step_events()), indent=1).encode()


def _with(*extra: Any) -> dict[str, Any]:
    return files.document([*files.step_events(), *extra])


def _read(tmp_path: Path, content: Any) -> RunTrace:
    return read_run(files.write(tmp_path / "t.json", content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (TEXT[:-40], "is not readable JSON.*cut off"),
        (gzip.compress(TEXT)[:-20], "cut off or damaged"),
        (gzip.compress(TEXT)[:15], "cut off or damaged"),
        (b"\x1f\x8b rubbish", "cut off or damaged"),
        (b"", "is not a trace file"),
        (b"\x00\x01\x02\x03", "is not a trace file"),
        (b"hello", "is not a trace file"),
        (b"{}", "is JSON but not a trace"),
        (b'{"traceEvents": 5}', "is JSON but not a trace"),
        (b'{"traceEvents": []}', "no event that can be used"),
        (b"[]", "no event that can be used"),
        (b"[1, 2]", "no event that can be used"),
        (b'[{"ph": "M", "name": "process_name"}]', "no event that can be used"),
        (b'{"traceEvents":' + b"[" * 100_000, "nested deeper than any trace"),
        (b'{"schema": "1.0.1", "nodes": ' + b"[" * 100_000, "nested deeper than any trace"),
        ([files.host("negative", 5, -3)] * 3, "no event with a usable time"),
        ([{**files.host("no start", 5, 3), "ts": None}] * 3, "no event with a usable time"),
        ([files.host("far", 1e300, 3)] * 3, "no event with a usable time"),
        (files.document([e for e in files.step_events() if e["cat"] == "user_annotation"]), "holds marks and no work"),
    ],
)  # fmt: skip
def test_what_is_no_whole_trace_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    files.refused(files.write(tmp_path / "t.json", content), message)


def test_settings_and_an_earlier_prediction_next_to_a_trace_are_left_out(tmp_path: Path) -> None:
    files.write(tmp_path / "t.json", _with())
    files.write(tmp_path / "settings.json", {"batch": 4})
    out = tmp_path / "outputs/own"
    out.mkdir(parents=True)
    for name in ("timeline.json.gz", "prediction.json", "nodes.parquet"):
        files.write(out / name, _with())
    run = read_run(tmp_path)
    assert [table.meta.source_file for table in run.tables] == ["t.json"]
    assert [warning for warning in run.warnings if "skipped" in warning] == [
        "skipped: settings.json: is JSON but not a trace. Allowed: a file with traceEvents."
    ]
    files.refused(out, "holds no trace file")
    files.write(out / "own.json", _with())  # predicted into the folder of the trace itself
    assert [table.meta.source_file for table in read_run(out).tables] == ["own.json"]


def test_no_such_path_an_empty_folder_and_a_pipe_that_is_not_waited_for(tmp_path: Path) -> None:
    files.refused(tmp_path / "nowhere", "does not exist")
    files.refused(tmp_path, "holds no trace file")
    os.mkfifo(tmp_path / "pipe.json")
    files.refused(tmp_path / "pipe.json", "is not a file")


TIMES = "with a missing, negative or absurd time"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ([files.host("negative", 5, -3), files.host("absurd", 5, 4e14), files.host("far away", 1e15, 1),
          {"ph": "X", "cat": "cpu_op", "name": "no start", "tid": 1, "dur": 3},
          {"ph": "X", "cat": "cpu_op", "name": "no end", "tid": 1, "ts": 3}], TIMES),
        ([files.device("year", 90, 3e13, 950)], TIMES),  # a kernel of a year is no kernel
        ([17, {"ph": "X", "cat": "cpu_op", "name": "x", "ts": "soon", "dur": 1},
          {"ph": "X", "cat": "kernel", "name": "y", "ts": 3, "dur": 1, "args": {"correlation": [1]}}],
         "with fields of a wrong type"),
    ],
)  # fmt: skip
def test_broken_events_are_left_out_and_counted(tmp_path: Path, bad: list[Any], reason: str) -> None:
    run = _read(tmp_path, _with(*bad))
    assert len(run.tables[0].events) == 8
    assert any(f"{len(bad)} events {reason} were left out" in w for w in run.warnings)


def test_nan_and_infinity_are_read_as_unknown(tmp_path: Path) -> None:
    copy = files.device("Memcpy HtoD", 90, 3, 950, "gpu_memcpy", bytes=64)
    copy["args"]["memory bandwidth (GB/s)"] = float("inf")
    broken = files.host("nan", 5, float("nan"))
    text = json.dumps(_with(copy, broken)).replace("Infinity", "inf")
    run = _read(tmp_path, text)
    assert run.tables[0].events["bytes"].dropna().tolist() == [64.0]
    assert any("1 events with a missing" in w for w in run.warnings)


def test_lone_backslashes_and_broken_text_are_repaired() -> None:
    text = json.dumps(_with(files.host("path", 90, 1))).replace('"path"', '"C:\\Users\\x \\u00e9"').encode()
    assert "C:\\Users\\x é" in assemble(text, "t.json").names
    broken = json.dumps(_with(files.host("caf?", 90, 1))).encode().replace(b"caf?", b"caf\xe9")
    assert any(name.startswith("caf") for name in assemble(broken, "t.json").names)
    half = json.dumps(_with(files.host("half", 90, 1))).encode().replace(b"half", b"\\ud800half")
    assert "\ufffdhalf" in assemble(b"\xef\xbb\xbf" + half, "t.json").names


def test_numbers_outside_any_id_are_unknown(tmp_path: Path) -> None:
    odd = files.device("odd", 90, 1, 2**64 - 1, stream=2**70, device=2**40)
    row = _read(tmp_path, _with(odd)).tables[0].events.set_index("name").loc["odd"]
    assert (row["correlation"], row["device"]) == (-1, -1)


def test_duplicate_ids_are_read_and_stated(tmp_path: Path) -> None:
    assert not any("repeat" in w for w in _read(tmp_path, files.document(files.step_events())).warnings)
    run = _read(tmp_path, files.document(files.step_events() * 2))
    assert any("launches repeat the correlation id" in w for w in run.warnings)
    events = run.tables[0].events
    assert len(events) == 16
    assert (events.loc[events["kind"] == "kernel", "op_event"] >= 0).all()


def test_a_name_and_shapes_without_end_are_cut(tmp_path: Path) -> None:
    huge = files.host("n" * 5_000_000, 90, 1, **{"Input Dims": [[1]] * 100_000, "Call stack": "s" * 30_000_000})
    row = _read(tmp_path, _with(huge)).tables[0].events.iloc[-1]
    assert len(row["name"]) == limits.MAX_NAME_CHARS
    assert not isinstance(row["input_dims"], str)


def test_a_hundred_thousand_tiny_events_are_quick(tmp_path: Path) -> None:
    lines = ",\n".join(
        f'{{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":{i},"dur":0}}' for i in range(100_000)
    )
    events = _read(tmp_path, f'{{"traceEvents":[{lines}]}}').tables[0].events
    assert len(events) == 100_000 and (np.diff(events["start_ns"]) == 1000).all()


@pytest.mark.parametrize(("rank", "message"), [(0, r"a.json and b.json are both rank 0.*one run at a time"),
                                               (None, r"state no rank.*name them rank_0.json")])  # fmt: skip
def test_two_files_of_one_rank_or_of_none(rank: int | None, message: str, tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        files.write(tmp_path / name, files.document(files.step_events(), rank, 2))
    files.refused(tmp_path, message)


def test_several_runs_in_one_folder_are_named(tmp_path: Path) -> None:
    files.write_ranks(tmp_path / "monday", 2)
    files.write_ranks(tmp_path / "tuesday", 2)
    files.refused(tmp_path, r"several runs: 'monday', 'tuesday'")


def test_ranks_of_different_runs(tmp_path: Path) -> None:
    files.write(tmp_path / "w" / "rank_0.json", files.document(files.step_events(), 0, 2))
    files.write(tmp_path / "w" / "rank_1.json", files.document(files.step_events(), 1, 4))
    files.refused(tmp_path / "w", "runs of 2 and of 4 ranks")
    later = [{**e, "ts": e["ts"] + 3_600_000_000} for e in files.step_events()]
    files.write(tmp_path / "t" / "rank_0.json", files.document(files.step_events(), 0, 2))
    files.write(tmp_path / "t" / "rank_1.json", files.document(later, 1, 2))
    files.refused(tmp_path / "t", r"recorded 3,600 s apart: different runs")


def test_other_json_with_the_traces_is_skipped_with_a_warning(tmp_path: Path) -> None:
    files.write_ranks(tmp_path, 1)
    files.write(tmp_path / "graph.json", b'{"workload_graph": []}')
    skipped = [w for w in read_run(tmp_path).warnings if "skipped" in w and "workload graph" in w]
    assert len(skipped) == 1 and str(tmp_path) not in skipped[0] and "graph.json" in skipped[0]


@pytest.mark.parametrize("name", ["../rank_0.json", "/tmp/rank_0.json", "a/../../rank_0.json", "C:\\rank_0.json"])
def test_an_archive_that_names_files_outside_itself(tmp_path: Path, name: str) -> None:
    files.refused(files.tar(tmp_path / "t.tar.gz", {name: TEXT}), "outside its folder")
    if "\\" not in name:  # zipfile itself splits at the drive
        files.refused(files.zipped(tmp_path / "t.zip", {name: TEXT}), "outside its folder")


def test_a_link_in_an_archive_is_not_followed(tmp_path: Path) -> None:
    files.refused(files.tar(tmp_path / "t.tar.gz", {"rank_0.json": b""}, tarfile.SYMTYPE), "holds no trace file")


@pytest.mark.parametrize("form", ["tar", "zip", "gzip", "inner"])
def test_an_archive_without_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr(untrusted, "RATIO_FLOOR_BYTES", 1 << 20)
    zeros = b" " * (8 << 20)
    if form == "tar":
        path = files.tar(tmp_path / "t.tar.gz", {"rank_0.json": zeros})
    elif form == "zip":
        path = files.zipped(tmp_path / "t.zip", {"rank_0.json": zeros})
    elif form == "gzip":
        path = files.write(tmp_path / "t.json.gz", zeros, packed=True)
    else:
        path = files.tar(tmp_path / "t.tar.gz", {"rank_0.json.gz": gzip.compress(zeros)})
    files.refused(path, "unpacks to more than")


def test_too_many_members_and_a_broken_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = files.tar(tmp_path / "t.tar.gz", {"rank_0.json": TEXT})
    (tmp_path / "cut.tar.gz").write_bytes(path.read_bytes()[:-30])
    files.refused(tmp_path / "cut.tar.gz", "not a readable archive")
    (tmp_path / "cut.zip").write_bytes(b"PK\x03\x04 rubbish")
    files.refused(tmp_path / "cut.zip", "not a readable archive")
    monkeypatch.setattr(limits, "MAX_ARCHIVE_MEMBERS", 0)
    files.refused(path, "holds 1 files")


def test_a_file_larger_than_a_trace_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_JSON_BYTES", 1000)
    files.refused(files.write(tmp_path / "t.json", TEXT), "record fewer steps")
    files.refused(files.write(tmp_path / "u.json.gz", TEXT, packed=True), "unpacks to more than")
