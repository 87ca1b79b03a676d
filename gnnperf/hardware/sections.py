"""Plain values of a file as dataclasses: every key and value checked by the types of the fields."""

import dataclasses
import math
import re
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar

import msgspec

from gnnperf.core import InputError

Section = TypeVar("Section")
MOST_SHOWN = 12  # names in a message
MOST_NAMED, LEAST_LIKE = 4, 0.6  # close names in a message; difflib's own cutoff
SEPARATOR = " | "  # between the parts of a key
EXPECTED = re.compile(r"Expected `(\w+)`(?: ([<>]=?) (\S+))?")  # begins messages of msgspec
WORDS = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "text", "array": "a list"}
LIMITS = {">": "above {:g}", ">=": "from {:g} up", "<": "below {:g}", "<=": "up to {:g}"}


def closest(name: str, names: Iterable[str]) -> list[str]:
    """Names spelled like `name`, as a whole or in as many first letters; best first, at most MOST_NAMED."""
    requested = name.lower().replace("-", "_").replace(" ", "_")
    alike = {
        known: max(SequenceMatcher(None, requested, known[:length]).ratio() for length in (None, len(requested)))
        for known in names
    }
    near = [known for known, share in alike.items() if share >= LEAST_LIKE]
    return sorted(near, key=lambda known: -alike[known])[:MOST_NAMED]


def keys_in(raw: object, allowed: Sequence[str], where: str, *, needed: Sequence[str] = ()) -> Mapping[str, Any]:
    """A mapping with known keys, the needed ones among them.

    Raises:
        InputError: no mapping, an unknown or a missing key.
    """
    given = mapping_of(raw, where, _some(allowed))
    for key in given:
        if key not in allowed:
            near = " or ".join(map(repr, closest(str(key), allowed)))
            raise InputError(f"unknown key {key!r}", where=where, allowed=_some(allowed),
                             remedy=f"did you mean {near}?" if near else "")  # fmt: skip
    missing = [key for key in needed if key not in given]
    if missing:
        raise InputError(f"{_some(missing)} {'is' if len(missing) == 1 else 'are'} required", where=where,
                         allowed=f"the keys {_some(allowed)}")  # fmt: skip
    return given


def require_names(values: Mapping[str, object], names: Collection[str], where: str) -> None:
    """Refuse a mapping with other names. Raises InputError: a name is missing or unknown."""
    if odd := sorted(map(str, set(values) ^ set(names))):
        raise InputError(f"missing or unknown: {', '.join(odd)}", where=where, allowed=", ".join(map(str, names)))


def section(kind: type[Section], raw: object, where: str, *, complete: bool = False) -> Section:
    """A dataclass from a mapping of its fields; `complete`: those with a default are required, too.

    Raises:
        InputError: an unknown or missing key, a wrong type, a value that cannot be.
    """
    hints = _hints(typing.cast(Any, kind))
    if complete:
        given = mapping_of(raw, where)
        require_names(given, hints, where)
    else:
        given = keys_in(raw, tuple(hints), where, needed=_without_default(kind))
    values = {key: value_as(value, hints[key], f"{where}.{key}", complete=complete) for key, value in given.items()}
    try:
        return kind(**values)
    except InputError as error:  # of what is checked where they are made
        if not complete:
            raise
        raise InputError(error.what, where=f"{where}.{error.where}", allowed=error.allowed) from None


def value_as(value: object, hint: Any, where: str, *, complete: bool = False) -> Any:
    """A value of a field's type: plain, an enum's, a dataclass's, a list or mapping of these, or null for None."""
    kinds = typing.get_args(hint) if typing.get_origin(hint) in (UnionType, typing.Union) else (hint,)
    nullable = NoneType in kinds
    if nullable and value is None:
        return None
    (kind,) = [one for one in kinds if one is not NoneType]
    plain, *ranges = typing.get_args(kind) if typing.get_origin(kind) is Annotated else (kind,)
    outer, inner = typing.get_origin(plain), typing.get_args(plain)
    if outer is tuple and inner[-1] is Ellipsis:
        items = list_of(value, where)
        if ranges:  # of its length
            _leaf(list(items), Annotated[(list, *ranges)], where)  # type: ignore[valid-type]
        return tuple(value_as(one, inner[0], f"{where}[{place}]", complete=complete) for place, one in enumerate(items))
    if outer in (dict, Mapping):
        given = mapping_of(value, where)
        return {_key(name, inner[0], where): value_as(item, inner[1], f"{where}.{_text(name)}", complete=complete)
                for name, item in given.items()}  # fmt: skip
    if isinstance(plain, type) and dataclasses.is_dataclass(plain):
        return value if isinstance(value, plain) else section(plain, value, where, complete=complete)
    or_null = " or null" if nullable else ""
    if isinstance(plain, type) and issubclass(plain, StrEnum):
        if not isinstance(value, str) or value not in list(plain):
            raise InputError(f"bad value {value!r}", where=where, allowed=", ".join(plain) + or_null)
        return plain(value)
    if plain in (bool, int, float, str):
        if plain is float and ranges and isinstance(value, str):
            value = _number(value)
        fits = isinstance(value, plain) or (plain is float and isinstance(value, int))
        if isinstance(value, bool) != (plain is bool) or not fits:
            raise InputError(f"bad value {value!r}", where=where, allowed=WORDS[plain.__name__] + or_null)
    return _leaf(value, kind, where)


def list_of(raw: object, where: str) -> Sequence[Any]:
    """A list."""
    if isinstance(raw, str) or not isinstance(raw, Sequence):
        raise InputError(f"bad value {raw!r}"[:200], where=where, allowed="a list")
    return raw


def mapping_of(raw: object, where: str, names: str = "names to values") -> Mapping[Any, Any]:
    """A mapping."""
    if not isinstance(raw, Mapping):
        raise InputError(f"bad value {raw!r}"[:200], where=where, allowed=f"a mapping of {names}")
    return raw


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return ", ".join(names[:MOST_SHOWN]) + more


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _without_default(kind: Any) -> list[str]:
    missing = dataclasses.MISSING
    return [f.name for f in dataclasses.fields(kind) if f.default is missing and f.default_factory is missing]


def _number(text: str) -> str | float:
    """YAML 1.1 reads 9e11 as text, because the exponent has no sign; other text stays."""
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def _key(raw: Any, kind: Any, where: str) -> Any:
    """A key of a mapping; in a file "all_reduce | 8 | 1" stands for ("all_reduce", 8, 1)."""
    kinds = typing.get_args(kind)
    if typing.get_origin(kind) is tuple and isinstance(raw, str):
        parts = raw.split(SEPARATOR, len(kinds) - 1)
        if len(parts) != len(kinds):
            raise InputError(f"key {raw!r}", where=where, allowed=SEPARATOR.join(WORDS[one.__name__] for one in kinds))
        raw = tuple(int(text) if text.isdecimal() and kinds[at] is int else text for at, text in enumerate(parts))
    return _leaf(raw, kind, where)


def _text(key: object) -> str:
    return SEPARATOR.join(map(str, key)) if isinstance(key, tuple) else str(key)


def _leaf(value: Any, kind: Any, where: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"bad value {value!r}", where=where, allowed=_expected(str(error))) from None


def _expected(message: str) -> str:
    """What a message of msgspec expects, such as "a number above 0"."""
    result = EXPECTED.match(message)
    if result is None:
        return message
    kind, sign, limit = result.groups()
    name = WORDS.get(kind, kind)
    return f"{name} {LIMITS[sign].format(float(limit))}" if sign else name
