"""The events of a long Kineto text -> arrays, in one pass over its bytes that numba compiles.

msgspec makes a struct of each event, whose fields become columns one by one; here no event is an object. A stretch with
anything that profilers rarely write (numbers as texts or with exponents, a key twice, a thread that is a text) is given
up, and `kineto.Reader` decodes it: both give the same columns. Values that are skipped need not be sound JSON.

    {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1.5, "args": {"stream": 7, "grid": [1, 1, 1]}}
         |           |              |           |                        |           |
    rows[i]: 88   its kind   number in names   1500                      7     number in texts
"""

from collections.abc import Callable
from itertools import product
from typing import Any, get_args

import msgspec
import numba
import numpy as np
import pandas as pd

from gnnperf.core import EventKind
from gnnperf.trace import kineto
from gnnperf.trace.columns import LARGEST_US, MISSING_NS, Codes, identifiers, sizes
from gnnperf.trace.limits import MAX_ID
from gnnperf.trace.trace_sources import Text
from gnnperf.trace.words import FULL, SLACK_BYTES, Words, eight, find, number_of

# A row of numbers per event; each key of the text has a column.

TOP = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "args")
PH, CAT, NAME, PID, TID, TS, DUR, ID, ARGS = range(9)
_FIELDS = {f.name: f.encode_name for f in msgspec.structs.fields(kineto.Args)}
_TEXTS, _SIZES = list(kineto.NO_VIEWS), ["bytes", "size"]
_NUMBERS = [name for name in _FIELDS if name not in (*_TEXTS, *_SIZES)]
COLUMNS = {name: len(TOP) + at for at, name in enumerate((*_NUMBERS, *_SIZES, *_TEXTS))}
FIRST_SIZE, FIRST_TEXT, COLLECTIVE = COLUMNS[_SIZES[0]], COLUMNS[_TEXTS[0]], len(TOP) + len(COLUMNS)
KIND, BEGIN, END, WIDTH = (COLLECTIVE + at for at in range(1, 5))
_KEYS = (*TOP, *(_FIELDS[name] for name in COLUMNS), "Collective name")
CATEGORIES, NAMES, TEXTS = range(3)  # lists of words
NUM_LISTS = TEXTS + len(_TEXTS)

FLOW_KIND, UNSCANNED = -2, -3  # arrows between forward and backward ops; what has its kind in its name
_CATEGORIES = tuple(word for word in get_args(kineto.Category) if word)
_CATEGORY_TEXT = np.frombuffer("".join(_CATEGORIES).encode() + bytes(SLACK_BYTES), np.uint8)
_CATEGORY_ENDS = np.cumsum([len(word) for word in _CATEGORIES])
_KIND_CODES = {kind: code for code, kind in enumerate(EventKind)} | {None: -1}
_KINDS = np.array([_KIND_CODES[kineto.KINDS.get(word)] for word in _CATEGORIES], dtype=np.int64)
_KINDS[_CATEGORIES.index(kineto.FLOW)] = FLOW_KIND
_KINDS[_CATEGORIES.index("mtia_ccp_events")] = UNSCANNED
MIN_EVENT_BYTES = 24  # of an event that is read: its phase and a category
LONGEST_US = len(str(LARGEST_US))  # digits
MOST_WORDS = 1 << 17  # of a list; all lists then take 42 MB, and their bytes 84 MB at most

QUOTE, ESCAPE, COMMA, COLON, MINUS, POINT, ZERO, NINE = b'"\\,:-.09'
OBJECT, OBJECT_END, LIST = b"{}["
COMPLETE, OF_TRUE, OF_FALSE, OF_NULL = b"Xtfn"  # an event with a duration; first letters

# What a byte can be.
SPACE, STOPS_TEXT, IN_NUMBER, STOPS_WORD, NESTS = 1, 2, 4, 8, 16
CLASS = np.array([
    SPACE * (b in b" \t\r\n") | STOPS_TEXT * (b < 32 or b in b'"\\') | IN_NUMBER * (b in b"0123456789+-.eE")
    | STOPS_WORD * (b in b" \t\r\n,]}") | NESTS * (b in b'"[]{}') for b in range(256)
], np.uint8)  # fmt: skip

_ONES = np.int64(0x0101_0101_0101_0101)
_QUOTES, _SPACES, _ESCAPES, _TOPS = _ONES * 34, _ONES * 32, _ONES * 92, np.int64(-0x7F7F_7F7F_7F7F_7F80)

# Keys by their length, first and last byte, which no two share: multipliers that give each a place of its own.
_PLACES = 128


def _places(by: tuple[int, ...]) -> list[int]:
    return [(len(k) * by[0] + ord(k[0]) * by[1] + ord(k[-1]) * by[2]) % _PLACES for k in _KEYS]


