"""Kineto events straight from the bytes to arrays, compiled: for files that take longer to decode than numba to load.

A stretch of text is read once, without objects per event, while other threads read others. Texts (names, shapes, grids)
are numbered by their bytes. The scanner reads what profilers usually write. At anything else (another type, an escaped
key, a time with a fraction of a nanosecond, text that is no JSON) it gives up, and msgspec decodes the stretch.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numba
import numpy as np
import pandas as pd
from msgspec import Raw

from gnnperf.core import EventKind
from gnnperf.trace.assembly import KIND_CODES, KIND_OF_WORD, LAST_OP_CODE, MTIA, Coded, Stretch, with_mtia
from gnnperf.trace.columns import MISSING_NS, lane_column
from gnnperf.trace.kineto import (
    ARG_NAMES,
    FLOW,
    INPUTS,
    INT_ARGS,
    KINDS,
    LAUNCH,
    METADATA_KEY,
    RAW_ARGS,
    SIZE_ARGS,
    CommArgs,
    event_type,
)  # fmt: skip
from gnnperf.trace.limits import MAX_ELEMENTS, MAX_ID

# Rows of the result: numbers (-1 unknown), then codes of texts.
TIMES, LANES, SPAN = ("ts", "dur"), ("pid", "tid"), ("args_begin", "args_end")  # of the arguments of a collective
FIELDS = ("cat", "name", *TIMES, *LANES, *SPAN, *INT_ARGS, *SIZE_ARGS, *RAW_ARGS)
WORDS = tuple(word for word in KINDS if word)
IN_EVENT = ("ph", "args", "cat", "name", *TIMES, *LANES)
IN_ARGS = (*INT_ARGS, *SIZE_ARGS, *RAW_ARGS)
_KEYS = [(0, name, name) for name in IN_EVENT] + [(1, ARG_NAMES.get(name, name), name) for name in IN_ARGS]
_KEYS += [(1, METADATA_KEY.decode().strip('"'), "args_begin")]
_KEYS += [(2, word, "") for word in (*WORDS, FLOW)]
PHASE, ARGS = len(FIELDS), len(FIELDS) + 1
_FIELD_OF = {"ph": PHASE, "args": ARGS, **{name: at for at, name in enumerate(FIELDS)}}
FIRST_INT, FIRST_RAW = FIELDS.index(INT_ARGS[0]), FIELDS.index(RAW_ARGS[0])
CAT, NAME, TS, DUR, PID, TID, BEGIN, END = range(8)
TEXT_LANE = -(2**40)  # a lane that is text is this minus its code
MIN_EVENT_BYTES = 48  # of an event that is read, on average over a stretch
SLOTS = 2**17  # of the hash table of texts
_BUCKETS = 4096


def _bucket(text: np.ndarray, begin: int, end: int) -> int:
    """A number of a short text by its length and four of its letters."""
    size = end - begin
    if size == 0:
        return 0
    first, middle, last = np.int64(text[begin]), np.int64(text[begin + size // 2]), np.int64(text[end - 1])
    third = np.int64(text[begin + size // 3])
    return (size * 613 + first * 131 + middle * 31 + last * 7 + third * 17) & 4095  # type: ignore[return-value]


bucket = numba.njit(cache=True, nogil=True)(_bucket)


def _key_tables() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Buckets -> key, then of each key: text, ends of its text, (level, field), and the next key of its bucket."""
    texts = [name.encode() for _, name, _ in _KEYS]
    joined = np.frombuffer(b"".join(texts), dtype=np.uint8)
    ends = np.cumsum([0, *map(len, texts)])
    heads = np.full(_BUCKETS, -1, dtype=np.int64)
    about = np.empty((len(_KEYS), 3), dtype=np.int64)
    for at, (level, _, field) in enumerate(_KEYS):
        one = _bucket(joined, int(ends[at]), int(ends[at + 1]))
        about[at] = level, _FIELD_OF.get(field, at), heads[one]
        heads[one] = at
    return heads, joined.copy(), ends.astype(np.int64), about


