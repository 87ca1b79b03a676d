"""One reader for files of constants: what does not fit is one message with file, key, value and what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pytest
from msgspec import Meta

from gnnperf.analytic.constants_file import AboveZero, constants_from, read_constants, rounded
from gnnperf.core.errors import InputError, require
from research.fitting.files import write_constants


@dataclass(frozen=True)
class Part:
    share: AboveZero
    name: str = ""

    def __post_init__(self) -> None:
        require(self.name != "bad", "name", self.name, "another name")


@dataclass(frozen=True)
class Whole:
    parts: Annotated[tuple[Part, ...], Meta(min_length=1)]
    by_key: Mapping[tuple[str, int], Part] = field(default_factory=dict)
    other: Part | None = None
    provenance: str = ""


GOOD: dict[str, Any] = {
    "parts": [{"share": 1, "name": "a"}], "by_key": {("x", 2): {"share": 0.5, "name": ""}}, "other": None,
    "provenance": "here",
}  # fmt: skip


def test_values_become_a_dataclass() -> None:
    assert constants_from(GOOD, Whole, "f") == Whole((Part(1.0, "a"),), {("x", 2): Part(0.5)}, None, "here")


def test_there_and_back(tmp_path: Path) -> None:
    write_constants(tmp_path / "c.yaml", Whole((Part(1 / 3, "a"),), {}, Part(2.0), "here"), 3)
    assert read_constants(tmp_path / "c.yaml", Whole) == Whole((Part(0.333, "a"),), {}, Part(2.0), "here")
    assert rounded((1.23456, 7, "x"), 3) == [1.23, 7, "x"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"more": 1}, "f: missing or unknown: more. Allowed: parts, by_key, other, provenance."),
        ({"parts": []}, "f, parts: value []. Allowed: "),
        ({"parts": [{"share": 0, "name": ""}]}, "f, parts[0].share: value 0. Allowed: a number above 0."),
        ({"parts": [{"share": 1}]}, "f, parts[0]: missing or unknown: name. Allowed: share, name."),
        ({"parts": [{"share": 1, "name": "bad"}]}, "f, parts[0].name: bad value 'bad'. Allowed: another name."),
        ({"by_key": {("x", "y"): {"share": 1, "name": ""}}}, "f, by_key: value ('x', 'y'). Allowed: a whole number."),
        ({"by_key": 3}, "f, by_key: is not a mapping of names to values."),
        ({"other": {"share": "much", "name": ""}}, "f, other.share: value 'much'. Allowed: a number."),
        ({"provenance": True}, "f, provenance: value True. Allowed: a text."),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_message(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        constants_from({**GOOD, **changed}, Whole, "f")
    assert str(error.value).startswith(message)
