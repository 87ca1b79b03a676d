"""Docstrings as the reference reads them."""

from __future__ import annotations

import pytest

forms = pytest.importorskip(
    "docs.made.docstring_forms", reason="the extra 'docs' is not installed", exc_type=ImportError
)


def test_a_drawing_becomes_a_block() -> None:
    text = "What it does.\n\nstep 0   |-- host --|\n         |   gpu  --|\n\nMore words."
    assert forms.with_drawings(text).split("\n\n")[1] == "```text\nstep 0   |-- host --|\n         |   gpu  --|\n```"
    assert forms.with_drawings("Args:\n    a: words   apart.") == "Args:\n    a: words   apart."


def test_an_entry_of_two_becomes_two() -> None:
    text = "Attributes:\n    low, high: bounds,\n        of both.\n    other: one."
    assert forms.with_entries(text) == (
        "Attributes:\n    low: bounds,\n        of both.\n    high: bounds,\n        of both.\n    other: one."
    )
