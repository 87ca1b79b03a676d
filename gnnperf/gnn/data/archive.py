"""A checkpoint's file: an .npz archive of float32 arrays and one JSON text. Nothing in it is called or imported.

Sizes are checked before they are believed: of the file, its directory and members, none of which is compressed, and of
arrays, which are views of the bytes that are there. NumPy's own reader would unpack compressed members and allocate
what a header claims.
"""

import hashlib
import io
import json
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnperf.core import InputError, write_bytes

MAX_BYTES = 3 * 2**26  # of a file
MAX_DIRECTORY_BYTES = 2**21
MAX_TEXT_BYTES = 2**23
TEXT = "text"  # name of the array with the bytes of the JSON text


@dataclass(frozen=True)
class Archive:
    """What a file holds."""

    plain: Any  # what JSON can state
    tensors: Mapping[str, Tensor]  # name -> float32 tensor
    sha256: str  # of the file


def write_archive(path: Path, plain: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Write the file whole or not at all; returns its sha256."""
    held, text = io.BytesIO(), np.frombuffer(json.dumps(plain).encode(), np.uint8)
    arrays: dict[str, Any] = {TEXT: text, **{name: tensor.numpy() for name, tensor in tensors.items()}}
    np.savez(held, **arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, held.getvalue())
    return hashlib.sha256(held.getvalue()).hexdigest()


def read_archive(path: Path, allowed: str) -> Archive:
    """Read a file; `allowed` is the kind of file that was expected, for messages."""
    if not path.is_file():
        raise InputError("no such file", where=str(path), allowed=allowed)
    if path.stat().st_size > MAX_BYTES:
        raise InputError("too large", where=str(path), allowed=f"{allowed}, of at most {MAX_BYTES / 2**20:.0f} MiB")
    raw = path.read_bytes()
    try:
        signature, directory_bytes, comment_bytes = struct.unpack("<4s8xI4xH", raw[-22:])
        _require(signature == b"PK\5\6" and directory_bytes <= MAX_DIRECTORY_BYTES and comment_bytes == 0)
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            members = archive.infolist()
            _require(all(member.compress_type == zipfile.ZIP_STORED for member in members))
            arrays = {member.filename.removesuffix(".npy"): _array(archive.read(member)) for member in members}
        text = arrays.pop(TEXT).tobytes()
        _require(len(text) <= MAX_TEXT_BYTES and all(array.dtype == np.float32 for array in arrays.values()))
        tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
        return Archive(json.loads(text), tensors, hashlib.sha256(raw).hexdigest())
    except Exception as error:  # a damaged file can fail anywhere
        raise InputError("not a checkpoint of gnnperf, or damaged", where=str(path), allowed=allowed) from error


def _array(member: bytes) -> np.ndarray:
    """A view of the numbers behind the header; NumPy refuses fewer bytes than shape and dtype take."""
    stream = io.BytesIO(member)
    np.lib.format.read_magic(stream)
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    _require(not is_fortran and dtype in (np.float32, np.uint8))
    return np.frombuffer(member, dtype, offset=stream.tell()).reshape(shape)


@contextmanager
def refused_in(path: Path, remedy: str) -> Iterator[None]:
    """Name the file in the message where a part of its content is refused."""
    try:
        yield
    except InputError as error:
        raise InputError(f"damaged: {error}", where=str(path), remedy=remedy) from error


def _require(good: bool) -> None:
    if not good:
        raise ValueError
