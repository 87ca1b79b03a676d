"""Ranges of numbers in files that others made, and the check of such a file's content against a type.

A range is part of a field's type, so that the class which owns the field states it. NaN lies in no range.
"""

import warnings
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from gnnperf.core.errors import InputError

CheckedT = TypeVar("CheckedT")

Count = Annotated[int, Meta(ge=1)]
AboveZero = Annotated[float, Meta(gt=0.0)]
FromZero = Annotated[float, Meta(ge=0.0)]
FromOne = Annotated[float, Meta(ge=1.0)]
ShareAboveZero = Annotated[float, Meta(gt=0.0, le=1.0)]
NotNegative = Annotated[float, Meta(ge=0.0, le=1e12)]  # of us: twelve days
Unbounded = Annotated[float, Meta(ge=0.0)]  # infinity included
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
LogLow = Annotated[float, Meta(le=50.0)]  # the end of an interval of ratios; infinite: nothing bounds it
LogHigh = Annotated[float, Meta(ge=-50.0)]


def checked(content: Any, kind: type[CheckedT]) -> CheckedT:
    """Plain values as a dataclass `kind`, not converted; refuses the first field of another type or range by name."""
    try:
        with warnings.catch_warnings(action="ignore"):  # a tensor warns where it is taken for a mapping
            return msgspec.convert(content, kind)
    except (msgspec.ValidationError, AttributeError, TypeError, RuntimeError) as error:
        raise InputError(str(error)) from error


def checked_json(content: Any, field: str, max_bytes: int = 2**22) -> dict[str, Any]:
    """Plain values as JSON has them, null for NaN and infinity; refuses others, and more than `max_bytes`."""
    try:
        text = msgspec.json.encode(content)
        if len(text) <= max_bytes:
            return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise InputError(str(error), where=field) from error
    raise InputError("too large", where=field, allowed=f"{max_bytes:,} bytes")
