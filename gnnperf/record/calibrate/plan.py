"""What is measured on a machine: its suite, and the groups of ranks its links allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from gnnperf.record.calibrate.comm import MESSAGE_BYTES, comm_points, lines_of
from gnnperf.record.calibrate.job import Job
from gnnperf.record.calibrate.machine import Machine
from gnnperf.record.calibrate.point import OpPoint, to_json
from gnnperf.record.calibrate.suite import CPU, CUDA, Sizes, points
from gnnperf.record.calibrate.topology import one_pair_per_link, read_topology
from gnnperf.record.network import LOOPBACK, Link

FAR = 4  # times the last-level cache: the largest operand of a stream
CommJob = tuple[dict[str, object], int, tuple[str, ...]]


@dataclass(frozen=True)
class Ask:
    """What a calibration is asked for.

    Attributes:
        ranks: of the groups whose collectives are measured; 0 or 1: none.
        rates_gbit_per_s: CPU: links between two hosts (network namespaces) to measure too.
        ops: measure these only; None: the suite.
        sizes: of the suite; None: the device's own.
        message_bytes: of the collectives.
    """

    ranks: int
    rates_gbit_per_s: tuple[float, ...] = ()
    ops: tuple[OpPoint, ...] | None = None
    sizes: Sizes | None = None
    message_bytes: tuple[int, ...] = MESSAGE_BYTES


def job_for(machine: Machine, ask: Ask) -> Job:
    """One round; seed, seconds and out are set per round."""
    if ask.ops is not None:
        ops, comm = ask.ops, list[CommJob]()
    else:
        ops, comm = points(_sizes(machine, ask.sizes), machine.fp8), _comm(machine, ask)
    return Job(
        tuple(map(to_json, ops)), tuple(comm), machine.torch_device, ask.ops is None, machine.cache_bytes, 0, 0.0, ""
    )


def _sizes(machine: Machine, requested: Sizes | None) -> Sizes:
    if requested is not None:
        return requested
    sizes = CUDA if machine.kind == "gpu" else CPU
    far = FAR * machine.cache_bytes
    reaches = max(sizes.stream_bytes) >= far
    return sizes if reaches else replace(sizes, stream_bytes=(*sizes.stream_bytes, far))


def _comm(machine: Machine, ask: Ask) -> list[CommJob]:
    if ask.ranks < 2:
        return []
    if machine.kind == "gpu":
        pairs = read_topology(ask.ranks)
        result = comm_points(ask.ranks, "+".join(sorted(set(pairs.values()))), one_pair_per_link(pairs),
                            ask.message_bytes)  # fmt: skip
        return [(asdict(LOOPBACK), ask.ranks, tuple(lines_of(result)))]
    hosts = [Link(hosts=2, rate_gbit_per_s=rate) for rate in ask.rates_gbit_per_s]
    return [_over(LOOPBACK, ask.ranks, ask.message_bytes), *(_over(link, 2, ask.message_bytes) for link in hosts)]


def _over(link: Link, ranks: int, sizes: Sequence[int]) -> CommJob:
    return asdict(link), ranks, tuple(lines_of(comm_points(ranks, link.name, sizes=sizes)))


def link_across(ask: Ask) -> str | None:
    """Name of the fastest measured link between hosts."""
    rates = ask.rates_gbit_per_s
    return Link(hosts=2, rate_gbit_per_s=max(rates)).name if rates else None
