"""Several hosts on one machine: network namespaces joined by veth pairs and a bridge, each link limited in rate.

    host 0 [rank 0, rank 1] --veth-- bridge --veth-- host 1 [rank 2, rank 3]
                             tbf out      tbf out (towards host 1)

`tc tbf` (token bucket) limits both directions of every host's link, so ranks of one host share what their host has.
A bucket holds one segment of the sender: what is no longer than that passes at once, unless others went just before it.
"""

import ctypes
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gnnperf.core import InputError
from gnnperf.record.launcher import launch, put_transport_first, short_slice

PREFIX = "gnnperf"
NAMESPACES = Path("/run/netns")
OURS = re.compile(rf"{PREFIX}-(\d+)-\w+")  # gnnperf-<process>-h0, gnnperf-<process>-switch
INTERFACE = "gnnperf0"  # each host's only one next to its loopback
QUEUE_MS = 400  # longer than any queue of ours: nothing is dropped
CLONE_NEWNET = 0x40000000
MAX_HOSTS = 8
BUCKET_BYTES = 70_000  # of the token bucket that limits a link: one segment of 64 KiB with its headers


@dataclass(frozen=True)
class Link:
    """What ranks talk over."""

    hosts: int = 1  # ranks are placed on so many hosts, in equal blocks; hosts are network namespaces of this machine
    # limit of each host's link, in either direction; None unlimited (one host: loopback)
    rate_gbit_per_s: float | None = None

    @property
    def name(self) -> str:
        """Short: lo, veth, 0.25g."""
        if self.hosts == 1:
            return "lo"
        return "veth" if self.rate_gbit_per_s is None else f"{self.rate_gbit_per_s:g}g"

    @property
    def facts(self) -> dict[str, object]:
        """For the card."""
        limit = {} if self.rate_gbit_per_s is None else {"bucket_bytes": BUCKET_BYTES}
        return {"backend": "gloo", "medium": "loopback" if self.hosts == 1 else "veth", "hosts": self.hosts,
                "rate_gbit_per_s": self.rate_gbit_per_s, **limit}  # fmt: skip


LOOPBACK = Link()


@dataclass(frozen=True)
class Seat:
    """Where a rank sits."""

    namespace: str | None  # of its host; None: this machine's own
    interface: str  # what gloo talks over
    host: int  # number of the host

    def enter(self) -> None:
        """Move this process there; before it starts any thread, since others would stay behind."""
        os.environ["GLOO_SOCKET_IFNAME"] = self.interface
        if self.namespace is None:
            return
        libc = ctypes.CDLL(None, use_errno=True)
        handle = os.open(NAMESPACES / self.namespace, os.O_RDONLY)
        try:
            if libc.setns(handle, CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "cannot enter the network namespace", self.namespace)
        finally:
            os.close(handle)


@contextmanager
def seats(link: Link, world_size: int) -> Iterator[list[Seat]]:
    """A seat for every rank, in equal blocks over the hosts; the hosts are gone afterwards."""
    if link.hosts == 1:
        yield [Seat(None, "lo", 0)] * world_size
        return
    _check(link, world_size)
    left = [match for match in map(OURS.fullmatch, _existing()) if match]  # by processes that were killed
    _remove([match.string for match in left if not Path(f"/proc/{match[1]}").exists()])
    own = f"{PREFIX}-{os.getpid()}-"
    try:
        _connect(own, link)
        per_host = world_size // link.hosts
        yield [Seat(f"{own}h{rank // per_host}", INTERFACE, rank // per_host) for rank in range(world_size)]
    finally:
        _remove([name for name in _existing() if name.startswith(own)])


def _check(link: Link, world_size: int) -> None:
    if not 1 < link.hosts <= MAX_HOSTS or world_size % link.hosts:
        raise InputError(f"{world_size} ranks on {link.hosts} hosts", where="link.hosts",
                         allowed=f"a divisor of the number of ranks, up to {MAX_HOSTS}")  # fmt: skip


def _connect(own: str, link: Link) -> None:
    switch = f"{own}switch"
    _run(["ip", "netns", "add", switch])
    _run(["ip", "-n", switch, "link", "add", "bridge", "type", "bridge"])
    _run(["ip", "-n", switch, "link", "set", "bridge", "up"])
    for host in range(link.hosts):
        name, port = f"{own}h{host}", f"port{host}"
        _run(["ip", "netns", "add", name])
        _run(["ip", "link", "add", INTERFACE, "netns", name, "type", "veth", "peer", "name", port, "netns", switch])
        _run(["ip", "-n", name, "address", "add", f"10.77.0.{host + 1}/24", "dev", INTERFACE])
        _run(["ip", "-n", name, "link", "set", INTERFACE, "up"])
        _run(["ip", "-n", name, "link", "set", "lo", "up"])
        _run(["ip", "-n", switch, "link", "set", port, "master", "bridge"])
        _run(["ip", "-n", switch, "link", "set", port, "up"])
        for namespace, interface in ((name, INTERFACE), (switch, port)):
            if link.rate_gbit_per_s is not None:
                rate = f"{link.rate_gbit_per_s * 1e3:g}mbit"
                bucket = ["rate", rate, "burst", str(BUCKET_BYTES), "latency", f"{QUEUE_MS}ms"]
                _run(["tc", "-n", namespace, "qdisc", "add", "dev", interface, "root", "tbf", *bucket])


def _existing() -> list[str]:
    return sorted(path.name for path in NAMESPACES.glob(f"{PREFIX}-*"))


def _remove(names: Sequence[str]) -> None:
    for name in names:
        _run(["ip", "netns", "del", name])


def _run(command: Sequence[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError) as error:
        sentences = getattr(error, "stderr", None) or error
        raise InputError(f"this machine cannot have several hosts: {' '.join(command)}: {str(sentences).strip()}",
                         where="link.hosts", allowed="1 (loopback)",
                         remedy="root, and namespaces, veth, bridge and tbf in the kernel") from error  # fmt: skip


def launch_over(
    link: Link, main: Callable[..., None], arguments: Sequence[object], *, world_size: int, timeout_s: float
) -> None:
    """As `launch`, with the ranks placed on the hosts of a link."""
    with seats(link, world_size) as seat_of:
        launch(main, arguments, world_size=world_size, timeout_s=timeout_s, enter=[seat.enter for seat in seat_of])


TRANSPORT_PRIORITY = 1  # the lowest above ordinary threads


class Transport(StrEnum):
    """How gloo's threads are scheduled, which share their rank's core with its main thread."""

    REAL_TIME = "fifo"  # they take the core at once, and keep it until they sleep
    SHORT_SLICE = "short slice"  # they take it soon: ordinary threads with a slice of 0.1 ms

    def put_first(self) -> None:
        """Schedule the threads that there are now."""
        put_transport_first(short_slice if self is Transport.SHORT_SLICE else _real_time)


def _real_time(thread: int) -> None:
    os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(TRANSPORT_PRIORITY))
