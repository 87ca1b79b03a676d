"""Files that torch.save wrote, read as data: tensors, numbers and text. Nothing in them is called or imported.

Such a file is a zip archive of members that are not compressed: `data.pkl`, and the raw numbers of every storage. The
pickle is a program for a stack machine. Its few instructions that make plain values are followed here; any other
instruction or name refuses the file. Torch's own reader (`weights_only`) runs no code of the file either, but makes
arrays of any size, unpacks compressed members, checks no sums, and crashes where a deeply nested key is hashed.
"""

from __future__ import annotations

import math
import pickletools
import struct
import zipfile
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from gnnperf.core import InputError

MAX_CHECKPOINT_BYTES = 3 * 2**26  # of a file, and of all tensors in it
MAX_DIRECTORY_BYTES = 2**21  # of the archive
MAX_PICKLE_BYTES = 2**23
MAX_INSTRUCTIONS = 300_000  # a trained checkpoint takes about 15,000
MAX_TEXT = 2**24  # characters, a text counted as often as it is used
CHUNK = 2**20
ORDERED_DICT, TENSOR = "collections OrderedDict", "torch._utils _rebuild_tensor_v2"
DTYPES = {"torch FloatStorage": torch.float32, "torch DoubleStorage": torch.float64, "torch LongStorage": torch.int64}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def load_plain(path: Path, allowed: str, max_bytes: int = MAX_CHECKPOINT_BYTES) -> Any:
    """What torch.save wrote, on the CPU: a tree without cycles, in which no list or mapping occurs twice.

    Args:
        path: the file.
        allowed: what kind of file was expected, for the message.
        max_bytes: of the file, and of all tensors in it.
    """
    if not path.is_file():
        raise InputError("no such file", where=str(path), allowed=allowed)
    if path.stat().st_size > max_bytes:
        raise InputError("too large", where=str(path), allowed=f"{allowed}, of at most {max_bytes / 2**20:.0f} MiB")
    try:
        with path.open("rb") as file:
            _check_end(file)
            with zipfile.ZipFile(file) as archive:
                return _Reader(archive, max_bytes).value()
    except Exception as error:  # a damaged file can fail anywhere
        raise InputError("not a checkpoint of gnnperf, or damaged", where=str(path), allowed=allowed) from error


@contextmanager
def refused_in(path: Path, remedy: str) -> Iterator[None]:
    """Name the file in the message where a part of its content is refused."""
    try:
        yield
    except InputError as error:
        raise InputError(f"damaged: {error}", where=str(path), remedy=remedy) from error


def _check_end(file: BinaryIO) -> None:
    """Refuse an archive that does not end as torch ends it; its directory is read as a whole."""
    file.seek(-98, 2)
    end = file.read()
    parts = end[:4], end[56:60], end[76:80], end[96:]
    _require(parts == (b"PK\6\6", b"PK\6\7", b"PK\5\6", b"\0\0"))
    _require(struct.unpack_from("<Q", end, 40)[0] <= MAX_DIRECTORY_BYTES)