_BY_LENGTH, _BY_FIRST, _BY_LAST = _BY = next(
    by for by in product(range(1, _PLACES), repeat=3) if len(set(_places(by))) == len(_KEYS)
)
KEY_AT = np.full(_PLACES, -1)
KEY_AT[_places(_BY)] = np.arange(len(_KEYS))
KEY_BYTES = np.array([len(key) for key in _KEYS])
KEY_TEXT = np.zeros((len(_KEYS), KEY_BYTES.max()), np.uint8)
for _row, _key_text in zip(KEY_TEXT, _KEYS, strict=True):
    _row[: len(_key_text)] = list(_key_text.encode())


@numba.njit(cache=True)
def _key(text: Any, begin: int, end: int) -> int:
    """The number of a key; -1: none that is read."""
    size = end - begin
    place = size * _BY_LENGTH + np.int64(text[begin]) * _BY_FIRST + np.int64(text[end - 1]) * _BY_LAST
    key = KEY_AT[place % _PLACES]
    if key < 0 or KEY_BYTES[key] != size:
        return -1
    for at in range(size):
        if KEY_TEXT[key, at] != text[begin + at]:
            return -1
    return key


@numba.njit(cache=True)
def _after_space(text: Any, at: int, end: int) -> int:
    while at < end and CLASS[text[at]] & SPACE:
        at += 1
    return at


@numba.njit(cache=True)
def _after_text(text: Any, at: int, end: int) -> int:
    """Behind the closing quote of the text that begins at `at`; 0: there is none, or a character needs an escape."""
    at += 1
    while at < end:
        word = eight(text, at)
        quote, escape = word ^ _QUOTES, word ^ _ESCAPES
        if ((quote - _ONES & ~quote) | (escape - _ONES & ~escape) | (word - _SPACES & ~word)) & _TOPS == 0:
            at += 8  # no byte of these is zero, or below 32
            continue
        while not CLASS[text[at]] & STOPS_TEXT:
            at += 1
        if text[at] == QUOTE:
            return at + 1 if at < end else 0
        if text[at] != ESCAPE:
            return 0
        at += 2
    return 0


@numba.njit(cache=True)
def _after_nested(text: Any, at: int, end: int) -> int:
    """Behind the list or object that begins at `at`; 0: it does not end."""
    depth = 0
    while at < end:
        byte = text[at]
        at += 1
        if not CLASS[byte] & NESTS:
            continue
        if byte == QUOTE:
            at = _after_text(text, at - 1, end)
            if at == 0:
                return 0
        elif byte in (LIST, OBJECT):
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                return at
    return 0


@numba.njit(cache=True)
def _after_word(text: Any, at: int, end: int) -> int:
    """Behind a number, true, false or null; 0: it is none of these."""
    begin, is_number = at, text[at] == MINUS or ZERO <= text[at] <= NINE
    while at < end and (CLASS[text[at]] & IN_NUMBER if is_number else not CLASS[text[at]] & STOPS_WORD):
        at += 1
    first, size = text[begin], at - begin
    is_word = is_number or (size == 4 and first in (OF_TRUE, OF_NULL)) or (size == 5 and first == OF_FALSE)
    return at if is_word and CLASS[text[at]] & STOPS_WORD else 0


@numba.njit(cache=True)
def _integer(text: Any, at: int, end: int) -> Any:
    """A whole number, -1 if it is too large for an identifier; whether it is one."""
    is_negative = text[at] == MINUS
    if is_negative:
        at += 1
    value = np.int64(0)
    for place in range(at, end):
        digit = np.int64(text[place]) - ZERO
        if digit < 0 or digit > 9:
            return 0, False
        value = value * 10 + digit
    if end - at > 19:  # an unsigned "minus one"
        return -1, not is_negative
    return -value if is_negative else value, at < end < at + 19


@numba.njit(cache=True)
def _nanoseconds(text: Any, at: int, end: int) -> Any:
    """ns of a number of us with at most three decimals that count; whether it is one."""
    is_negative = text[at] == MINUS
    if is_negative:
        at += 1
    value, digits, decimals = np.int64(0), 0, -1
    for place in range(at, end):
        digit = np.int64(text[place]) - ZERO
        if text[place] == POINT and decimals < 0:
            decimals = 0
        elif digit < 0 or digit > 9 or (decimals >= 3 and digit > 0):
            return 0, False
        elif decimals < 3:
            value = value * 10 + digit
            digits += 1
            decimals += decimals >= 0
    for _ in range(max(decimals, 0), 3):
        value *= 10
    whole = digits - max(decimals, 0)  # digits; a value of so many below does not overflow, or once
    is_sound = 0 < whole <= LONGEST_US and 0 <= value <= LARGEST_US * 1000
    return -value if is_negative else value, is_sound