KEY_TABLES = _key_tables()
MTIA_WORD = WORDS.index(MTIA)
FIRST_WORD = len(_KEYS) - len(WORDS) - 1


@numba.njit(cache=True, nogil=True)
def key_of(text, begin, end, level, heads, joined, ends, about):  # type: ignore[no-untyped-def]
    """Number of the key of a level; -1 none."""
    at = heads[bucket(text, begin, end)]
    while at >= 0:
        start = ends[at]
        if about[at, 0] == level and ends[at + 1] - start == end - begin:
            i = 0
            while i < end - begin and joined[start + i] == text[begin + i]:
                i += 1
            if i == end - begin:
                return at
        at = about[at, 2]
    return -1


@numba.njit(cache=True, nogil=True)
def blank(text, i):  # type: ignore[no-untyped-def]
    """The next position that is no white space."""
    while text[i] == 32 or text[i] == 10 or text[i] == 13 or text[i] == 9:
        i += 1
    return i


@numba.njit(cache=True, nogil=True)
def string_end(text, i):  # type: ignore[no-untyped-def]
    """Position of the closing quote of a string that begins before i; -1 no JSON."""
    while text[i] != 34:
        if text[i] < 32:
            return -1
        if text[i] == 92:
            i += 1
            c = text[i]
            if not (c == 34 or c == 92 or c == 47 or c == 98 or c == 102 or c == 110 or c == 114 or c == 116
                    or c == 117):  # fmt: skip
                return -1
        i += 1
    return i


@numba.njit(cache=True, nogil=True)
def digits_end(text, i):  # type: ignore[no-untyped-def]
    """Position after the digits; -1 none."""
    start = i
    while 48 <= text[i] <= 57:
        i += 1
    return i if i > start else -1


@numba.njit(cache=True, nogil=True)
def scalar_end(text, i):  # type: ignore[no-untyped-def]
    """Position after a string, number or word; -1 no JSON."""
    c = text[i]
    if c == 34:
        i = string_end(text, i + 1)
        return i + 1 if i >= 0 else -1
    if c > 57:  # true, null, false
        for word in ((116, 114, 117, 101), (110, 117, 108, 108), (102, 97, 108, 115)):
            if c == word[0] and text[i + 1] == word[1] and text[i + 2] == word[2] and text[i + 3] == word[3]:
                return i + 4 if c != 102 else i + 5 if text[i + 4] == 101 else -1
        return -1
    if c == 45:
        i += 1
    begin = i
    i = digits_end(text, i)
    if i < 0 or (text[begin] == 48 and i > begin + 1):
        return -1
    if text[i] == 46:
        i = digits_end(text, i + 1)
        if i < 0:
            return -1
    if text[i] == 101 or text[i] == 69:
        i += 1
        if text[i] == 43 or text[i] == 45:
            i += 1
        return digits_end(text, i)
    return i


@numba.njit(cache=True, nogil=True)
def value_end(text, i):  # type: ignore[no-untyped-def]
    """Position after a value of any kind; -1 no JSON, or too deep."""
    depth, kinds = 0, np.uint64(0)  # one bit per open bracket: 1 an object
    needs_key = False
    while True:
        i = blank(text, i)
        if needs_key:
            if text[i] != 34:
                return -1
            i = string_end(text, i + 1)
            if i < 0:
                return -1
            i = blank(text, i + 1)
            if text[i] != 58:
                return -1
            i = blank(text, i + 1)
            needs_key = False
        c = text[i]
        if c == 123 or c == 91:
            i = blank(text, i + 1)
            if text[i] == c + 2:
                i += 1
            else:
                depth += 1
                if depth > 60:
                    return -1
                kinds = (kinds << np.uint64(1)) | np.uint64(c == 123)
                needs_key = c == 123
                continue
        else:
            i = scalar_end(text, i)
            if i < 0:
                return -1
        while depth > 0:
            i = blank(text, i)
            is_object = kinds & np.uint64(1) == np.uint64(1)
            if text[i] == 44:
                i += 1
                needs_key = is_object
                break
            if text[i] != (125 if is_object else 93):
                return -1
            i += 1
            depth -= 1
            kinds >>= np.uint64(1)
        else:
            return i


