"""Files of constants (conf/analytic/*.yaml): one reader for all of them."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from gnnperf.core import InputError
from gnnperf.hardware import conf_dir, read_yaml, section

ConstantsT = TypeVar("ConstantsT")


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
        return section(kind, raw, "", complete=True)
    except InputError as error:
        place = error.where.removeprefix(".")
        raise InputError(error.what, where=f"{where}, {place}" if place else where, allowed=error.allowed) from None


def rounded(value: Any, digits: int) -> Any:
    """Plain values with numbers to so many significant digits."""
    if isinstance(value, Mapping):
        return {key: rounded(item, digits) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item, digits) for item in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value