@numba.njit(cache=True, nogil=True)
def _scan(text: Any, begin: int, end: int, words: Any, arena: Any, rows: Any) -> int:
    """Fill `rows` [most, WIDTH] from the events between two places; their number, or -1 (given up) or FULL."""
    spans = np.empty((WIDTH, 2), np.int64)
    if words[CATEGORIES, 0] == 0:  # here, and not by a call from Python, for which more compiled code would be loaded
        for category in range(len(_CATEGORY_ENDS)):
            at = _CATEGORY_ENDS[category - 1] if category > 0 else 0
            number_of(_CATEGORY_TEXT, at, _CATEGORY_ENDS[category], CATEGORIES, words, arena)
    at, num = _after_space(text, begin, end), 0
    while at < end:
        if text[at] != OBJECT or num == len(rows):
            return -1
        for key in range(WIDTH):
            rows[num, key] = -1
        rows[num, TS] = rows[num, DUR] = MISSING_NS
        rows[num, BEGIN], kind, seen, depth = at, -1, np.int64(0), 1
        spans[NAME] = at
        at = _after_space(text, at + 1, end)
        if text[at] == OBJECT_END:
            depth = 0
            at += 1
        while depth > 0:
            after = _after_text(text, at, end) if text[at] == QUOTE else 0
            if after == 0:
                return -1
            key = _key(text, at + 1, after - 1)
            if key >= 0 and (key < len(TOP)) != (depth == 1):
                key = -1
            if key >= 0:
                if seen >> key & 1:
                    return -1
                seen |= np.int64(1) << key
            at = _after_space(text, after, end)
            if text[at] != COLON:
                return -1
            at = _after_space(text, at + 1, end)
            byte = text[at]
            if key == ARGS and byte == OBJECT:
                depth = 2
                at = _after_space(text, at + 1, end)
                if text[at] != OBJECT_END:
                    continue
                after = at  # no arguments: as if the last one ended here
            elif byte == QUOTE:
                after = _after_text(text, at, end)
            elif byte in (LIST, OBJECT):
                after = _after_nested(text, at, end)
            else:
                after = _after_word(text, at, end)
            if after == 0:
                return -1
            if key < 0 or (key == ARGS and depth == 2):
                pass
            elif FIRST_TEXT <= key < COLLECTIVE:
                spans[key] = at, after
                rows[num, key] = 0
            elif byte == QUOTE:
                if key == PH:
                    rows[num, PH] = text[at + 1] if after == at + 3 else -1
                elif key == CAT:
                    category = find(text, at + 1, after - 1, CATEGORIES, words, arena)[0]
                    kind = _KINDS[category] if category >= 0 else -1
                    if kind == UNSCANNED:
                        return -1
                elif key == NAME:
                    spans[NAME] = at + 1, after - 1
                elif key in (PID, TID, ID):
                    rows[num, key] = MISSING_NS  # a text
                elif key == COLLECTIVE:
                    rows[num, COLLECTIVE] = 0
                else:
                    return -1
            elif byte == OF_NULL and key != PH and key != NAME:
                pass
            elif key in (TS, DUR):
                rows[num, key], is_sound = _nanoseconds(text, at, after)
                if not is_sound:
                    return -1
            elif PID <= key < FIRST_TEXT and key != ARGS:
                rows[num, key], is_sound = _integer(text, at, after)
                if not is_sound or (key >= FIRST_SIZE and rows[num, key] < 0):
                    return -1
            else:
                return -1
            at = _after_space(text, after, end)
            while text[at] == OBJECT_END and depth > 0 and at < end:
                depth -= 1
                at = _after_space(text, at + 1, end)
            if depth > 0:
                if text[at] != COMMA:
                    return -1
                at = _after_space(text, at + 1, end)
        is_read = kind >= 0 and rows[num, PH] == COMPLETE
        if kind == FLOW_KIND and rows[num, PH] < 0:
            return -1
        if is_read or kind == FLOW_KIND:
            for key in (PID, TID, ID):
                if rows[num, key] == MISSING_NS and (key != ID or kind == FLOW_KIND):
                    return -1
            rows[num, KIND], rows[num, END] = kind, at
        if is_read:
            rows[num, NAME] = number_of(text, spans[NAME, 0], spans[NAME, 1], NAMES, words, arena)
            fullest = rows[num, NAME]
            for key in range(FIRST_TEXT, COLLECTIVE):
                if rows[num, key] == 0:
                    rows[num, key] = number_of(
                        text, spans[key, 0], spans[key, 1], TEXTS + key - FIRST_TEXT, words, arena
                    )
                    fullest = min(fullest, rows[num, key])
            if fullest == FULL:
                return FULL
        num += is_read or kind == FLOW_KIND
        at = _after_space(text, at, end)
        if at < end:
            if text[at] != COMMA:
                return -1
            at = _after_space(text, at + 1, end)
    return num


