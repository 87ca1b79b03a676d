"""Saved tables: the same when read back, never half-written, never over other people's files."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core import EventKind, InputError, schema
from gnnperf.trace import RunTrace, read_run
from gnnperf.trace.columns import Codes
from gnnperf.trace.packing import COUNTERS, LANE, REFERENCES, TEXTS, Columns, pack, packed_dtypes, unpack
from gnnperf.trace.storage import read_tables, write_run
from tests.trace import kineto_files as files
from tests.traces import annotation, op, run_of, trace

DATASET = Path(__file__).parents[2] / "datasets" / "cpu-gloo"


@pytest.fixture
def run(tmp_path: Path) -> RunTrace:
    """Two ranks, feeds on the first, a card."""
    result = read_run(files.write_ranks(tmp_path / "traces", 2))
    feeds = pd.DataFrame({"producer_event": [2], "consumer_event": [5]})
    first = replace(result.tables[0], feeds=feeds)
    return replace(result, tables=(first, result.tables[1]), card={"workload": "dlrm", "links": [1, 2]})


def test_what_is_written_is_read_back(tmp_path: Path, run: RunTrace) -> None:
    write_run(run, tmp_path / "saved")
    assert sorted(p.name for p in (tmp_path / "saved").iterdir()) == ["events.parquet", "feeds.parquet", "run.json"]
    again = read_run(tmp_path / "saved")
    assert again.card == run.card
    assert [t.meta for t in again.tables] == [t.meta for t in run.tables]
    for before, after in zip(run.tables, again.tables, strict=True):
        pd.testing.assert_frame_equal(_plain(before.events), _plain(after.events))
        assert before.feeds.to_numpy().tolist() == after.feeds.to_numpy().tolist()
    assert [t.meta.rank for t in read_run(tmp_path / "saved" / "events.parquet").tables] == [0, 1]


def test_how_kernels_were_launched_is_kept(run: RunTrace, tmp_path: Path) -> None:
    write_run(run, tmp_path / "saved")
    for table in (run.tables[0], read_run(tmp_path / "saved").tables[0]):
        rows = table.events.set_index("name")[list(schema.EVIDENCE_COLUMNS)]
        assert rows.loc["gemm"].tolist() == ["[16,2,1]", "[128,1,1]", 90, 4096, 38]
        assert rows.loc["relu"].isna().tolist() == [True, True, False, False, False]
        assert rows.loc["relu"].tolist()[2:] == rows.loc["aten::relu"].tolist()[2:] == [-1, -1, -1]


def test_tables_that_were_saved_without_launches_are_read() -> None:
    """Those of the data set are older: their columns are unknown, not 0."""
    folder = DATASET / "gpt_l2_w64_s64_b4_x2_lo" / "1"
    assert not set(schema.EVIDENCE_COLUMNS) & set(pq.read_schema(folder / "events.parquet").names)
    for table in read_tables(folder):
        assert table.events[["grid", "block"]].isna().all(axis=None)
        assert (table.events[["registers", "shared_bytes", "occupancy_percent"]] == -1).all(axis=None)


def _plain(events: pd.DataFrame) -> pd.DataFrame:
    """Categories as their texts: which unused ones a table keeps is not information."""
    return events.astype({c.name: "str" for c in schema.EVENT_COLUMNS if c.dtype == "category"})


def test_what_is_written_again_is_the_same_file(tmp_path: Path, run: RunTrace) -> None:
    write_run(run, tmp_path / "saved")
    again = read_run(tmp_path / "saved")
    write_run(again, tmp_path / "again")
    assert (tmp_path / "again" / "events.parquet").read_bytes() == (tmp_path / "saved" / "events.parquet").read_bytes()
    for before, after in zip(again.tables, read_run(tmp_path / "again").tables, strict=True):
        pd.testing.assert_frame_equal(before.events, after.events)


def test_recordings_are_small(tmp_path: Path) -> None:
    """Hundreds of recordings are committed: what two ranks and four steps repeat must cost next to nothing."""
    run = read_run(next(DATASET.glob("gpt_l2_w128_s64_b8_x2_lo/1")))
    write_run(run, tmp_path / "saved")
    num_events = sum(len(table.events) for table in run.tables)
    size_bytes = sum(p.stat().st_size for p in (tmp_path / "saved").iterdir())
    assert size_bytes / num_events < 32_000 / 6_000


def test_broken_and_foreign_tables_are_refused(tmp_path: Path, run: RunTrace) -> None:
    write_run(run, tmp_path / "saved")
    path = tmp_path / "saved" / "events.parquet"
    whole = path.read_bytes()
    for end in (0, 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:end])
        files.refused(tmp_path / "saved", "not a readable table")
    pq.write_table(pa.table({"a": [1]}), path)
    files.refused(tmp_path / "saved", "without this program's metadata")
    (tmp_path / "saved" / "run.json").write_text("[")
    path.write_bytes(whole)
    files.refused(tmp_path / "saved", "not a JSON object")


def test_a_table_of_another_name_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "foo.parquet")
    files.refused(tmp_path / "foo.parquet", "without this program's metadata")
    (tmp_path / "folder").mkdir()
    (tmp_path / "foo.parquet").rename(tmp_path / "folder" / "rank_a.parquet")
    files.refused(tmp_path / "folder", "holds no trace file")


WRONG_TYPES: list[dict[str, object]] = [
    {"rank": {}}, {"rank": -1}, {"rank": 10**30}, {"world_size": "two"}, {"base_time_ns": 10**30},
    {"devices": [{"name": []}]}, {"devices": {}}, {"num_events": None}, {"warnings": [[1]]},
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda about: [1], "not a readable table"),
        (lambda about: about | {"version": 3}, "another version"),
        (lambda about: about | {"ranks": about["ranks"][:1]}, "is damaged"),
        (lambda about: about | {"ranks": [about["ranks"][0] | {"num_events": -5}]}, "is damaged"),
        (lambda about: about | {"ranks": [{"num_events": about["ranks"][0]["num_events"]}, about["ranks"][1]]},
         "another version"),
        (lambda about: about | {"constants": {}}, "not a readable table"),
        (lambda about: about | {"constants": about["constants"] | {"device": 2**40}}, "not a readable table"),
        (lambda about: about | {"constants": about["constants"] | {"launch_event_back": 10**6}},
         "'launch_event' names a row that is not there"),
        *((lambda about, change=change: about | {"ranks": [rank | change for rank in about["ranks"]]},
           "another version|is damaged|not a readable table") for change in WRONG_TYPES),
    ],
)  # fmt: skip
def test_damaged_contents_are_refused(tmp_path: Path, change: Callable[[Any], Any], message: str) -> None:
    tables = [trace(op("a", 0, 9), op("b", 1, 2), rank=rank, world_size=2) for rank in range(2)]
    write_run(run_of(*tables), tmp_path / "saved")
    path = tmp_path / "saved" / "events.parquet"
    stored = pq.ParquetFile(path)
    about = json.loads(stored.metadata.metadata[b"gnnperf.trace"])
    columns = stored.read()
    pq.write_table(columns.replace_schema_metadata({"gnnperf.trace": json.dumps(change(about))}), path)
    files.refused(tmp_path / "saved", message)


def test_feeds_that_lead_nowhere_and_nulls_are_refused(tmp_path: Path, run: RunTrace) -> None:
    write_run(run, tmp_path / "saved")
    feeds = pa.table({"rank": [0], "producer_event": [2], "consumer_event": [10**6]})
    pq.write_table(feeds, tmp_path / "saved" / "feeds.parquet")
    files.refused(tmp_path / "saved", "'consumer_event' names a row that is not there")
    path = tmp_path / "saved" / "events.parquet"
    stored = pq.ParquetFile(path)
    columns, about = stored.read(), stored.metadata.metadata[b"gnnperf.trace"]
    at = columns.schema.get_field_index("num_inside")
    nulls = columns.set_column(at, "num_inside", pa.array([None] * len(columns), pa.int64()))
    pq.write_table(nulls.replace_schema_metadata({"gnnperf.trace": about}), path)
    files.refused(path, "has nulls")


def test_absurd_sizes_are_refused(tmp_path: Path, run: RunTrace, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(run, tmp_path / "saved")
    monkeypatch.setattr("gnnperf.trace.storage.MAX_RUN_EVENTS", 3)
    files.refused(tmp_path / "saved", r"holds \d+ events.*3")

    def exhausted(*args: object, **kwargs: object) -> None:
        raise MemoryError

    monkeypatch.setattr("gnnperf.core.schema.parquet.pq.ParquetFile", exhausted)
    files.refused(tmp_path / "saved", r"takes about .* of memory to read")


def test_what_import_wrote_is_read_by_its_folder(tmp_path: Path, run: RunTrace) -> None:
    write_run(run, tmp_path / "mine" / "tables")
    again = read_run(tmp_path / "mine")
    assert again.name == "mine"
    assert [t.meta.rank for t in again.tables] == [0, 1]


# --- packed events: what a step repeats looks the same each time, and everything comes back exactly -------------------


BIG = st.integers(-(2**62), 2**62 - 1)


def _packed(events: pd.DataFrame) -> tuple[Columns, dict[str, list[str]]]:
    codes = {name: Codes() for name in TEXTS}
    dtypes = packed_dtypes()
    columns = {name: column.astype(dtypes[name], casting="safe") for name, column in pack(events, codes).items()}
    return columns, {name: result.uniques() for name, result in codes.items()}


def test_gaps_are_stretches_in_which_nothing_begins_or_ends() -> None:
    """a 0..100 us with b 10..30 and c 45..90 in it; d 5..50 on another thread does not cut them."""
    events = trace(op("a", 0, 100), op("b", 10, 30), op("c", 45, 90), op("d", 5, 50, thread=9)).events
    columns, _ = _packed(events)
    names = [events["name"].iloc[i] for i in np.lexsort([events[lane] for lane in reversed(LANE)])]
    assert names == ["a", "b", "c", "d"]
    assert columns["num_inside"].tolist() == [2, 0, 0, 0]
    assert columns["start_gap_ns"].tolist()[:3] == [0, 10_000, 15_000]
    assert columns["end_gap_ns"].tolist() == [10_000, 20_000, 45_000, 45_000]
    assert not columns["row_shift"].any()


def test_a_step_that_repeats_packs_to_the_same_numbers() -> None:
    steps = [
        event
        for at in (0, 1000)
        for event in (
            annotation(f"ProfilerStep#{at}", at, at + 500, thread=7),
            op("aten::add", at + 10, at + 90, thread=7, sequence=at // 10, external_id=at + 1),
            op("AddBackward0", at + 100, at + 190, thread=7, sequence=at // 10, forward="aten::add"),
        )
    ]
    events = trace(*steps).events
    events["forward_event"] = [-1, -1, 1, -1, -1, 4]
    columns, texts = _packed(events)
    assert texts["name"] == ["ProfilerStep#0", "aten::add", "AddBackward0", "ProfilerStep#1000"]
    for name in ("start_gap_ns", "end_gap_ns", "num_inside", "forward_event_back", "op_event_back"):
        assert columns[name][1:3].tolist() == columns[name][4:6].tolist(), name
    assert columns["forward_event_back"].tolist() == [0, 0, 1, 0, 0, 1]
    assert columns["sequence_step"].tolist() == [0, -1, -1, 0, 100, -1]  # 0 is "none": zero and below are one lower


@st.composite
def tables(draw: st.DrawFn) -> pd.DataFrame:
    """Any table at all: unsorted, overlapping, extreme numbers, references to anywhere."""
    size = draw(st.integers(1, 12))

    def ints(values: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(values, min_size=size, max_size=size))

    columns: dict[str, object] = {}
    for column in schema.EVENT_COLUMNS:
        if column.name == "event_id":
            columns[column.name] = np.arange(size)
        elif column.name in REFERENCES:
            columns[column.name] = ints(st.integers(-1, size - 1))
        elif column.name in COUNTERS:
            columns[column.name] = ints(st.one_of(st.just(-1), BIG))
        elif column.name in (*LANE, "duration_ns"):
            columns[column.name] = ints(st.integers(-1, 3))
        elif column.dtype == "category":
            columns[column.name] = pd.Categorical(draw(st.lists(st.sampled_from(["x", "", "é", None]),
                                                                min_size=size, max_size=size)))  # fmt: skip
        elif column.dtype == "float64":
            columns[column.name] = draw(st.lists(st.floats(), min_size=size, max_size=size))
        else:
            columns[column.name] = ints(st.integers(-5, 5) if column.dtype == "int32" else BIG)
    frame = pd.DataFrame(columns)
    return frame.astype({c.name: c.dtype for c in schema.EVENT_COLUMNS if c.dtype != "category"})


@given(tables())
def test_every_table_comes_back_exactly(events: pd.DataFrame) -> None:
    columns, texts = _packed(events)
    assert {name: str(values.dtype) for name, values in columns.items()} == packed_dtypes()
    again = unpack(columns, texts, "test")
    for column in schema.EVENT_COLUMNS:
        before, after = events[column.name], again[column.name]
        if column.dtype == "category":
            assert [t if isinstance(t, str) else None for t in before] == [
                t if isinstance(t, str) else None for t in after
            ]
        else:
            np.testing.assert_array_equal(before.to_numpy(), after.to_numpy())
            assert str(after.dtype) == column.dtype


def test_categories_are_those_in_use_in_order_of_first_appearance() -> None:
    events = trace(op("b", 0, 1), op("a", 2, 3), op("b", 4, 5)).events
    codes = {name: Codes() for name in TEXTS}
    codes["name"].of(["of another rank", "a"])
    columns = pack(events, codes)
    again = unpack(columns, {name: result.uniques() for name, result in codes.items()}, "test")
    assert again["name"].cat.categories.tolist() == ["b", "a"]
    assert again["kind"].tolist() == [str(EventKind.CPU_OP)] * 3


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("num_inside", 3, "'num_inside' does not fit"),
        ("num_inside", -1, "'num_inside' does not fit"),
        ("row_shift", 1, "'row_shift' does not fit"),
        ("row_shift", 2**62, "'row_shift' does not fit"),
        ("op_event_back", 4, "'op_event' names a row that is not there"),
        ("launch_event_back", -(2**62), "'launch_event' names a row that is not there"),
        ("name", 9, "'name' does not fit"),
        ("kind", -2, "'kind' does not fit"),
    ],
)
def test_damaged_columns_are_refused(column: str, value: int, message: str) -> None:
    columns, texts = _packed(trace(op("a", 0, 9), op("b", 1, 2), op("c", 3, 4)).events)
    columns[column] = columns[column].copy()
    columns[column][0] = value
    with pytest.raises(InputError, match=message):
        unpack(columns, texts, "test")
