"""Saved tables: the same when read back, never half-written, never over other people's files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnperf.errors import InputError
from gnnperf.trace import read_run
from gnnperf.trace.storage import write_run
from gnnperf.trace.table import RunTrace
from tests.trace import kineto_files as files


@pytest.fixture
def run(tmp_path: Path) -> RunTrace:
    """Two ranks, feeds on the first, a card."""
    found = read_run(files.write_ranks(tmp_path / "traces", 2))
    feeds = pd.DataFrame({"producer_event": [2], "consumer_event": [5]})
    first = replace(found.tables[0], feeds=feeds)
    return replace(found, tables=(first, found.tables[1]), card={"workload": "dlrm", "links": [1, 2]})


def test_what_is_written_is_read_back(tmp_path: Path, run: RunTrace) -> None:
    write_run(run, tmp_path / "saved")
    assert sorted(p.name for p in (tmp_path / "saved").iterdir()) == [
        "rank_0.feeds.parquet", "rank_0.parquet", "rank_1.parquet", "run.json",
    ]  # fmt: skip
    again = read_run(tmp_path / "saved")
    assert again.card == run.card
    assert [t.meta for t in again.tables] == [t.meta for t in run.tables]
    for before, after in zip(run.tables, again.tables, strict=True):
        pd.testing.assert_frame_equal(before.events, after.events)
        assert before.feeds.to_numpy().tolist() == after.feeds.to_numpy().tolist()
    assert [t.meta.rank for t in read_run(tmp_path / "saved" / "rank_1.parquet").tables] == [1]


def test_an_earlier_result_is_replaced_and_nothing_else_is_left(tmp_path: Path, run: RunTrace) -> None:
    write_run(run, tmp_path / "saved")
    write_run(replace(run, tables=run.tables[1:], card=None), tmp_path / "saved")
    assert [p.name for p in (tmp_path / "saved").iterdir()] == ["rank_1.parquet"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["saved", "traces"]


def test_other_peoples_files_are_not_touched(tmp_path: Path, run: RunTrace) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match=r"holds other files.*thesis"):
        write_run(run, tmp_path / "mine")
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is a file"):
        write_run(run, tmp_path / "file")


def test_a_failed_write_leaves_nothing(tmp_path: Path, run: RunTrace, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gnnperf.trace.storage.pq.write_table", full)
    with pytest.raises(InputError, match="No space left"):
        write_run(run, tmp_path / "saved")
    assert [p.name for p in tmp_path.iterdir()] == ["traces"]


def test_an_unwritable_place_is_said(tmp_path: Path, run: RunTrace) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot be written"):
        write_run(run, tmp_path / "file" / "saved")
    if os.geteuid() != 0:
        (tmp_path / "locked").mkdir(mode=0o500)
        with pytest.raises(InputError, match="cannot be written"):
            write_run(run, tmp_path / "locked" / "saved")


def test_broken_and_foreign_tables_are_refused(tmp_path: Path, run: RunTrace) -> None:
    write_run(run, tmp_path / "saved")
    whole = (tmp_path / "saved" / "rank_0.parquet").read_bytes()
    (tmp_path / "saved" / "rank_0.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="not a readable table"):
        read_run(tmp_path / "saved")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "saved" / "rank_0.parquet")
    with pytest.raises(InputError, match="without this program's metadata"):
        read_run(tmp_path / "saved")
    pq.write_table(
        pq.read_table(tmp_path / "saved" / "rank_1.parquet").drop(["name"]), tmp_path / "saved" / "rank_0.parquet"
    )
    with pytest.raises(InputError, match="not a readable table"):
        read_run(tmp_path / "saved")
    (tmp_path / "saved" / "run.json").write_text("[")
    (tmp_path / "saved" / "rank_0.parquet").write_bytes(whole)
    with pytest.raises(InputError, match="not a JSON object"):
        read_run(tmp_path / "saved")


def test_a_table_of_another_name_or_with_damaged_contents_is_refused(tmp_path: Path, run: RunTrace) -> None:
    write_run(run, tmp_path / "saved")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "foo.parquet")
    with pytest.raises(InputError, match="without this program's metadata"):
        read_run(tmp_path / "foo.parquet")
    (tmp_path / "folder").mkdir()
    (tmp_path / "foo.parquet").rename(tmp_path / "folder" / "rank_a.parquet")
    with pytest.raises(InputError, match="holds no trace file"):
        read_run(tmp_path / "folder")
    path = tmp_path / "saved" / "rank_1.parquet"
    whole = pq.read_table(path)
    pq.write_table(whole.replace_schema_metadata({b"gnnperf.trace": b"[1]"}), path)
    with pytest.raises(InputError, match="not a readable table"):
        read_run(path)
    column = whole.schema.get_field_index("launch_event")
    beyond = whole.set_column(column, "launch_event", pa.array([10**6] * len(whole)))
    pq.write_table(beyond, path)
    with pytest.raises(InputError, match="'launch_event' names a row that is not there"):
        read_run(path)


def test_what_import_wrote_is_read_by_its_folder(tmp_path: Path, run: RunTrace) -> None:
    write_run(run, tmp_path / "mine" / "tables")
    again = read_run(tmp_path / "mine")
    assert again.name == "mine"
    assert [t.meta.rank for t in again.tables] == [0, 1]
