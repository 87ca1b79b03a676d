"""Python lists of one field -> one column: integers, floats, nanoseconds, categories."""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from decimal import Decimal
from math import prod
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from gnnperf.core import LAUNCH_COLUMNS, schema
from gnnperf.trace.limits import MAX_AXES, MAX_ELEMENTS, MAX_ID, MAX_VALUE_BYTES

# The inputs of an op as a file lists them -> JSON texts that hold numbers and names of dtypes only.
#
# column         kept of each argument                                      else
# input_dims     the shape of a tensor that can be, or a list of shapes     [], unknown
# input_types    Scalar, TensorList, ... and names of dtypes                "", unknown
# input_values   numbers, True, False, None, and lists of them              "", unknown
#
# Other texts may be anything that a program passes to an op: paths, names, addresses.

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
    """The compact text of one list of JSON (empty: not stated), and whether it is as the file has it."""
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
    return argument if isinstance(argument, str) and DTYPE.fullmatch(argument) else ""


def _value(argument: Any) -> Any:
    if isinstance(argument, bool) or (isinstance(argument, int) and abs(argument) < 10**18):
        return argument
    return argument if isinstance(argument, str) and VALUE.fullmatch(argument) else ""


_KEEP = {"input_dims": _shape, "input_types": _dtype, "input_values": _value}


LAUNCH_DTYPES = {column.name: column.dtype for column in LAUNCH_COLUMNS}
LARGEST_US = MAX_ID // 1000  # the year 2116
MISSING_NS = -MAX_ID  # a time that is not stated; far from every real one, and differences to it still fit
DIGITS = re.compile("[0-9]+")
EXTENT = re.compile(rb"\[\s*\d{1,10}(?:\s*,\s*\d{1,10}){0,2}\s*\]")
COUNT = re.compile(rb"\d{1,9}(?:\.\d{0,9})?")


def sorted_rows(first: np.ndarray, then: Callable[[np.ndarray], Sequence[np.ndarray]]) -> np.ndarray:
    """[n] rows in order of `first`; equal ones by the keys that `then` gives of rows, the last key before others.

    What `np.lexsort` gives of all keys. Times rarely are equal, so few rows have to be sorted by more than one key.
    """
    order = np.argsort(first, kind="stable")
    tied = first[order[1:]] == first[order[:-1]]
    places = np.flatnonzero(np.r_[tied, False] | np.r_[False, tied])
    rows = order[places]
    order[places] = rows[np.lexsort((*then(rows), first[rows]))]
    return order


def int_column(values: list[Any], below: int = MAX_ID) -> np.ndarray:
    """[n] int64; None and what is no identifier (negative, or an unsigned "minus one") are -1."""
    if values.count(-1) == len(values):
        return np.full(len(values), -1, dtype=np.int64)
    try:
        array = np.array(values, dtype=np.int64)
    except (OverflowError, ValueError, TypeError):
        array = np.array([v if isinstance(v, int) and -1 <= v < below else -1 for v in values], dtype=np.int64)
    return identifiers(array, below)


def identifiers(array: np.ndarray, below: int = MAX_ID) -> np.ndarray:
    """The same [n] with -1 in place of what is no identifier."""
    return np.where((array >= 0) & (array < below), array, -1)


def float_column(values: list[Any]) -> np.ndarray:
    """[n] float64; None and what is no size are NaN."""
    return sizes(np.array(values, dtype=np.float64))


def sizes(array: np.ndarray) -> np.ndarray:
    """The same [n] with NaN in place of what is no size."""
    return np.where((array >= 0) & (array <= MAX_ELEMENTS), array, np.nan)


def ns_column(values: list[Any]) -> np.ndarray:
    """[n] int64 ns from microseconds (int, float or Decimal), to the nearest ns; None and absurd times are MISSING_NS.

    Whole microseconds and their fraction are converted apart: their sum in ns does not fit into a float64.
    """
    if Decimal in set(map(type, values)):
        return np.array([_decimal_ns(v) for v in values], dtype=np.int64)
    try:
        array = np.array(values, dtype=np.float64)  # None is NaN
    except OverflowError:  # a whole number beyond every float64
        return ns_column([v if v is None or abs(v) <= LARGEST_US else None for v in values])
    missing = ~(np.abs(array) <= LARGEST_US)  # NaN, too
    array = np.where(missing, 0.0, array)
    whole = np.trunc(array)
    ns = whole.astype(np.int64) * 1000 + np.rint((array - whole) * 1000.0).astype(np.int64)
    return np.where(missing, MISSING_NS, ns)


