"""Files and folders that are whole or not there: written under a temporary name in the same folder, then renamed.

The temporary name starts with a dot, so no reader takes it for a result. What a killed writer left is removed by the
next writer of the same result, a day later.
"""

import ctypes
import gzip
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from pathlib import Path
from threading import Thread

from gnnperf.core.errors import InputError

GZIP_LEVEL = 6
LINE_LENGTH = 120
NAME_CHARS = 50  # of the result's name in the temporary one: names are limited to 255 bytes
SUFFIX = ".tmp"
BLOCK_BYTES = 2**25  # hashed at once, while other threads run
LEFTOVER_S = 86_400.0
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # Linux


class UnwritableError(InputError, OSError):
    """A result that cannot be written: no space, no permission, a name that is too long."""


def sha256(path: Path) -> str:
    """Hash of a file's bytes; it is read once, unless its size or one of its times has changed since."""
    if (ahead := _ahead.pop(path, None)) is not None:
        ahead.join()
    return _digest(path)


def _digest(path: Path) -> str:
    state = path.stat()
    return _sha256(path, state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


@lru_cache(maxsize=1024)
def _sha256(path: Path, *state: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        block = memoryview(bytearray(min(os.fstat(file.fileno()).st_size + 1, BLOCK_BYTES)))
        while size := file.readinto(block):
            digest.update(block[:size])
    return digest.hexdigest()


_ahead: dict[Path, Thread] = {}


def hash_ahead(paths: Iterable[Path]) -> None:
    """Begin to hash files, and those in folders, for `sha256`, while this process loads what it needs."""
    listed = list[Path]()
    with suppress(OSError):  # who reads them meets it again
        for path in paths:
            inside = sorted(p for p in path.glob("*") if p.is_file() and not p.is_symlink())
            listed += [path] if path.is_file() else inside

    def attempt() -> None:
        with suppress(OSError):
            for file in listed:
                _digest(file)

    thread = Thread(target=attempt, daemon=True)  # a command that fails does not wait for it
    _ahead.update(dict.fromkeys(listed, thread))
    thread.start()


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder to write to, which takes the name of `folder` when the block ends without an exception.

    An earlier folder of that name is then removed. The caller checks before that it may be.

    Raises:
        UnwritableError: the system refuses; nothing is changed.
    """
    with _writing(folder):
        target = folder.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        with _temporary(target, folder=True) as temporary:
            yield temporary
            if not target.exists():
                temporary.rename(target)
            elif not _exchange(temporary, target):  # a file system without it: there is a moment without a folder
                earlier = temporary.with_name(f"{temporary.stem}.earlier{SUFFIX}")
                target.rename(earlier)
                try:
                    temporary.rename(target)
                finally:  # Ctrl-C too
                    if not target.exists():
                        earlier.rename(target)
                    _remove(earlier)


def refuse_foreign(folder: Path, own: Collection[str]) -> list[str]:
    """The names in a folder that is to be replaced; refuses a file, and a folder with anything but `own` names."""
    if folder.exists() and not folder.is_dir():
        raise InputError("is a file", where=str(folder), allowed="a directory to write to")
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if foreign := [name for name in names if name not in own]:
        raise InputError(f"holds other files ({foreign[0]!r})", where=str(folder),
                         remedy="choose a new or empty directory; nothing was changed")  # fmt: skip
    return names


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, flush it to the disk, and rename it.

    Raises:
        UnwritableError: the system refuses; an earlier file is as it was.
    """
    with _writing(path), _temporary(path) as temporary:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn what the system refuses into one message."""
    try:
        yield
    except UnwritableError:
        raise
    except OSError as error:
        reason = (error.strerror or str(error)).splitlines()[0]
        refused = UnwritableError(f"cannot be written ({reason})", where=str(path),
                                  remedy="choose a directory you may write to, with space left")  # fmt: skip
        refused.strerror = reason
        raise refused from error


@contextmanager
def _temporary(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """A temporary file or folder, removed at the end unless it was renamed."""
    prefix = f".{path.name[:NAME_CHARS]}."
    temporary = path.with_name(f"{prefix}{secrets.token_hex(6)}{SUFFIX}")
    try:
        _remove_leftovers(path.parent, prefix)
        if folder:
            temporary.mkdir()
        else:
            temporary.touch(exist_ok=False)
        yield temporary
    finally:
        try:
            _remove(temporary)
        except KeyboardInterrupt:  # in the middle of it
            _remove(temporary)
            raise


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names in one step; False where the system cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    return rename is not None and rename(AT_FDCWD, bytes(one), AT_FDCWD, bytes(other), RENAME_EXCHANGE) == 0


def _remove_leftovers(folder: Path, prefix: str) -> None:
    """Remove what writers of the same result left that were killed: what no one has written to for a day."""
    with suppress(OSError), os.scandir(folder) as entries:  # a folder may be writable and not be listed
        for entry in entries:  # tens of thousands in a cache: no Path of each
            is_temporary = entry.name.startswith(prefix) and entry.name.endswith(SUFFIX)
            if is_temporary and time.time() - entry.stat().st_mtime > LEFTOVER_S:
                _remove(Path(entry.path))


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def overwrite(path: Path, content: bytes) -> None:
    """Put `content` where the old content is: for a disk without space for a second file. Not whole if interrupted."""
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
    is_list = isinstance(content, (list, tuple))
    numbers = is_list and all(isinstance(value, (int, float)) for value in content)  # type: ignore[attr-defined]
    if len(line) + indent <= LINE_LENGTH or numbers or not isinstance(content, (dict, list, tuple)):
        return line
    inner = " " * (indent + 1)
    if isinstance(content, dict):
        items = [f"{json.dumps(str(key))}: {readable(value, indent + 1)}" for key, value in content.items()]
    else:
        items = [readable(value, indent + 1) for value in content]
    opening, closing = "{}" if isinstance(content, dict) else "[]"
    return f"{opening}\n{inner}" + f",\n{inner}".join(items) + f"\n{' ' * indent}{closing}"


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


# The code that a kept result depends on.

PACKAGE = Path(__file__).resolve().parents[1]


@cache
def code_of(*sources: str, package: Path = PACKAGE) -> str:
    """Hash of the source of packages and modules, named by their paths in `package`."""
    digest = hashlib.sha256()
    for name in sources:
        path = package / name
        assert path.exists(), f"{path} was moved"
        for source in [path] if path.is_file() else sorted(path.rglob("*.py")):
            digest.update(source.relative_to(package).as_posix().encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]
