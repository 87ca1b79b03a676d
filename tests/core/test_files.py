"""JSON for people; files and folders that are whole or not there."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core import files
from gnnperf.core.errors import InputError
from gnnperf.core.files import readable

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
