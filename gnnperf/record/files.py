"""Files that are whole or not there: written beside, then renamed."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping
from pathlib import Path

GZIP_LEVEL = 6
LINE_LENGTH = 120


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` beside `path`, flush it to the disk, and rename it into place."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def overwrite(path: Path, content: bytes) -> None:
    """Put `content` where the old content is: for a disk without room for a second file. Not whole if interrupted."""
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def write_text(path: Path, content: str) -> None:
    """UTF-8 text, whole or not there."""
    write_bytes(path, content.encode())


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """JSON for people to read, whole or not there; NaN is refused."""
    write_text(path, readable(content) + "\n")


def readable(content: object, indent: int = 0) -> str:
    """JSON with numbers of a list, and whatever fits, on one line: 40 samples are one line, not 42."""
    line = json.dumps(content, allow_nan=False)
    if len(line) + indent <= LINE_LENGTH or not isinstance(content, (dict, list, tuple)) or _is_numbers(content):
        return line
    inner = " " * (indent + 1)
    if isinstance(content, dict):
        items = [f"{json.dumps(str(key))}: {readable(value, indent + 1)}" for key, value in content.items()]
    else:
        items = [readable(value, indent + 1) for value in content]
    opening, closing = "{}" if isinstance(content, dict) else "[]"
    return f"{opening}\n{inner}" + f",\n{inner}".join(items) + f"\n{' ' * indent}{closing}"


def _is_numbers(content: object) -> bool:
    return isinstance(content, (list, tuple)) and all(isinstance(value, (int, float)) for value in content)


def write_gzip(path: Path, content: bytes) -> None:
    """Compressed, without a time stamp or file name inside: the same content gives the same bytes."""
    write_bytes(path, gzip.compress(content, GZIP_LEVEL, mtime=0))


def read_json(path: Path) -> dict[str, object] | None:
    """The object in `path`; None where there is no such file or it is not whole."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return content if isinstance(content, dict) else None
