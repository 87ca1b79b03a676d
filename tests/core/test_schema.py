"""What files of others may hold: types and ranges of fields. Columns of texts: codes and texts, joined rows."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core import InputError, LogHigh, NotNegative, Share, checked, checked_json, schema, untrusted
from gnnperf.core.schema import categories, parquet
from gnnperf.core.schema.parquet import read_parquet, unpacked_bytes


@dataclass(frozen=True)
class Part:
    us: NotNegative
    shares: tuple[Share, ...] = ()
    high: LogHigh = 0.0


def test_plain_values_become_the_dataclass() -> None:
    assert checked({"us": 3, "shares": [0.0, 1.0], "high": math.inf, "extra": 1}, Part) == Part(
        3.0, (0.0, 1.0), math.inf
    )


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ({"us": math.nan}, "us"),
        ({"us": 2**70}, "us"),
        ({"us": True}, "us"),
        ({"us": "1"}, "us"),
        ({"us": 1.0, "shares": [1.1]}, "shares"),
        ({"us": 1.0, "high": math.nan}, "high"),
        ({}, "us"),
        ([], "array"),
    ],
)
def test_what_is_refused_is_named(content: object, field: str) -> None:
    with pytest.raises(InputError, match=field):
        checked(content, Part)


def test_json_is_plain_and_bounded() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert checked_json({"a": [math.nan, 1]}, "about") == {"a": [None, 1]}
    for bad in ([1], {"a": object()}, {"a": deep}, {"a": "x" * 2000}, {"a": "\ud800"}):
        with pytest.raises(InputError, match="about"):
            checked_json(bad, "about", max_bytes=1000)


# --- sizes of pages as their own headers state them, against pyarrow's, and against a footer that states less ---------


ROOT = Path(__file__).resolve().parents[2]


def footer_bytes(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[-8:-4], "little")


def page_bytes(path: Path, names: Collection[str]) -> int:
    with pa.OSFile(str(path)) as file:
        return unpacked_bytes(file, names, footer_bytes(path), path)


def varint(value: int, length: int = 0) -> bytes:
    """Zigzag, as Thrift writes it; padded to a length."""
    pieces: list[int] = []
    value <<= 1
    while value > 127 or len(pieces) < length - 1:
        pieces.append(value & 127 | 128)
        value >>= 7
    return bytes([*pieces, value])


@pytest.mark.parametrize("compression", ["none", "zstd", "brotli"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_add_up_to_what_the_footer_states(compression: str, version: str, tmp_path: Path) -> None:
    table = pa.table({"a": list(range(5000)), "b": [f"text {n % 7}" for n in range(5000)], "c": [0.5, None] * 2500})
    path = tmp_path / "t.parquet"
    pq.write_table(table, path, compression=compression, data_page_version=version, row_group_size=2000)
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    for names in ({"a", "b", "c"}, {"a"}, {"b", "c"}):
        stated = sum(group.column(j).total_uncompressed_size for group in groups for j, name in enumerate("abc")
                     if name in names)  # fmt: skip
        pages = page_bytes(path, names)
        assert stated * 0.5 < pages <= stated  # the footer counts headers, too


def test_recorded_tables_are_read_as_before() -> None:
    path = ROOT / "datasets/cpu-gloo/gpt_l2_w256_s64_b4_x2_lo/1/events.parquet"
    assert page_bytes(path, pq.read_schema(path).names) > 1000
    pd.testing.assert_frame_equal(read_parquet(path).to_pandas(), pq.read_table(path).to_pandas())


def test_a_footer_that_states_less_than_its_pages_hold_is_refused_before_they_are_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untrusted, "RATIO_FLOOR_BYTES", 2**20)
    path = tmp_path / "t.parquet"
    text = "x" * (30 * 2**20)
    pq.write_table(pa.table({"a": [text]}), path, compression="zstd", use_dictionary=False, write_statistics=False)
    data = path.read_bytes()
    honest = varint(pq.read_metadata(path).row_group(0).total_byte_size)
    at = len(data) - 8 - footer_bytes(path)
    assert data.count(honest, at) >= 1
    path.write_bytes(data[:at] + data[at:].replace(honest, varint(1000, len(honest))))
    assert pq.read_metadata(path).row_group(0).total_byte_size == 1000
    before = pa.total_allocated_bytes()
    with pytest.raises(InputError, match="holds 31,"), untrusted.reading(path):
        read_parquet(path)
    assert pa.total_allocated_bytes() - before < 2**20


def test_a_file_that_is_replaced_while_it_is_read_has_its_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = tmp_path / "t.parquet", tmp_path / "other.parquet"
    pq.write_table(pa.table({"a": ["x"] * 10}), path, compression="none")
    pq.write_table(pa.table({"a": list(range(5000))}), other)
    whole = parquet.unpacked_bytes

    def replacing(file: pa.NativeFile, names: Collection[str], size: int, where: Path) -> int:
        other.replace(path)
        return whole(file, names, size, where)

    monkeypatch.setattr(parquet, "unpacked_bytes", replacing)
    assert read_parquet(path).to_pydict() == {"a": ["x"] * 10}
    assert pq.read_metadata(path).num_rows == 5000


@pytest.mark.parametrize("at", range(0, 400, 7))
def test_a_damaged_footer_is_one_message(at: int, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]}), path)
    data = bytearray(path.read_bytes())
    first = len(data) - 8 - footer_bytes(path)
    data[first + at % footer_bytes(path)] ^= 0x55
    path.write_bytes(data)
    try:
        with untrusted.reading(path):
            page_bytes(path, {"a", "b"})
    except InputError as error:
        assert str(path) in str(error)


COLUMNS = st.lists(st.lists(st.sampled_from(["a", "b", "c", "d", None])), min_size=1, max_size=4)


def column(values: list[str | None]) -> pd.Series:
    texts = list(dict.fromkeys(value for value in values if value is not None))
    codes = np.array([-1 if value is None else texts.index(value) for value in values], dtype=np.int8)
    return pd.Series(schema.categorical(codes, texts))


@given(COLUMNS)
def test_rows_of_columns_keep_their_texts_below_each_other(parts: list[list[str | None]]) -> None:
    made = pd.Series(schema.merged([column(part) for part in parts]))
    decoded = [None if code < 0 else schema.categories_of(made)[code] for code in schema.codes_of(made)]
    assert decoded == [value for part in parts for value in part] and str(made.cat.categories.dtype) == "str"
    assert schema.categories_of(made) == list(dict.fromkeys(v for part in parts for v in part if v is not None))


@given(st.lists(st.sampled_from(["a", "b", "c", None])))
def test_texts_that_no_row_has_are_left_out_and_the_others_keep_their_order(values: list[str | None]) -> None:
    codes = np.array([-1 if value is None else "cba".index(value) for value in values], dtype=np.int8)
    made = pd.Series(schema.in_use(codes, ["c", "b", "a"]))
    assert [None if code < 0 else schema.categories_of(made)[code] for code in schema.codes_of(made)] == values
    assert schema.categories_of(made) == sorted({v for v in values if v is not None}, reverse=True)


def test_more_than_few_texts_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(categories, "FEW", 1)
    few, many = schema.categorical(np.array([0]), ["x"]), schema.categorical(np.array([1]), ["x", "y"])
    assert few.dtype is schema.categorical(np.array([0]), ["x"]).dtype
    assert many.dtype is not schema.categorical(np.array([1]), ["x", "y"]).dtype and many.tolist() == ["y"]
