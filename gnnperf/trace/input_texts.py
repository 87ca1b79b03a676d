"""The inputs of an op as a file lists them -> JSON texts that hold numbers and names of dtypes only.

column         kept of each argument                                      else
input_dims     the shape of a tensor that can be, or a list of shapes     [], unknown
input_types    Scalar, TensorList, ... and names of dtypes                "", unknown
input_values   numbers, True, False, None, and lists of them              "", unknown

Other texts may be anything that a program passes to an op: paths, names, addresses.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod
from typing import Any

import msgspec

from gnnperf.trace.limits import MAX_AXES, MAX_ELEMENTS, MAX_VALUE_BYTES

LOST = {
    "input_dims": "lists of shapes that no tensors have, or too long,",
    "input_types": "lists of dtypes that are no lists, or too long,",
    "input_values": "lists of values that are no lists, or too long,",
}
TOO_DEEP = b"[" * 9  # shapes are lists of lists of numbers
_DTYPE = (
    r"(?:(?:(?:c10|at)::)?(?:Half|BFloat16|Float[48]_e\dm\d[a-z0-9_]{0,6}|complex<(?:float|double|(?:c10::)?Half)>"
    r"|q?u?int\d{1,2}(?:x\d)?|[Bb]its\w{1,4})"
    r"|(?:signed |unsigned )?(?:__int64|char|short|int|long)(?: int| long){0,2}|float|double|bool"
    r"|Scalar|ScalarList|TensorList|GenericList|Tensor|Bool|Int|Long|Short|Char|Byte|Float|Double|Device|None)"
)
DTYPE = re.compile(_DTYPE, re.ASCII)
_NUMBER = r"[-+]?(?:\d{1,19}+(?!\d)(?:\.\d{0,20})?+(?:[eE][-+]?\d{1,3})?+|inf|nan)"
_VALUE = rf"(?:[\[\](), ]|{_NUMBER}|True|False|None|true|false)*+"
VALUE = re.compile(_VALUE, re.ASCII)
_SMALL = r"\[[0-9, ]{0,15}+\]"  # a shape of less than 10**15 elements
_SHAPES = rf"(?:{_SMALL}|\[{_SMALL}(?:, ?{_SMALL})*+\])"
PLAIN = {  # lists that need no second look
    "input_dims": re.compile(rf"\[{_SHAPES}(?:, ?{_SHAPES})*+\]".encode()),
    "input_types": re.compile(rf'\["{_DTYPE}?"(?:, ?"{_DTYPE}?")*+\]'.encode()),
    "input_values": re.compile(rf'\["{_VALUE}"(?:, ?"{_VALUE}")*+\]'.encode()),
}


def input_text(column: str, raw: bytes) -> tuple[str | None, bool]:
    """The compact text of one list, and whether it is as the file has it.

    Args:
        column: input_dims, input_types or input_values.
        raw: JSON; empty: not stated.
    """
    if not raw or raw in (b"null", b"[]"):
        return None, True
    if len(raw) > MAX_VALUE_BYTES or TOO_DEEP in raw:
        return None, False
    if PLAIN[column].fullmatch(raw):
        return msgspec.json.format(raw, indent=-1).decode(), True
    try:
        arguments = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None, False
    if not isinstance(arguments, list):
        return None, False
    retained = [_KEEP[column](argument) for argument in arguments]
    is_whole = column != "input_dims" or retained == arguments
    return msgspec.json.encode(retained).decode() if any(retained) or is_whole else None, is_whole


def _shape(argument: Any) -> list[Any]:
    is_one = _is_shape(argument) or (isinstance(argument, list) and all(map(_is_shape, argument)))
    return argument if is_one else []


def _is_shape(argument: Any) -> bool:
    """Whether it is the shape of a tensor there can be."""
    if not isinstance(argument, list) or len(argument) > MAX_AXES or any(type(edge) is not int for edge in argument):
        return False
    return min(argument, default=0) >= 0 and prod(filter(None, argument)) <= MAX_ELEMENTS


def _dtype(argument: Any) -> Any:
    if isinstance(argument, list):
        return [_dtype(one) for one in argument]
    return argument if isinstance(argument, str) and _is_dtype(argument) else ""


@lru_cache(maxsize=1 << 10)
def _is_dtype(text: str) -> bool:
    return DTYPE.fullmatch(text) is not None


def _value(argument: Any) -> Any:
    if isinstance(argument, bool) or (isinstance(argument, int) and abs(argument) < 10**18):
        return argument
    return argument if isinstance(argument, str) and VALUE.fullmatch(argument) else ""


_KEEP = {"input_dims": _shape, "input_types": _dtype, "input_values": _value}
