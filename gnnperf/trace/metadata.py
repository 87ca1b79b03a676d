"""What a trace says about its rank: rank, world size, devices, groups. Free-form metadata is never read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

import msgspec
from msgspec import Raw

from gnnperf.trace.table import DeviceInfo


class _Group(msgspec.Struct):
    pg_name: int | float | str | None = None
    ranks: list[int] | None = None


class _Distributed(msgspec.Struct):
    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    pg_config: list[_Group] | None = None


class _Device(msgspec.Struct):
    name: str | None = None
    totalGlobalMem: int | None = None
    numSms: int | None = None
    clockRate: float | None = None  # kHz, as CUDA gives it


@dataclass(frozen=True)
class Distributed:
    """Rank, world size, backend and the ranks of each process group by name; None or empty where not stated."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    group_ranks: dict[str, tuple[int, ...]] | None = None


def read_distributed(raw: Raw) -> Distributed:
    """`distributedInfo`; empty when absent or of another shape."""
    try:
        found = msgspec.json.decode(raw, type=_Distributed | None, strict=False)
    except msgspec.DecodeError:
        return Distributed()
    if found is None:
        return Distributed()
    groups = {str(g.pg_name): tuple(g.ranks) for g in found.pg_config or [] if g.pg_name is not None and g.ranks}
    rank = found.rank if found.rank is not None and 0 <= found.rank < MAX_RANKS else None
    world = found.world_size if found.world_size and 0 < found.world_size <= MAX_RANKS else None
    backend = found.backend if found.backend and re.fullmatch(r"[\w:,]{1,64}", found.backend) else None
    return Distributed(rank, world, None if backend == "undefined" else backend, groups)


def read_devices(raw: Raw) -> tuple[DeviceInfo, ...]:
    """`deviceProperties`; blank names stay blank, the list may be longer than the rank uses."""
    try:
        found = msgspec.json.decode(raw, type=list[_Device] | None, strict=False)
    except msgspec.DecodeError:
        return ()
    return tuple(
        DeviceInfo((d.name or "")[:128], d.totalGlobalMem, d.numSms, d.clockRate * 1e3 if d.clockRate else None)
        for d in found or []
    )


MAX_RANKS = 10_000_000  # more is no world size
RANK_WORDS = ("rank", "worker", "eg", "et")


def rank_from_name(name: str) -> int | None:
    """The rank a file's name states: rank_3, rank-3, worker3, dlrm_eg_3, pytorch_et_3; None otherwise."""
    base = PurePath(name).name
    for word in RANK_WORDS:
        match = re.search(rf"(?:^|[^a-z]){word}[-_. ]?(\d{{1,6}})(?![\d])", base, re.I)
        if match:
            return int(match.group(1))
    return None