class _Reader:
    """The stack machine.

    Args:
        archive: what torch.save wrote.
        max_bytes: of all its storages, and of all tensors.
    """

    def __init__(self, archive: zipfile.ZipFile, max_bytes: int) -> None:
        (pickle,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
        self.archive, self.root = archive, pickle.removesuffix("/data.pkl")
        self.storages: dict[str, Tensor] = {}
        self.left = {"storages": max_bytes, "tensors": max_bytes, "text": MAX_TEXT, "instructions": MAX_INSTRUCTIONS}
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def value(self) -> Any:
        """What the file holds."""
        _require(self._member("byteorder", 6) == b"little")
        for instruction, argument, _ in pickletools.genops(self._member("data.pkl", MAX_PICKLE_BYTES)):
            self._spend("instructions", 1)
            if instruction.name == "STOP":
                return self.stack.pop()
            self._follow(instruction.name, argument)
        raise EOFError

    def _follow(self, name: str, argument: Any) -> None:
        stack = self.stack
        match name:
            case "NONE" | "NEWTRUE" | "NEWFALSE" | "EMPTY_TUPLE":
                stack.append(CONSTANTS[name])
            case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT" | "BINUNICODE":
                stack.append(self._scalar(argument))
            case "GLOBAL":
                _require(argument in (ORDERED_DICT, TENSOR, *DTYPES))
                stack.append(argument)
            case "EMPTY_LIST" | "EMPTY_DICT":
                stack.append([] if name == "EMPTY_LIST" else {})
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack[-TUPLES[name] :] = [tuple(stack[-TUPLES[name] :])]
            case "MARK":
                self.marks.append(len(stack))
            case "TUPLE":
                stack.append(tuple(self._since_mark()))
            case "APPEND" | "APPENDS":
                items = [stack.pop()] if name == "APPEND" else self._since_mark()
                stack[-1].extend(items)
            case "SETITEM" | "SETITEMS":
                items = [stack.pop(-2), stack.pop()] if name == "SETITEM" else self._since_mark()
                stack[-1].update((_key(k), v) for k, v in zip(items[::2], items[1::2], strict=True))
            case "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                again = self.memo[argument]
                stack.append(again if isinstance(again, Tensor) else self._scalar(again))
            case "BINPERSID":
                stack.append(self._storage(*stack.pop()))
            case "REDUCE":
                arguments, function = stack.pop(), stack.pop()
                stack.append({} if (function, arguments) == (ORDERED_DICT, ()) else self._tensor(function, *arguments))
            case "PROTO":
                pass
            case "BUILD":  # attributes of an OrderedDict: torch keeps versions of modules there
                stack.pop()
            case _:
                _require(False)

    def _since_mark(self) -> list[Any]:
        first = self.marks.pop()
        items, self.stack[first:] = self.stack[first:], []
        return items

    def _scalar(self, value: object) -> object:
        if isinstance(value, str):
            value.encode()  # refuses half a character
            self._spend("text", len(value))
        else:
            _require(isinstance(value, int | float) and not (isinstance(value, int) and abs(value) >> 63))
        return value

    def _storage(self, kind: str, dtype: str, key: str, _: object, count: int) -> Tensor:
        """[count] numbers; of another length than the member has, none."""
        _require(kind == "storage")
        if key not in self.storages:
            info = self.archive.getinfo(f"{self.root}/data/{key}")
            _require(info.compress_type == zipfile.ZIP_STORED and info.file_size == count * DTYPES[dtype].itemsize)
            self._spend("storages", info.file_size)
            storage = torch.empty(count, dtype=DTYPES[dtype])
            with self.archive.open(info) as file:
                raw = storage.view(torch.uint8).numpy()
                for first in range(0, info.file_size, CHUNK):
                    part = raw[first : first + CHUNK]
                    piece = file.read(len(part))
                    _require(len(piece) == len(part))
                    part[:] = np.frombuffer(piece, np.uint8)
            self.storages[key] = storage
        return self.storages[key]

    def _tensor(
        self, function: str, storage: Tensor, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: object
    ) -> Tensor:
        """A view of a storage; torch refuses one that leaves it."""
        _require(function == TENSOR and min(size, default=0) >= 0)
        self._spend("tensors", math.prod(size) * storage.itemsize)
        return storage.as_strided(size, stride, offset)

    def _member(self, name: str, max_bytes: int) -> bytes:
        info = self.archive.getinfo(f"{self.root}/{name}")
        _require(info.compress_type == zipfile.ZIP_STORED and info.file_size <= max_bytes)
        return self.archive.read(info)

    def _spend(self, what: str, amount: int) -> None:
        self.left[what] -= amount
        _require(self.left[what] >= 0)


def _key(key: Any) -> Hashable:
    """A key of a mapping; a deeply nested one would overflow the stack where it is hashed."""
    _require(isinstance(key, str | int) or (isinstance(key, tuple) and all(isinstance(part, str) for part in key)))
    result: Hashable = key
    return result


def _require(good: bool) -> None:
    if not good:
        raise ValueError
