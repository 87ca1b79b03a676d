"""JSON for people."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from gnnperf.record.files import readable

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_it_says_the_same(value: object) -> None:
    assert json.loads(readable(value)) == value


def test_samples_are_one_line_and_long_objects_are_not() -> None:
    text = readable({"samples_us": [1234.5] * 40, "about": {f"key {i}": "some words" for i in range(10)}})
    lines = text.splitlines()
    assert lines[1] == ' "samples_us": [' + ", ".join(["1234.5"] * 40) + "],"
    assert lines[3] == '  "key 0": "some words",' and len(lines) == 2 + 1 + 12