@numba.njit(cache=True, nogil=True)
def whole(text, i):  # type: ignore[no-untyped-def]
    """A whole number and the position after it; -1 as position: another kind of value."""
    sign = text[i] == 45
    i += sign
    begin, value = i, np.int64(0)
    while 48 <= text[i] <= 57:
        if i - begin < 19:
            value = value * 10 + (np.int64(text[i]) - 48)
        i += 1
    count = i - begin
    if count == 0 or count > 20 or text[i] == 46 or text[i] == 101 or text[i] == 69:
        return value, -1
    if text[begin] == 48 and count > 1:
        return value, -1
    if count > 19:
        return np.int64(-1), i
    return (-value if sign else value), i


@numba.njit(cache=True, nogil=True)
def nanoseconds(text, i):  # type: ignore[no-untyped-def]
    """A time in us as ns and the position after it; -1 as position: not one of whole ns."""
    sign = text[i] == 45
    i += sign
    begin, value = i, np.int64(0)
    while 48 <= text[i] <= 57 and i - begin < 16:
        value = value * 10 + (np.int64(text[i]) - 48)
        i += 1
    count = i - begin
    if count == 0 or value > 4611686018427386 or 48 <= text[i] <= 57 or (text[begin] == 48 and count > 1):
        return value, -1
    value *= 1000
    if text[i] == 46:
        i, unit = i + 1, np.int64(100)
        begin = i
        while 48 <= text[i] <= 57:
            if unit == 0 and text[i] != 48:
                return value, -1
            value += unit * (np.int64(text[i]) - 48)
            unit //= 10
            i += 1
        if i == begin:
            return value, -1
    if text[i] == 101 or text[i] == 69:
        return value, -1
    return (-value if sign else value), i


@numba.njit(cache=True, nogil=True)
def code_of(text, begin, end, slots, spans, count):  # type: ignore[no-untyped-def]
    """The code of a text, that of its first appearance, and how many there are."""
    value = np.uint64(end - begin)
    for i in range(begin, end):
        value = (value << np.uint64(5) | value >> np.uint64(59)) ^ np.uint64(text[i])
    value *= np.uint64(11400714819323198485)  # which spreads the bits (Knuth)
    at = np.int64(value >> np.uint64(47))
    while slots[at] >= 0:
        code = slots[at]
        start = spans[code, 0]
        if spans[code, 1] - start == end - begin:
            i = 0
            while i < end - begin and text[start + i] == text[begin + i]:
                i += 1
            if i == end - begin:
                return code, count
        at = (at + 1) & (SLOTS - 1)
    slots[at] = count
    spans[count, 0], spans[count, 1] = begin, end
    return count, count + 1


