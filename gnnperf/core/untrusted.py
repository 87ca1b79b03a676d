"""Boundary around readers of files that others wrote: any failure is one InputError, and memory is checked first."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gnnperf.core.errors import InputError

MAX_RATIO = 200.0  # unpacked / packed; real traces reach about 40, saved tables about 75
RATIO_FLOOR_BYTES = 256 * 2**20  # small files may compress better than MAX_RATIO
EXPANSION = 20  # memory that a reader needs / bytes of the file, where nothing better is known
MIB = 2**20
CGROUPS = Path("/sys/fs/cgroup")
CGROUP_FILES = (("memory.max", "memory.current", "inactive_file"),  # version 2, then 1
                ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"))  # fmt: skip


@contextmanager
def reading(path: Path | str, what: str = "cannot be read", *, remedy: str = "") -> Iterator[None]:
    """Turn every exception of a reader into an InputError; those that are one already, and Ctrl-C, pass.

    Args:
        path: the file or folder; it may be text that names several.
        what: the complaint; the reason follows in parentheses.
        remedy: what the user can do.
    """
    where = str(path)
    try:
        yield
    except InputError:
        raise
    except RecursionError:
        raise InputError("is nested deeper than any trace or card", where=where, remedy=remedy) from None
    except MemoryError:
        raise out_of_memory(_size(where) * EXPANSION, _size(where), where) from None
    except Exception as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        raise InputError(f"{what} ({reason.splitlines()[0][:120]})", where=where, remedy=remedy) from error


LITTLE_BYTES = 4 << 20


def require_memory(need: int, size: int, where: str) -> None:
    """Refuse a file of `size` bytes that takes about `need` bytes of memory to read, if less is available."""
    if need > LITTLE_BYTES and need > available_bytes():  # that takes as long as to read a small file
        raise out_of_memory(need, size, where)


def out_of_memory(need: int, size: int, where: str) -> InputError:
    """The one message for it: the size of the file, and an estimate of the memory that it takes to read it."""
    return InputError(f"has {size:,} bytes and takes about {need // MIB:,} MiB of memory to read", where=where,
                      allowed=f"{available_bytes() // MIB:,} MiB, which are available",
                      remedy="read it on a machine with more memory, or record fewer steps")  # fmt: skip


def is_bomb(unpacked: int, packed: int) -> bool:
    """Whether no recording of `packed` bytes holds so much."""
    return unpacked > RATIO_FLOOR_BYTES and unpacked > MAX_RATIO * max(packed, 1)


def available_bytes() -> int:
    """Memory that this process may still take: of the machine, its control groups and its own limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    limits = [*_cgroups()]
    if limit != resource.RLIM_INFINITY:
        limits.append(limit - _first_number("/proc/self/statm") * os.sysconf("SC_PAGE_SIZE"))
    if (machine := _fields("/proc/meminfo").get("MemAvailable:")) is not None:
        limits.append(machine * 1024)
    return max(min(limits, default=2**62), 0)


def _cgroups() -> Iterator[int]:
    """What each control group of the process, and each that contains it, leaves."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root = CGROUPS / controllers
        folder = root / path.lstrip("/")
        for group in (folder, *folder.parents):
            for limit, used, cached in CGROUP_FILES:
                if most := _first_number(group / limit):
                    yield most - _first_number(group / used) + _fields(group / "memory.stat").get(cached, 0)
            if group == root:
                break


def _first_number(path: Path | str) -> int:
    """0 where there is no such file, or no limit."""
    try:
        return int(Path(path).read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def _fields(path: Path | str) -> dict[str, int]:
    """Name and number per line; empty where there is no such file."""
    try:
        rows = [line.split() for line in Path(path).read_text().splitlines()]
    except OSError:
        return {}
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}


def _size(where: str) -> int:
    path = Path(where)
    try:
        files = path.rglob("*") if path.is_dir() else [path]
        return sum(file.stat().st_size for file in files if file.is_file())
    except (OSError, ValueError):
        return 0
