"""CSV without formulas, JSON without what JSON lacks; files and folders that are whole or not there."""

import base64
import hashlib
import io
import json
import math
import os
import re
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plotly.graph_objects import Bar, Figure

from gnnperf.core import InputError, csv_text, files, html_page, plotly_page, to_json
from gnnperf.core.files import readable
from tests.chromium import Page, chromium


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


# --- pages run their own scripts and load nothing ---------------------------------------------------------------------


EVIL = "</script><script>alert(1)</script><!--\u2028<img src=x onerror=alert(1)>"


def _hashes(html: str) -> set[str]:
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", html, re.DOTALL)
    return {base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts}


def _policy(html: str) -> str:
    (content,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', html)
    return str(content)


def test_a_page_without_scripts_allows_none() -> None:
    html = html_page(EVIL, "p { color: red }", "<p>text</p>")
    assert "script-src 'none'" in _policy(html) and "default-src 'none'" in _policy(html)
    assert "<script" not in html and "<img" not in html
    assert html.index("Content-Security-Policy") < html.index("<title>")


@pytest.fixture(scope="module")
def drawn() -> str:
    figures = [Figure(Bar(x=[1.0], y=[EVIL], text=[EVIL]), {"title": {"text": EVIL}}) for _ in range(2)]
    return plotly_page(EVIL, figures)


def test_scripts_of_figures_are_allowed_by_their_hash_isolated(drawn: str) -> None:
    allowed = set(re.findall(r"'sha256-([^']*)'", _policy(drawn)))
    assert allowed == _hashes(drawn)
    assert len(re.findall(r"<script", drawn)) >= 4
    assert "unsafe-eval" not in _policy(drawn) and "http" not in _policy(drawn)


def test_texts_of_figures_end_no_script(drawn: str) -> None:
    assert "alert(1)" not in re.sub(r"<script[^>]*>.*?</script>", "", drawn, flags=re.DOTALL).replace(
        "&lt;script&gt;alert(1)&lt;/script&gt;", "").replace("onerror=alert(1)&gt;", "")  # fmt: skip
    assert "<img src=x" not in drawn and "<!--\u2028" not in drawn


# --- pages of figures in a headless Chromium: drawn under their own policy, obeying no text of strangers --------------


PROGRAM = chromium()
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\u2028<!--"
DRAWN = "document.querySelectorAll('#figure1 .bars path').length > 0"


@pytest.mark.skipif(PROGRAM is None, reason="no Chromium on the PATH (Debian: apt install chromium)")
def test_figures_are_drawn_and_nothing_else_runs(tmp_path: Path) -> None:
    assert PROGRAM is not None
    path = tmp_path / "page.html"
    figures = [Figure(Bar(x=[1.0], y=[HOSTILE], text=[HOSTILE]), {"title": {"text": HOSTILE}}) for _ in range(2)]
    path.write_text(plotly_page("title", figures), encoding="utf-8")
    with Page(PROGRAM) as page:
        page.open(path, DRAWN)
        assert page.complaints() == []
        assert page.ask("document.title") == "title"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_it_states_the_same(value: object) -> None:
    assert json.loads(readable(value)) == value


def test_samples_are_one_line_and_long_objects_are_not() -> None:
    text = readable({"samples_us": [1234.5] * 40, "about": {f"key {i}": "some words" for i in range(10)}})
    lines = text.splitlines()
    assert lines[1] == ' "samples_us": [' + ", ".join(["1234.5"] * 40) + "],"
    assert lines[3] == '  "key 0": "some words",' and len(lines) == 2 + 1 + 12


def test_a_folder_replaces_an_earlier_one_whole(tmp_path: Path) -> None:
    for content in ("first", "second"):
        with files.replacing_folder(tmp_path / "out") as folder:
            (folder / content).write_text(content)
        assert [p.name for p in (tmp_path / "out").iterdir()] == [content]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_folder_that_fails_leaves_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanges: bool
) -> None:
    if not exchanges:
        monkeypatch.setattr(files, "_exchange", lambda one, other: False)
    with files.replacing_folder(tmp_path / "out") as folder:
        (folder / "a").touch()
    for error in (OSError(28, "No space left on device"), KeyboardInterrupt()):
        with pytest.raises((InputError, KeyboardInterrupt)), files.replacing_folder(tmp_path / "out") as folder:
            (folder / "b").touch()
            raise error
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a", "out"]
    with files.replacing_folder(tmp_path / "out") as folder:
        (folder / "c").touch()
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["c", "out"]


def test_what_a_killed_writer_left_is_removed_and_what_another_writes_is_not(tmp_path: Path) -> None:
    (tmp_path / ".out.0123.tmp" / "half").mkdir(parents=True)
    (tmp_path / ".a.json.0123.tmp").touch()
    for left in list(tmp_path.iterdir()):
        os.utime(left, (0, 0))
    with files.replacing_folder(tmp_path / "out") as first, files.replacing_folder(tmp_path / "out") as second:
        (first / "first").touch()
        (second / "second").touch()
    files.write_text(tmp_path / "a.json", "{}")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "out"]
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["first"]  # it ended last


@pytest.mark.parametrize("name", ["missing/a.json", "x" * 300 + ".json", "file/a.json"])
def test_what_the_system_refuses_is_one_input_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"):
        files.write_text(tmp_path / name, "{}")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_the_hash_of_a_file_is_of_what_it_holds_now(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for second, content in enumerate((b"one", b"two", b"three")):  # two of one size
        path.write_bytes(content)
        os.utime(path, (second, second))
        assert files.sha256(path) == hashlib.sha256(content).hexdigest()
    (tmp_path / "other").write_bytes(b"seven")
    os.utime(tmp_path / "other", (second, second))
    (tmp_path / "other").replace(path)
    assert files.sha256(path) == hashlib.sha256(b"seven").hexdigest()


def test_files_are_hashed_ahead_and_then_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {tmp_path / name: hashlib.sha256(name.encode()).hexdigest() for name in ("a", "b")}
    for path in expected:
        path.write_text(path.name)
    files.hash_ahead([tmp_path / "a", tmp_path, tmp_path / "absent", tmp_path / ("a" * 300), tmp_path / "b"])
    for thread in {*files._ahead.values()}:
        thread.join()
    monkeypatch.setattr(files.hashlib, "sha256", None)
    assert {path: files.sha256(path) for path in expected} == expected
    assert not files._ahead.keys() & expected.keys()
    with pytest.raises(FileNotFoundError):
        files.sha256(tmp_path / "absent")