@numba.njit(cache=True, nogil=True)
def scan(text, fields, flows, spans, heads, joined, ends, about):  # type: ignore[no-untyped-def]
    """Fill fields [FIELDS, events], flows [2, flows] and spans [texts, 2]; their counts, or -1: given up."""
    slots = np.full(SLOTS, -1, dtype=np.int32)
    row, num_flows, num_texts, i = 0, 0, 0, 0
    raw = np.empty((len(FIELDS), 2), dtype=np.int64)
    while True:
        i = blank(text, i)
        event = i
        if text[i] != 123 or row + num_flows >= fields.shape[1] or num_texts + len(FIELDS) > spans.shape[0]:
            return -1, 0, 0
        fields[:, row] = -1
        fields[TS, row], fields[DUR, row] = MISSING_NS, MISSING_NS
        raw[:, 0] = -1
        is_complete, level, args_begin = False, 0, np.int64(0)
        i = blank(text, i + 1)
        while True:
            if text[i] == 125:  # an object ends: the arguments or the event
                i += 1
                if level == 0:
                    break
                level = 0
                fields[END, row] = i
            else:
                if text[i] != 34:
                    return -1, 0, 0
                begin = i + 1
                i = begin
                while text[i] != 34:
                    if text[i] < 32 or text[i] == 92:
                        return -1, 0, 0
                    i += 1
                key = key_of(text, begin, i, level, heads, joined, ends, about)
                field = about[key, 1] if key >= 0 else np.int64(-1)
                i = blank(text, i + 1)
                if text[i] != 58:
                    return -1, 0, 0
                i = blank(text, i + 1)
                begin, is_null = i, text[i] == 110
                if field == ARGS and not is_null:
                    if text[i] != 123:
                        return -1, 0, 0
                    args_begin, level = i, 1
                    i = blank(text, i + 1)
                    if text[i] != 34 and text[i] != 125:
                        return -1, 0, 0
                    continue
                is_number = not is_null and text[i] != 34
                if TS <= field <= DUR and not is_null:
                    fields[field, row], i = nanoseconds(text, i)
                elif (PID <= field <= TID and is_number) or (FIRST_INT <= field < FIRST_RAW and not is_null):
                    fields[field, row], i = whole(text, i + (not is_number))
                    if not is_number:  # a number in quotes
                        i = i + 1 if i >= 0 and text[i] == 34 else -1
                else:
                    i = value_end(text, i)
                if i < 0:
                    return -1, 0, 0
                if field == BEGIN:
                    fields[BEGIN, row] = args_begin
                elif field == PHASE:
                    is_complete = i - begin == 3 and text[begin + 1] == 88
                elif field == CAT:
                    word = key_of(text, begin + 1, i - 1, 2, heads, joined, ends, about)
                    fields[CAT, row] = word - FIRST_WORD if word >= 0 else -1
                elif field == NAME:
                    raw[NAME, 0], raw[NAME, 1] = begin + 1, i - 1
                elif FIRST_RAW <= field < PHASE or (PID <= field <= TID and not is_number):
                    raw[field, 0], raw[field, 1] = (begin, i) if not is_null else (-1, -1)
                if (field in (PHASE, NAME) or (field == CAT and not is_null)) and text[begin] != 34:
                    return -1, 0, 0
            i = blank(text, i)  # another of the same object, or its end
            if text[i] == 44:
                i = blank(text, i + 1)
                if text[i] != 34:
                    return -1, 0, 0
            elif text[i] != 125:
                return -1, 0, 0
        if fields[CAT, row] == len(WORDS):
            flows[0, num_flows], flows[1, num_flows] = event, i
            num_flows += 1
        elif fields[CAT, row] >= 0 and is_complete:
            if raw[NAME, 0] < 0:
                return -1, 0, 0
            for field in range(len(FIELDS)):
                if raw[field, 0] >= 0:
                    code, num_texts = code_of(text, raw[field, 0], raw[field, 1], slots, spans, num_texts)
                    fields[field, row] = TEXT_LANE - code if PID <= field <= TID else code
            row += 1
        i = blank(text, i)
        if text[i] == 0:
            return row, num_flows, num_texts
        if text[i] != 44:
            return -1, 0, 0
        i += 1


_FLOW = msgspec.json.Decoder(event_type(True, False, False), strict=False)
_METADATA = msgspec.json.Decoder(CommArgs, strict=False)
_CODES = np.array([*map(KIND_OF_WORD.__getitem__, WORDS)], dtype=np.int8)


