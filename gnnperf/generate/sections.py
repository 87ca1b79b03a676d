"""Sections of a plan's YAML as dataclasses: every key and value checked by the types of the fields."""

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, TypeVar

from gnnperf.core import InputError
from gnnperf.hardware import closest

Section = TypeVar("Section")
MOST_SHOWN = 12  # names in a message
WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def keys_in(raw: object, allowed: Sequence[str], where: str, *, needed: Sequence[str] = ()) -> Mapping[str, Any]:
    """A mapping with known keys, the needed ones among them.

    Raises:
        InputError: no mapping, an unknown or a missing key.
    """
    if not isinstance(raw, Mapping):
        raise InputError(f"bad value {raw!r}"[:200], where=where, allowed=f"a mapping of {_some(allowed)}")
    for key in raw:
        if key not in allowed:
            near = " or ".join(map(repr, closest(str(key), allowed)))
            raise InputError(f"unknown key {key!r}", where=where, allowed=_some(allowed),
                             remedy=f"did you mean {near}?" if near else "")  # fmt: skip
    missing = [key for key in needed if key not in raw]
    if missing:
        raise InputError(f"{_some(missing)} {'is' if len(missing) == 1 else 'are'} required", where=where,
                         allowed=f"the keys {_some(allowed)}")  # fmt: skip
    return raw


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return ", ".join(names[:MOST_SHOWN]) + more


def section(kind: type[Section], raw: object, where: str) -> Section:
    """A dataclass from a mapping of its fields.

    Raises:
        InputError: an unknown or missing key, a wrong type, a value that cannot be.
    """
    hints, fields = typing.get_type_hints(kind), dataclasses.fields(kind)  # type: ignore[arg-type]
    needed = [f.name for f in fields if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING]
    given = keys_in(raw, tuple(hints), where, needed=needed)
    return kind(**{key: value_as(value, hints[key], f"{where}.{key}") for key, value in given.items()})


def value_as(value: object, hint: Any, where: str) -> Any:
    """A value of a field's type: plain, an enum's, a list of either, or null where the field may be None."""
    kinds = typing.get_args(hint) if isinstance(hint, UnionType) else (hint,)
    nullable = NoneType in kinds
    if nullable and value is None:
        return None
    (kind,) = [one for one in kinds if one is not NoneType]
    if typing.get_origin(kind) is tuple:
        each, _ = typing.get_args(kind)
        return tuple(value_as(one, each, where) for one in list_of(value, where))
    or_null = " or null" if nullable else ""
    if issubclass(kind, StrEnum):
        if not isinstance(value, str) or value not in list(kind):
            raise InputError(f"bad value {value!r}", where=where, allowed=", ".join(kind) + or_null)
        return kind(value)
    if kind not in WORDS:
        return value if isinstance(value, kind) else section(kind, value, where)
    fits = isinstance(value, kind) or (kind is float and isinstance(value, int))
    if isinstance(value, bool) != (kind is bool) or not fits:
        raise InputError(f"bad value {value!r}", where=where, allowed=WORDS[kind] + or_null)
    return kind(value)  # type: ignore[arg-type]


def list_of(raw: object, where: str) -> Sequence[Any]:
    """A list."""
    if isinstance(raw, str) or not isinstance(raw, Sequence):
        raise InputError(f"bad value {raw!r}"[:200], where=where, allowed="a list")
    return raw
