"""A plan from a mapping, as conf/plan/NAME.yaml holds it: every key and value checked."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from gnnperf.errors import InputError
from gnnperf.plan.transformer.plan import Parallelism, Schedule, Transformer, TransformerPlan

Section = TypeVar("Section")
SECTIONS = ("name", "model", "parallelism", "schedule", "source")


def plan_from(raw: Mapping[str, Any], where: str) -> TransformerPlan:
    """The plan of a mapping of sections; `source` says where its numbers come from and is not used.

    Raises:
        InputError: an unknown or missing key, a wrong type, a value that cannot be.
    """
    for key in raw:
        if key not in SECTIONS:
            raise InputError(f"unknown key {key!r}", where=where, allowed=", ".join(SECTIONS))
    return TransformerPlan(
        str(raw.get("name", where)),
        _section(Transformer, raw.get("model"), f"{where}.model"),
        _section(Parallelism, raw.get("parallelism", {}), f"{where}.parallelism"),
        _section(Schedule, raw.get("schedule"), f"{where}.schedule"),
    )


def _section(kind: type[Section], raw: object, where: str) -> Section:
    hints = typing.get_type_hints(kind)
    if not isinstance(raw, Mapping):
        raise InputError(f"bad value {raw!r}", where=where, allowed=f"a mapping of {', '.join(hints)}")
    for key in raw:
        if key not in hints:
            raise InputError(f"unknown key {key!r}", where=where, allowed=", ".join(hints))
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.default is dataclasses.MISSING and field.name not in raw:
            raise InputError(f"{field.name} is required", where=where)
    return kind(**{key: _value(value, hints[key], f"{where}.{key}") for key, value in raw.items()})


def _value(value: object, hint: type, where: str) -> object:
    if issubclass(hint, StrEnum):
        if not isinstance(value, str) or value not in list(hint):
            raise InputError(f"bad value {value!r}", where=where, allowed=", ".join(hint))
        return hint(value)
    words = {int: "a whole number", float: "a number", str: "text"}
    fits = isinstance(value, hint) or (hint is float and isinstance(value, int))
    if isinstance(value, bool) or not fits:
        raise InputError(f"bad value {value!r}", where=where, allowed=words[hint])
    return hint(value)  # type: ignore[call-arg]