def scanned(events: bytes | Raw) -> Stretch | None:
    """The columns of a list of events in JSON; None: it holds something unusual."""
    raw = memoryview(events)
    text = np.empty(len(raw) - 1, dtype=np.uint8)
    text[:-1] = np.frombuffer(raw[1:-1], dtype=np.uint8)
    text[-1] = 0  # which ends every loop
    most = len(text) // MIN_EVENT_BYTES + 1
    fields, flows = np.empty((len(FIELDS), most), dtype=np.int64), np.empty((2, most), dtype=np.int64)
    spans = np.empty((SLOTS // 2, 2), dtype=np.int64)
    num_events, num_flows, num_texts = scan(text, fields, flows, spans, *KEY_TABLES)
    if num_events < 0:
        return None
    column = dict(zip(FIELDS, fields[:, :num_events], strict=True))
    texts = [bytes(raw[begin + 1 : end + 1]) for begin, end in spans[:num_texts].tolist()]
    try:
        return _stretch(column, texts, raw[1:], flows[:, :num_flows].T.tolist())
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _stretch(column: dict[str, np.ndarray], texts: list[bytes], raw: memoryview, flows: list[list[int]]) -> Stretch:
    codes, names = _coded(column["name"], texts)
    name: Coded = codes, [msgspec.json.decode(b'"%s"' % n) if b"\\" in n else n.decode() for n in names]
    kind = _CODES[column["cat"]]
    kind = (
        with_mtia(kind, [WORDS[word] for word in column["cat"].tolist()], name) if MTIA_WORD in column["cat"] else kind
    )
    numbers = {field: np.where(column[field] < MAX_ID, column[field], -1) for field in INT_ARGS}
    numbers |= {"start_ns": column["ts"].copy(), "duration_ns": column["dur"].copy()}
    numbers |= {field: _lanes(column[field], texts) for field in LANES}
    size = np.where(column["bytes"] < 0, column["size"], column["bytes"])
    numbers["bytes"] = np.where((size >= 0) & (size <= MAX_ELEMENTS), size, np.nan)
    is_op, is_kernel = kind <= LAST_OP_CODE, kind == KIND_CODES[EventKind.KERNEL]
    inputs = {field: _coded(np.where(is_op, column[field], -1), texts) for field in INPUTS}
    launch = np.full(len(kind), -1, dtype=np.int32)
    stated = np.stack([column[field] for field in LAUNCH])[:, is_kernel]  # [5, num_kernels]
    codes = stated[0]
    for more in stated[1:]:  # a code of all five
        codes = pd.factorize(codes * (len(texts) + 1) + more)[0]
    launch[is_kernel], first = _first_rows(codes)
    launches = [tuple(texts[code] if code >= 0 else b"" for code in one) for one in stated[:, first].T.tolist()]
    rows = np.flatnonzero(column["args_begin"] >= 0).tolist()
    ends = zip(column["args_begin"][rows].tolist(), column["args_end"][rows].tolist(), strict=True)
    metadata = [(row, _METADATA.decode(raw[begin:end])) for row, (begin, end) in zip(rows, ends, strict=True)]
    arrows: list[Any] = [_FLOW.decode(raw[begin:end]) for begin, end in flows]
    return Stretch(
        kind, numbers, name, inputs, (launch, launches), [(row, args) for row, args in metadata if args.collective],
        [(e.ph, e.id, e.tid, e.ts) for e in arrows],
    )  # fmt: skip


def _first_rows(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes of values [n] in order of first appearance, and the row of the first of each."""
    codes, distinct = pd.factorize(values)
    first = np.empty(len(distinct), dtype=np.int64)
    first[codes[::-1]] = np.arange(len(values))[::-1]
    return codes, first


def _coded(column: np.ndarray, texts: list[bytes]) -> Coded:
    """The column's own codes of its texts."""
    codes = np.full(len(column), -1, dtype=np.int32)
    known = column >= 0
    codes[known], distinct = pd.factorize(column[known])
    return codes, [texts[code] for code in distinct.tolist()]


def _lanes(column: np.ndarray, texts: list[bytes]) -> np.ndarray:
    """[n] thread or stream numbers; those that are text by what `lane_column` makes of it."""
    is_text = column <= TEXT_LANE
    result = np.where((column >= -(2**31)) & (column < MAX_ID), column, -1)
    if is_text.any():
        codes, distinct = pd.factorize(TEXT_LANE - column[is_text])
        result[is_text] = lane_column([msgspec.json.decode(texts[code]) for code in distinct.tolist()])[codes]
    return result
