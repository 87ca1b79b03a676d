"""Numbers for the words of a text, by numba: several lists of them, each with an order of its own.

All of a list is a row of one array of int64, for `n` words at most:

    num_words | where word 0, 1, ... begins, and the last one ends | hash of word 0, 1, ... | place -> word, or -1
        1     |                     n + 1                          |           n            |        2 n
"""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

FULL = -(2**62)
SLACK_BYTES = 8  # that can be read behind a word
_MULTIPLIER = np.int64(1099511628211)  # of the hash FNV-1


@intrinsic  # type: ignore[untyped-decorator]
def eight(_: Any, array: Any, at: Any) -> Any:
    """The bytes `at` to `at` + 7 of an array [n] uint8 as one number."""

    def load(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        word = ir.IntType(64)
        return builder.load(builder.bitcast(builder.gep(data, [arguments[1]]), word.as_pointer()), align=1, typ=word)

    return types.int64(array, types.int64), load


@numba.njit(cache=True)
def _tail(text: Any, at: int, end: int) -> Any:
    """The last one to seven bytes of a word, on little-endian machines."""
    return eight(text, at) & ((np.int64(1) << 8 * (end - at)) - 1)


@numba.njit(cache=True)
def find(text: Any, begin: int, end: int, listed: int, words: Any, arena: Any) -> Any:
    """The number of a word in a list, or -1 and less: -1 - the free place for it; and its hash."""
    hashed, at, size = np.int64(begin - end), begin, end - begin
    while at + 8 <= end:
        hashed = (hashed ^ eight(text, at)) * _MULTIPLIER
        hashed ^= hashed >> 29
        at += 8
    if at < end:
        hashed = (hashed ^ _tail(text, at, end)) * _MULTIPLIER
    hashed ^= hashed >> 31
    most = words.shape[1] // 4
    place = hashed & (2 * most - 1)
    while words[listed, 2 * most + 2 + place] >= 0:
        number = words[listed, 2 * most + 2 + place]
        start = words[listed, 1 + number]
        if words[listed, most + 2 + number] == hashed and words[listed, 2 + number] - start == size:
            at = begin
            while at + 8 <= end and eight(text, at) == eight(arena, start + at - begin):
                at += 8
            last = start + at - begin
            if at == end or (end - at < 8 and _tail(text, at, end) == _tail(arena, last, last + end - at)):
                return number, hashed
        place = (place + 1) & (2 * most - 1)
    return -1 - place, hashed


@numba.njit(cache=True)
def number_of(text: Any, begin: int, end: int, listed: int, words: Any, arena: Any) -> Any:
    """The number of a word, the next one if it is new; FULL: there is no room for it."""
    number, hashed = find(text, begin, end, listed, words, arena)
    if number < 0:
        most, place, number = words.shape[1] // 4, -1 - number, words[listed, 0]
        start = words[listed, 1 + number]
        if number == most or start + end - begin > (listed + 1) * (len(arena) // len(words)) - SLACK_BYTES:
            return FULL
        words[listed, 0] += 1
        words[listed, 2 * most + 2 + place], words[listed, most + 2 + number] = number, hashed
        words[listed, 2 + number] = start + end - begin
        for at in range(begin, end):
            arena[start + at - begin] = text[at]
    return number


@numba.njit(cache=True)
def _place_all(words: Any) -> None:
    most = words.shape[1] // 4
    for listed in range(len(words)):
        for number in range(words[listed, 0]):
            place = words[listed, most + 2 + number] & (2 * most - 1)
            while words[listed, 2 * most + 2 + place] >= 0:
                place = (place + 1) & (2 * most - 1)
            words[listed, 2 * most + 2 + place] = number


class Words:
    """Lists of words; `words` [num_lists, 4 n + 2] as above, n a power of two, and `arena`, equal bytes for each."""

    def __init__(self, num_lists: int, most: int = 1 << 11, num_bytes: int = 1 << 17) -> None:
        self.most, self.words = most, np.zeros((num_lists, 4 * most + 2), np.int64)
        self.words[:, 1] = np.arange(num_lists) * num_bytes
        self.words[:, 2 * most + 2 :] = -1
        self.arena = np.empty(num_lists * num_bytes, np.uint8)

    def grow(self) -> None:
        """Four times the room."""
        num_lists, most, before = len(self.words), self.most, self.words
        num_bytes = len(self.arena) // num_lists
        new = Words(num_lists, 4 * most, 4 * num_bytes)
        new.words[:, 0] = before[:, 0]
        new.words[:, 1 : most + 2] = before[:, 1 : most + 2] - before[:, 1:2] + new.words[:, 1:2]
        new.words[:, 4 * most + 2 : 5 * most + 2] = before[:, most + 2 : 2 * most + 2]
        new.arena.reshape(num_lists, -1)[:, :num_bytes] = self.arena.reshape(num_lists, -1)
        _place_all(new.words)
        self.most, self.words, self.arena = new.most, new.words, new.arena

    def word(self, listed: int, number: int) -> bytes:
        """The word of a number."""
        begin, end = self.words[listed, 1 + number : 3 + number]
        return self.arena[begin:end].tobytes()
