"""Files of constants (conf/analytic/*.yaml): one reader for all of them."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from gnnperf.core import InputError
from gnnperf.hardware import conf_dir, read_yaml

ConstantsT = TypeVar("ConstantsT")
AboveZero = Annotated[float, Meta(gt=0.0)]
FromZero = Annotated[float, Meta(ge=0.0)]
FromOne = Annotated[float, Meta(ge=1.0)]
SEPARATOR = " | "  # between the parts of a key
EXPECTED = re.compile(r"Expected `(\w+)`(?: ([<>]=?) (\S+))?")  # begins messages of msgspec
NAMES = {"float": "a number", "int": "a whole number", "str": "a text", "array": "a list"}
LIMITS = {">": "above {:g}", ">=": "from {:g} up", "<": "below {:g}", "<=": "up to {:g}"}


def read_constants(path: Path, kind: type[ConstantsT]) -> ConstantsT:
    """The constants in a YAML file.

    Raises:
        InputError: not readable, an unknown or missing key, or a value of another type or range.
    """
    return constants_from(read_yaml(path), kind, str(path))


def shipped(name: str, kind: type[ConstantsT]) -> Callable[[], ConstantsT]:
    """What gives the constants of a file of conf/analytic, which is read at the first call."""
    return cache(lambda: read_constants(conf_dir("analytic") / name, kind))


def constants_from(raw: Any, kind: type[ConstantsT], where: str) -> ConstantsT:
    """The constants in plain values. All fields are required, also those with a default.

    Raises InputError: names the first key that is unknown or missing, or whose value has another type or range.
    """
    try:
        return _constants(raw, kind, "")
    except InputError as error:
        place = error.where.removeprefix(".")
        raise InputError(error.what, where=f"{where}, {place}" if place else where, allowed=error.allowed) from None


def require_names(values: Mapping[str, object], names: Collection[str], where: str) -> None:
    """Refuse a mapping with other names. Raises InputError: a name is missing or unknown."""
    if odd := sorted(map(str, set(values) ^ set(names))):
        raise InputError(f"missing or unknown: {', '.join(odd)}", where=where, allowed=", ".join(map(str, names)))


def rounded(value: Any, digits: int) -> Any:
    """Plain values with numbers to so many significant digits."""
    if isinstance(value, Mapping):
        return {key: rounded(item, digits) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item, digits) for item in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def _constants(raw: Any, kind: type[ConstantsT], key: str) -> ConstantsT:
    hints = _hints(cast(Any, kind))
    require_names(_mapping(raw, key), hints, key)
    values = {name: _value(raw[name], hint, f"{key}.{name}") for name, hint in hints.items()}
    try:
        return kind(**values)
    except InputError as error:  # of what is checked where constants are made
        raise InputError(error.what, where=f"{key}.{error.where}", allowed=error.allowed) from None


def _value(raw: Any, kind: Any, key: str) -> Any:
    if is_dataclass(kind):
        return _constants(raw, cast(type, kind), key)
    inner, arguments = get_origin(kind), get_args(kind)
    if inner is UnionType:  # a type or None
        return None if raw is None else _value(raw, arguments[0], key)
    if inner is Annotated and get_origin(arguments[0]) is tuple:  # with a range of its length
        _leaf(raw, Annotated[(list, *arguments[1:])], key)  # type: ignore[valid-type]
        return _value(raw, arguments[0], key)
    if inner in (dict, Mapping):
        name_kind, item_kind = arguments
        return {_name(name, name_kind, key): _value(item, item_kind, f"{key}.{_text(name)}")
                for name, item in _mapping(raw, key).items()}  # fmt: skip
    if inner is tuple and arguments[-1] is Ellipsis and isinstance(raw, list):
        return tuple(_value(item, arguments[0], f"{key}[{index}]") for index, item in enumerate(raw))
    return _leaf(raw, kind, key)


def _name(raw: Any, kind: Any, key: str) -> Any:
    """A key of a mapping; in a file "all_reduce | 8 | 1" stands for ("all_reduce", 8, 1)."""
    kinds = get_args(kind)
    if get_origin(kind) is tuple and isinstance(raw, str):
        parts = raw.split(SEPARATOR, len(kinds) - 1)
        if len(parts) != len(kinds):
            raise InputError(f"key {raw!r}", where=key, allowed=SEPARATOR.join(NAMES[one.__name__] for one in kinds))
        raw = tuple(int(text) if text.isdecimal() and kinds[at] is int else text for at, text in enumerate(parts))
    return _leaf(raw, kind, key)


def _leaf(raw: Any, kind: Any, key: str) -> Any:
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"value {raw!r}", where=key, allowed=_expected(str(error))) from None


def _expected(message: str) -> str:
    """What a message of msgspec expects, such as "a number above 0"."""
    result = EXPECTED.match(message)
    if result is None:
        return message
    kind, sign, limit = result.groups()
    name = NAMES.get(kind, kind)
    return f"{name} {LIMITS[sign].format(float(limit))}" if sign else name


def _mapping(raw: Any, key: str) -> dict[Any, Any]:
    if not isinstance(raw, dict):
        raise InputError("is not a mapping of names to values", where=key)
    return raw


def _text(key: object) -> str:
    return SEPARATOR.join(map(str, key)) if isinstance(key, tuple) else str(key)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)