class Scanner:
    """Scans stretches of one text."""

    def __init__(self, data: Text) -> None:
        self.text = np.frombuffer(data, np.uint8)
        self.words = Words(NUM_LISTS)
        self.codes = [np.zeros(0, np.int32)] * NUM_LISTS  # number of a word -> its code in `assembly.Parts`, or -1

    def scanned(self, begin: int, end: int) -> "Scanned | None":
        """The events between two places of the text; None: they are to be decoded."""
        if end + SLACK_BYTES > len(self.text):
            return None
        rows = np.empty(((end - begin) // MIN_EVENT_BYTES + 1, WIDTH), np.int64)
        while (num := _scan(self.text, begin, end, self.words.words, self.words.arena, rows)) == FULL:
            if self.words.most >= MOST_WORDS:
                return None
            self.words.grow()
        return None if num < 0 else Scanned(self, rows[:num])

    def coded(self, listed: int, numbers: np.ndarray, codes: Codes, value: Callable[[int, int], Any]) -> np.ndarray:
        """[n] int32 codes in `codes` of the numbers [n] of words, -1 none; `value` of a word is what it stands for."""
        known = np.full(int(self.words.words[listed, 0]) + 1, -1, np.int32)  # the last one of what is not stated
        known[: len(self.codes[listed])] = self.codes[listed]
        fresh = pd.unique(numbers[(known[numbers] < 0) & (numbers >= 0)])
        known[fresh] = codes.of([value(listed, number) for number in fresh.tolist()])
        self.codes[listed] = known[:-1]
        return known[numbers]


class Scanned:
    """Rows of events [num_events, WIDTH]; the columns of `assembly.Structs`."""

    def __init__(self, scanner: Scanner, rows: np.ndarray) -> None:
        is_flow = rows[:, KIND] == FLOW_KIND
        self.scanner, self.rows = scanner, rows[~is_flow] if is_flow.any() else rows
        self.flows = [(chr(f[PH]), None if f[ID] < 0 else f[ID], f[TID], f[TS]) for f in rows[is_flow].tolist()]

    @property
    def kind(self) -> np.ndarray:
        """int8 kind codes."""
        return self.rows[:, KIND].astype(np.int8)

    def only(self, rows: np.ndarray) -> "Scanned":
        """Those of some rows [num_events] bool."""
        return Scanned(self.scanner, self.rows[rows])

    def names(self, codes: Codes) -> np.ndarray:
        """int32 codes."""
        word = self.scanner.words.word
        return self.scanner.coded(NAMES, self.rows[:, NAME], codes, lambda *at: _decoded(b'"' + word(*at) + b'"'))

    def times(self) -> tuple[np.ndarray, np.ndarray]:
        """int64 ns of begins and durations."""
        return self.rows[:, TS].copy(), self.rows[:, DUR].copy()

    def identifiers(self, field: str) -> np.ndarray:
        """int64, -1 unknown."""
        return identifiers(self.rows[:, COLUMNS[field]])

    def lanes(self, field: str) -> np.ndarray:
        """int64 of `pid` or `tid`."""
        lane = self.rows[:, TOP.index(field)]
        return np.where((lane >= -(2**31)) & (lane < MAX_ID), lane, -1)

    def sizes(self) -> np.ndarray:
        """float64 bytes, NaN unknown."""
        first, second = self.rows[:, FIRST_SIZE], self.rows[:, FIRST_SIZE + 1]
        return sizes(np.where(first < 0, second, first).astype(np.float64))

    def texts(self, field: str, codes: Codes) -> np.ndarray:
        """int32 codes of undecoded texts, -1 none."""
        listed = TEXTS + COLUMNS[field] - FIRST_TEXT
        return self.scanner.coded(listed, self.rows[:, COLUMNS[field]], codes, self.scanner.words.word)

    def metadata(self) -> dict[int, kineto.CommArgs]:
        """Row -> metadata of a collective, without views of the text."""
        listed = np.flatnonzero(self.rows[:, COLLECTIVE] == 0)
        decode = msgspec.json.Decoder(kineto.event_type(False, True, False), strict=False).decode
        result = {}
        for row, (begin, end) in zip(listed.tolist(), self.rows[listed][:, [BEGIN, END]].tolist(), strict=True):
            args = decode(self.scanner.text[begin:end].tobytes()).args  # type: ignore[attr-defined]
            result[row] = msgspec.structs.replace(args, **kineto.NO_VIEWS)
        return result


_decoded = msgspec.json.Decoder(str).decode
