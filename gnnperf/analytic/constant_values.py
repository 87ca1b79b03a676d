"""Values of constants' YAML files: what is there is checked, and refused with its place."""

from __future__ import annotations

from collections.abc import Sequence

from gnnperf.core.errors import InputError

ABOVE_ZERO = "a number above 0"


def mapping(raw: object, where: str) -> dict[str, object]:
    """Names and values.

    Raises:
        InputError: it is none.
    """
    if not isinstance(raw, dict) or not all(isinstance(key, str) for key in raw):
        raise InputError("is not a mapping of names to values", where=where)
    return raw


def exactly(raw: object, needed: Sequence[str], where: str) -> dict[str, object]:
    """The same with these names and no others.

    Raises:
        InputError: one is missing or unknown.
    """
    found = mapping(raw, where)
    if odd := sorted(set(found) ^ set(needed)):
        raise InputError(f"missing or unknown: {', '.join(odd)}", where=where, allowed=", ".join(needed))
    return found


def positive(raw: object, where: str) -> float:
    """A number above 0.

    Raises:
        InputError: it is none.
    """
    found = not_negative(raw, where, ABOVE_ZERO)
    if found == 0:
        raise InputError(f"value {raw!r}", where=where, allowed=ABOVE_ZERO)
    return found


def not_negative(raw: object, where: str, allowed: str = "a number from 0 up") -> float:
    """A number from 0 up.

    Raises:
        InputError: it is none.
    """
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not 0 <= raw < float("inf"):
        raise InputError(f"value {raw!r}", where=where, allowed=allowed)
    return float(raw)
