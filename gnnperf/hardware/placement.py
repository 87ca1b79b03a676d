"""Where the ranks of a recorded run sat, and the cluster that makes of a default one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from gnnperf.core import InputError, counted
from gnnperf.hardware.spec import ClusterSpec

# How the ranks of a group lie on machines. Ranks fill machines in order.
#
# ranks per machine 4        machine 0    machine 1    machine 2
# first 0, stride 1, size 8  x x x x      x x x x      . . . .      2 machines, 4 ranks on each
# first 0, stride 4, size 3  x . . .      x . . .      x . . .      3 machines, 1 rank on each
# first 3, stride 1, size 2  . . . x      x . . .      . . . .      2 machines

UNKNOWN = -1


def progression(ranks: Sequence[int]) -> tuple[int, int]:
    """(lowest rank, distance between neighbors) of a group's ranks; the distance is UNKNOWN where it is uneven."""
    ordered = sorted(set(ranks))
    gaps = {after - before for before, after in pairwise(ordered)}
    return (ordered[0] if ordered else UNKNOWN), gaps.pop() if len(gaps) == 1 else UNKNOWN


def machines_of(size: np.ndarray, first: np.ndarray, stride: np.ndarray, ranks_per_node: int) -> np.ndarray:
    """[n] machines that groups span, at least 1.

    Below a stride of one machine no machine between the first and the last rank is passed over; from there on every
    rank has a machine of its own. Where the ranks are not known, a group fills machines from the first one on.

    Args:
        size: [n] ranks of the group; -1 unknown.
        first: [n] its lowest rank; -1 unknown.
        stride: [n] distance of neighbors; -1 unknown.
        ranks_per_node: of a machine.
    """
    count = np.maximum(size, 1).astype(np.int64)
    known = (first >= 0) & (stride > 0) & (size > 0)
    last = first.astype(np.int64) + stride.astype(np.int64) * (count - 1)  # [n]
    reached = np.where(stride >= ranks_per_node, count, last // ranks_per_node - first // ranks_per_node + 1)
    filled = -(-count // ranks_per_node)
    return np.where(known, reached, filled)


def ranks_per_machine(size: np.ndarray, first: np.ndarray, stride: np.ndarray, ranks_per_node: int) -> np.ndarray:
    """[n] ranks of a group that share a machine, the most there can be where machines hold unequal parts.

    A group inside one machine, or one that fills machines, has all of a machine's places to itself.
    """
    machines = machines_of(size, first, stride, ranks_per_node)
    count = np.maximum(size, 1).astype(np.int64)
    fills = machines == -(-count // ranks_per_node)
    return np.where(fills, ranks_per_node, -(-count // machines))


BYTES_PER_GBIT = 1e9 / 8
MAX_CORES = 1 << 16  # of one machine
ETHERNET_PAYLOAD_SHARE = 0.95  # of the rate: 1448 of 1514 bytes of a TCP segment, and acknowledgements


class _Rank(msgspec.Struct):
    rank: int
    host: int
    cores: list[int]


class _Cores(msgspec.Struct):
    """The part of a card that states on which cores ranks ran."""

    ranks: list[_Rank]
    hosts: list[dict[str, object]]


@dataclass(frozen=True)
class Placement:
    """As in a run's card."""

    hosts: int  # the ranks are divided over so many hosts, in equal blocks
    bandwidth_bytes_per_s: float | None = None  # of each host's link, per direction; None not limited, or not stated
    bucket_bytes: float | None = None  # of the token bucket that limits it; None: not stated
    # per rank the processor cores it was bound to, numbered over the machines of the run (two hosts may be namespaces
    # of one machine); empty: not stated
    core_sets: tuple[tuple[int, ...], ...] = ()

    @property
    def shares_cores(self) -> bool:
        """Whether a core has several ranks, which then wait for each other; False if nothing is stated."""
        cores = [core for own in self.core_sets for core in own]
        return len(cores) > len(set(cores))


def placement_of(card: Mapping[str, object] | None) -> Placement | None:
    """From the link of a recorder's card; None where it does not say on how many hosts the ranks ran."""
    link = (card or {}).get("link")
    hosts = link.get("hosts") if isinstance(link, Mapping) else None
    if not isinstance(link, Mapping) or not isinstance(hosts, int) or hosts < 1:
        return None
    rate, bucket = (_positive(link.get(name)) for name in ("rate_gbit_per_s", "bucket_bytes"))
    return Placement(hosts, None if rate is None else rate * BYTES_PER_GBIT, bucket, _core_sets(card or {}))


def _positive(value: object) -> float | None:
    """A number above 0, or nothing."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and 0 < value < math.inf else None  # type: ignore[operator, arg-type]


def _core_sets(card: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
    """Per rank its cores, numbered over machines; empty where a rank does not say, or ranks are missing."""
    try:
        result = msgspec.convert(card, _Cores)
    except msgspec.ValidationError:
        return ()
    machines = [str(host.get("fingerprint")) for host in result.hosts]
    ordered = sorted(result.ranks, key=lambda rank: rank.rank)
    if [rank.rank for rank in ordered] != list(range(len(ordered))):
        return ()
    if not all(rank.cores and rank.host in range(len(machines)) for rank in ordered):
        return ()
    first = [machines.index(name) * MAX_CORES for name in machines]
    return tuple(tuple(first[rank.host] + core for core in rank.cores) for rank in ordered)


def placed(cluster: ClusterSpec, placement: Placement | None, world_size: int) -> ClusterSpec:
    """The cluster with the run's own ranks per node, rate between nodes and cores of each rank."""
    if placement is None:
        return cluster
    cluster = replace(cluster, core_sets=placement.core_sets)
    if placement.hosts == 1:
        return cluster
    cluster = replace(cluster, ranks_per_node=max(world_size // placement.hosts, 1))
    if placement.bandwidth_bytes_per_s is None:
        return cluster
    inter = replace(cluster.inter, bandwidth_bytes_per_s=placement.bandwidth_bytes_per_s,
                    sustained_bandwidth_share=ETHERNET_PAYLOAD_SHARE, bucket_bytes=placement.bucket_bytes,
                    source="the run's card")  # fmt: skip
    return replace(cluster, inter=inter, adapters_per_node=1)


def spread(cluster: ClusterSpec, world_size: int) -> ClusterSpec:
    """The cluster with the ranks divided over its own nodes, in equal blocks; refuses more ranks than devices."""
    if cluster.nodes is None:
        return cluster
    if world_size > cluster.nodes * cluster.ranks_per_node:
        room = f"{counted(cluster.nodes, 'node')} of {cluster.ranks_per_node}"
        raise InputError(f"{counted(world_size, 'rank')} do not fit on {room}", where=f"cluster {cluster.name}",
                         remedy="give cluster.nodes or cluster.ranks_per_node a larger value")  # fmt: skip
    return replace(cluster, ranks_per_node=math.ceil(world_size / cluster.nodes))