def _decimal_ns(value: Decimal | float | None) -> int:
    if value is None or not (exact := Decimal(value)).is_finite() or not -LARGEST_US <= exact <= LARGEST_US:
        return MISSING_NS
    return round(exact * 1000)


def innermost(before: np.ndarray, contain: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    """[n] the innermost event around each of n sorted events, -1 none, by pointer jumping.

    An event that does not contain a later one hands over to its own candidate: all events between the two end before
    what the first one must contain, hence too early for the later one as well. The distance doubles each round.

    Args:
        before: [n] the nearest earlier event that may contain each, -1 none.
        contain: whether events [m] contain others [m], by their numbers.
    """
    result = before.copy()
    active = np.flatnonzero(result >= 0)
    while len(active):
        active = active[~contain(result[active], active)]
        result[active] = result[result[active]]
        active = active[result[active] >= 0]
    return result


class Codes(dict[Any, int]):
    """Numbers the values it is requested in order of first appearance; None is -1."""

    def __init__(self) -> None:
        super().__init__({None: -1})

    def __missing__(self, value: Any) -> int:
        self[value] = code = len(self) - 1
        return code

    def of(self, values: Sequence[Hashable]) -> np.ndarray:
        """[n] int32 codes."""
        return np.fromiter(map(self.__getitem__, values), np.int32, len(values))

    def uniques(self) -> list[Any]:
        """The value of each code."""
        return list(self)[1:]


def coded(values: Sequence[Hashable]) -> tuple[np.ndarray, list[Any]]:
    """Codes [n] int32 and the distinct values in order of first appearance; None is -1 and no value."""
    codes = Codes()
    return codes.of(values), codes.uniques()


def json_column(codes: np.ndarray, texts: list[bytes], column: str, dropped: Counter[str]) -> pd.Categorical:
    """A categorical of compact JSON from codes [num_events] (-1 null) of undecoded texts; what cannot be used is null.

    Equal lists written with other white space become one category. What is left out is counted in `dropped` by reason.
    """
    retained = [input_text(column, text) for text in texts]
    counts = np.bincount(codes + 1, minlength=len(texts) + 1)[1:]
    if lost := sum(int(n) for n, (_, is_whole) in zip(counts, retained, strict=True) if not is_whole):
        dropped[LOST[column]] += lost
    compact_codes, compact = coded([text for text, _ in retained])
    return schema.categorical(np.append(compact_codes, -1)[codes], compact)


def launch_column(codes: np.ndarray, texts: list[bytes], name: str) -> Any:
    """A column of schema.LAUNCH_COLUMNS from codes [num_events] of undecoded texts; what cannot be is unknown."""
    dtype = LAUNCH_DTYPES[name]
    if dtype == "category":
        own, known = coded([_extent(text) for text in texts])
        return schema.categorical(np.append(own, -1)[codes], known)
    return np.array([*map(_count, texts), -1], dtype=dtype)[codes]


def _extent(raw: bytes) -> str | None:
    """A kernel's extent per axis as compact JSON."""
    if not EXTENT.fullmatch(raw):
        return None
    return "[" + ",".join(str(int(edge)) for edge in raw.decode().strip("[] ").split(",")) + "]"


def _count(raw: bytes) -> int:
    return round(float(raw)) if COUNT.fullmatch(raw) else -1


def lane_column(values: list[Any]) -> np.ndarray:
    """[n] int64 thread or stream numbers; where they are text, each distinct spelling is converted once."""
    try:
        array = np.array(values, dtype=np.int64)
        if len(array) == 0 or (array.min() >= -(2**31) and array.max() < MAX_ID):
            return array
    except (OverflowError, ValueError, TypeError):
        pass
    codes, uniques = coded(values)
    return np.array([*map(_lane, uniques), -1], dtype=np.int64)[codes]


def threads(lanes: np.ndarray) -> np.ndarray:
    """[n] int64 host threads, never negative: 2022 and 2023 files wrap pthread ids into int32."""
    return np.where(lanes < 0, lanes & 0xFFFFFFFF, lanes)


def _lane(value: Any) -> int:
    """The number in it ("stream 7", "4093687616"), else a number made of its letters that no thread has."""
    if isinstance(value, int):
        return value if -(2**31) <= value < MAX_ID else -1
    text = str(value)[:64]
    digits = "".join(DIGITS.findall(text))[:18]
    return int(digits) if digits else MAX_ID + int.from_bytes(text.encode()[:7], "big")
