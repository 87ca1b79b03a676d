"""What files of others may hold: types and ranges of fields."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from gnnperf.core.errors import InputError
from gnnperf.core.schema.ranges import LogHigh, NotNegative, Share, checked, checked_json


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
