"""Where the ranks of a recorded run sat, and the cluster that makes of a default one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gnnperf.errors import InputError
from gnnperf.hardware.spec import ClusterSpec

BYTES_PER_GBIT = 1e9 / 8
ETHERNET_PAYLOAD_SHARE = 0.95  # of the rate: 1448 of 1514 bytes of a TCP segment, and acknowledgements


@dataclass(frozen=True)
class Placement:
    """As a run's card says.

    Attributes:
        hosts: the ranks are divided over so many hosts, in equal blocks.
        bandwidth_bytes_per_s: of each host's link, per direction; None not limited, or not said.
    """

    hosts: int
    bandwidth_bytes_per_s: float | None = None


def placement_of(card: Mapping[str, object] | None) -> Placement | None:
    """From the link of a recorder's card; None where it does not say on how many hosts the ranks ran."""
    link = (card or {}).get("link")
    hosts = link.get("hosts") if isinstance(link, Mapping) else None
    if not isinstance(link, Mapping) or not isinstance(hosts, int) or hosts < 1:
        return None
    rate = link.get("rate_gbit_per_s")
    return Placement(hosts, rate * BYTES_PER_GBIT if isinstance(rate, int | float) and rate > 0 else None)


def placed(cluster: ClusterSpec, placement: Placement | None, world_size: int) -> ClusterSpec:
    """The cluster with the run's own ranks per node and rate between nodes."""
    if placement is None or placement.hosts == 1:
        return cluster
    inter = cluster.inter
    if placement.bandwidth_bytes_per_s is not None:
        inter = replace(inter, bandwidth_bytes_per_s=placement.bandwidth_bytes_per_s,
                        sustained_bandwidth_share=ETHERNET_PAYLOAD_SHARE, source="the run's card")  # fmt: skip
    return replace(cluster, inter=inter, ranks_per_node=max(world_size // placement.hosts, 1))


def spread(cluster: ClusterSpec, world_size: int) -> ClusterSpec:
    """The cluster with the ranks divided over its own number of nodes, in equal blocks.

    Raises:
        InputError: more ranks than the nodes have devices.
    """
    if cluster.nodes is None:
        return cluster
    if world_size > cluster.nodes * cluster.ranks_per_node:
        raise InputError(
            f"{world_size} ranks do not fit on {cluster.nodes} nodes of {cluster.ranks_per_node}",
            where=f"cluster {cluster.name}",
            remedy="give cluster.nodes or cluster.ranks_per_node a larger value",
        )
    return replace(cluster, ranks_per_node=math.ceil(world_size / cluster.nodes))
