"""CSV without formulas, JSON without what JSON lacks."""

from __future__ import annotations

import io
import json
import math

import pandas as pd
import pytest

from gnnperf.core.documents import csv_text, to_json


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\n=1", "-"])
def test_texts_that_a_spreadsheet_computes_begin_with_a_quote(text: str) -> None:
    table = pd.DataFrame({"op": [text, "aten::mm"], text: pd.Categorical(["a", text])})
    again = pd.read_csv(io.StringIO(csv_text(table)), dtype=str, keep_default_na=False)
    assert again["op"].tolist() == ["'" + text, "aten::mm"]
    assert again.columns[1].startswith("'") and str(again.iloc[1, 1]).startswith("'")


def test_numbers_and_other_texts_are_as_they_were() -> None:
    table = pd.DataFrame({"us": [-1.5, math.nan], "n": [-3, 4], "flag": [True, False], "text": ["-2.5e3", "a=b"],
                          "mixed": [-1, "+4"], "none": [None, "[[-1]]"]})  # fmt: skip
    assert csv_text(table) == table.to_csv(index=False)


def test_no_text_ends_its_row() -> None:
    lines = csv_text(pd.DataFrame({"op": ["a\r=1+1", 'b"\n=1', "\r=1", "\x1b[2J"]})).splitlines()
    assert lines == ["op", r"a\r=1+1", '"b""', '=1"', r"\r=1", r"\x1b[2J"]


def test_json_is_strict_and_utf8() -> None:
    text = to_json({"a": [math.nan, -math.inf, 1.5], "b": ("x\udcff", "ü"), "\ud800": None})
    assert text.endswith(b"}\n")
    assert json.loads(text) == {"a": [None, None, 1.5], "b": ["x\\udcff", "ü"], "\\ud800": None}
