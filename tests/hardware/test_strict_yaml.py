"""YAML of users is read as plain values, and refused at the first thing that is more."""

import os
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gnnperf.core.errors import InputError
from gnnperf.hardware.strict_yaml import MAX_DEPTH, parse_yaml, read_yaml, yaml_text

LAUGHS = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(-1e30, 1e30)
    | st.text("ab: #-'\"\n", max_size=9)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUGHS, "an anchor or alias in line 1"),
        ("a: 1\nb: &x 2\n", "an anchor or alias in line 2"),
        ("a: {<<: {b: 1}}", "a value of type merge"),
        ("a: !!python/object/apply:os.system [id]", "the tag"),
        ("a: ! b", "the tag"),
        ("a: !!binary aGk=", "the tag"),
        ("a: 2020-01-01", "a value of type timestamp"),
        ("a: 1\na: 2", "the key 'a' twice in line 2"),
        ("defaults: [x]", "the key 'defaults'"),
        ("a: {_target_: os.system}", "the key '_target_'"),
        ("name: x_${oc.env:HOME}", "the interpolation"),
        ("${oc.env:HOME}: 1", "the interpolation"),
        ("? [a]\n: 1", "a key that is a mapping or a list"),
        ("a: 1\n---\nb: 2", "a second document"),
        ("a: .inf", "the number"),
        ("a: 1" + "0" * 60, "a whole number of 61 characters"),
        ("a: " + "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "nested deeper"),
        ("a: " + "[" * 100_000, "nested deeper|is not YAML"),
        ("a: [" + "1," * 100_001 + "]", "more than 100,000 values"),
        ("a: '\x1b[31m'", "control character"),
        ("a: [1", "is not YAML"),
    ],
)  # fmt: skip
def test_more_than_plain_values_is_refused_at_once(text: str, message: str) -> None:
    begin = time.process_time()
    with pytest.raises(InputError, match=message):
        parse_yaml(text, "mine.yaml")
    assert time.process_time() - begin < 2.0


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a" * (1 << 20) + b": 1", b"- 1", b"1: 2", b""])
def test_a_file_that_is_no_mapping_of_text_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"mine\.yaml"):
        read_yaml(path)


def test_a_pipe_is_refused_and_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mine.yaml")
    with pytest.raises(InputError, match="is not a file"):
        read_yaml(tmp_path / "mine.yaml")


@given(st.dictionaries(st.text("abc", max_size=3), VALUES, max_size=4))
def test_what_is_written_is_read_back(content: dict[str, object]) -> None:
    text = yaml_text(content)
    assert parse_yaml(text, "x") == yaml.safe_load(text) == content


def test_a_value_that_stands_twice_is_written_without_an_anchor() -> None:
    link = {"name": "wire"}
    assert parse_yaml(yaml_text({"a": link, "b": link}), "x") == {"a": link, "b": link}
