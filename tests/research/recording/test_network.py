"""Hosts of one machine: real namespaces where there is root, else only what needs none."""

import json
import os
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from gnnperf.core.errors import InputError
from research.recording import network
from research.recording.network import LOOPBACK, Link, launch_over


def why_not() -> str:
    try:
        with network.seats(Link(hosts=2, rate_gbit_per_s=1.0), 2):
            return ""
    except (InputError, OSError) as error:
        return str(error)


needs_hosts = pytest.mark.skipif(bool(reason := why_not()), reason=reason)


def time_all_reduce(folder: Path) -> None:
    """Median time of an all-reduce of 1 MB, after one that opens the connections; rank 0 writes it."""
    message = torch.ones(250_000)
    samples = []
    for _ in range(4):
        began = time.perf_counter()
        dist.all_reduce(message)
        samples.append(time.perf_counter() - began)
    if dist.get_rank() == 0:
        (folder / "s.json").write_text(json.dumps(sorted(samples[1:])[1]))


def test_one_host_is_loopback() -> None:
    with network.seats(LOOPBACK, 4) as seats:
        assert {(s.namespace, s.interface, s.host) for s in seats} == {(None, "lo", 0)} and len(seats) == 4


@pytest.mark.parametrize(("hosts", "ranks"), [(2, 3), (16, 16), (0, 2)])
def test_refuses_ranks_that_do_not_divide(hosts: int, ranks: int) -> None:
    with pytest.raises(InputError, match=f"{ranks} ranks on {hosts} hosts"), network.seats(Link(hosts=hosts), ranks):
        pass


@needs_hosts
def test_ranks_sit_in_equal_blocks_and_nothing_is_left() -> None:
    with network.seats(Link(hosts=2, rate_gbit_per_s=1.0), 4) as seats:
        assert [s.host for s in seats] == [0, 0, 1, 1]
        assert len({s.namespace for s in seats}) == 2
        assert all((network.NAMESPACES / str(s.namespace)).exists() for s in seats)
    assert not any((network.NAMESPACES / str(s.namespace)).exists() for s in seats)


@needs_hosts
def test_hosts_of_a_killed_process_are_removed() -> None:
    name = f"{network.PREFIX}-4194305-h0"  # above the largest process number there is
    network._run(["ip", "netns", "add", name])
    with network.seats(Link(hosts=2), 2):
        assert not (network.NAMESPACES / name).exists()


def test_the_card_states_how_a_link_is_limited() -> None:
    limited, free = Link(hosts=2, rate_gbit_per_s=0.25).facts, Link(hosts=2).facts
    assert (limited["rate_gbit_per_s"], limited["bucket_bytes"]) == (0.25, 70_000)
    assert free["rate_gbit_per_s"] is None and "bucket_bytes" not in free


@needs_hosts
def test_the_rate_is_that_of_the_link(tmp_path: Path) -> None:
    launch_over(Link(hosts=2, rate_gbit_per_s=0.25), time_all_reduce, (tmp_path,), world_size=2, timeout_s=60)
    seconds = json.loads((tmp_path / "s.json").read_text())
    # Two ranks send each other half and then half: 1 MB per direction, 8 Mbit at 0.25 Gbit/s.
    assert 0.9 * 0.032 < seconds < 4 * 0.032
    assert os.environ.get("GLOO_SOCKET_IFNAME") is None
