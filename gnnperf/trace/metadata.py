"""What a trace states about its rank: rank, world size, devices, groups. Free-form metadata is never read."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw

from gnnperf.trace.kineto import decoded
from gnnperf.trace.limits import MAX_GROUP_BYTES, MAX_RANKS
from gnnperf.trace.public_texts import device_name
from gnnperf.trace.table import DeviceInfo


class _Group(msgspec.Struct):
    pg_name: Any = None
    ranks: Raw = Raw(b"")


class _Distributed(msgspec.Struct):
    rank: Any = None
    world_size: Any = None
    backend: Any = None
    pg_config: Raw = Raw(b"")


class _Device(msgspec.Struct):
    name: Any = None
    totalGlobalMem: Any = None
    numSms: Any = None
    clockRate: Any = None  # kHz, as CUDA gives it


_BACKEND = r"nccl|gloo|mpi|ucc|hccl|xccl|rccl|fake"
BACKENDS = re.compile(rf"(?:[a-z0-9]{{2,8}}:)?(?:{_BACKEND})(?:,(?:[a-z0-9]{{2,8}}:)?(?:{_BACKEND}))*")


@dataclass(frozen=True)
class Distributed:
    """Rank, world size, backend and the ranks of each process group by name; None or empty where not stated."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    group_ranks: dict[str, tuple[int, ...]] | None = None


def read_distributed(raw: Raw) -> Distributed:
    """`distributedInfo`; without what is absent or of another shape."""
    result = decoded(raw, _Distributed | None)
    if result is None:
        return Distributed()
    groups = {
        str(group.pg_name): ranks
        for one in decoded(result.pg_config, list[Raw]) or []
        if (group := decoded(one, _Group)) is not None and group.pg_name is not None and (ranks := _ranks(group.ranks))
    }
    backend = result.backend if isinstance(result.backend, str) and BACKENDS.fullmatch(result.backend) else None
    return Distributed(_whole(result.rank, 0, MAX_RANKS - 1), _whole(result.world_size, 1, MAX_RANKS), backend, groups)


def _ranks(raw: Raw) -> tuple[int, ...]:
    """The ranks of a group; () where they cannot be."""
    text = bytes(raw)
    return ranks_of_text("".join(text.decode("ascii", "replace").split())) if len(text) <= 2 * MAX_GROUP_BYTES else ()


RANKS = re.compile(r"\[[0-9]{1,8}(?:,[0-9]{1,8})*+\]")


@lru_cache(maxsize=256)
def ranks_of_text(text: str) -> tuple[int, ...]:
    """The ranks in "[0,1]"; () where the text is no list of different ranks."""
    if len(text) > MAX_GROUP_BYTES or not RANKS.fullmatch(text):
        return ()
    ranks = tuple(map(int, text[1:-1].split(",")))
    return ranks if max(ranks) < MAX_RANKS and len(set(ranks)) == len(ranks) else ()


@lru_cache(maxsize=256)
def ranks_text(ranks: tuple[int, ...]) -> str:
    """The ranks of a group as its text: "[0,1]"."""
    return "[" + ",".join(map(str, ranks)) + "]"


def _whole(value: object, low: int, high: int) -> int | None:
    """A whole number in a range, also written as text or with a point; None for anything else."""
    if isinstance(value, str) and re.fullmatch("[0-9]{1,18}", value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and low <= value <= high else None


MAX_MEMORY_BYTES, MAX_SMS, MAX_CLOCK_KHZ = 2**50, 2**20, 1e9


def read_devices(raw: Raw) -> tuple[DeviceInfo, ...]:
    """`deviceProperties`; blank names stay blank, the list may be longer than the rank uses."""
    result = [decoded(one, _Device) or _Device() for one in decoded(raw, list[Raw]) or []]
    return tuple(
        DeviceInfo(device_name(d.name), _whole(d.totalGlobalMem, 1, MAX_MEMORY_BYTES), _whole(d.numSms, 1, MAX_SMS),
                   d.clockRate * 1e3 if isinstance(d.clockRate, (int, float)) and 0 < d.clockRate < MAX_CLOCK_KHZ
                   else None) for d in result
    )  # fmt: skip
