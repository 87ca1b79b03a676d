"""The same ranks and devices in another cluster: its links, its hosts, its ranks per node.

before   node 0: ranks 0 1 2 3                       host A: [T1][T2]
after    node 0: ranks 0 1 | node 1: ranks 2 3       host B: [T1][T2] x speed of A / speed of B
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gnnperf.core import NodeType, Segment, require
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import ClusterSpec, HostSpec, load_cluster, load_host, spread
from gnnperf.whatif.edit import Edited, declared_on
from gnnperf.whatif.hardware_change import HardwareChange, transfers_of

SOFTWARE = "which software another cluster runs: the library's choices are those of its links or fitted laws"
BLOCKS = "which ranks share a node: equal blocks of neighbors do"
HOSTS = ("how each host overhead follows the host: all move by the ratio of single-thread speeds, where both clusters "
         "name their host")  # fmt: skip


@dataclass(frozen=True)
class ChangeCluster:
    """The same ranks and devices in another cluster: its links, hosts, ranks per node.

    Attributes:
        to: name of the catalog, or a .yaml file; None: the cluster as it is, with what else is stated.
        nodes: how many nodes the ranks are divided over, in equal blocks; None: as the cluster says.
        ranks_per_node: devices of a node; None: as the cluster says.
        host: processor of the nodes, a name of the catalog or a .yaml file; None: the cluster's.
    """

    to: str | None = None
    nodes: int | None = None
    ranks_per_node: int | None = None
    host: str | None = None

    def __post_init__(self) -> None:
        """Refuse unknown names, and what changes nothing."""
        sentences = (self.to, self.nodes, self.ranks_per_node, self.host)
        require(
            any(one is not None for one in sentences), "a cluster", "no change", "to, nodes, ranks_per_node or host"
        )
        for key in ("nodes", "ranks_per_node"):
            value = getattr(self, key)
            require(value is None or value >= 1, f"{key} of a cluster", value, "1 or more")
        if self.to is not None:
            load_cluster(self.to)
        if self.host is not None:
            load_host(self.host)

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Declare it; recorded latencies of transfers and copies become unknown, those of hosts where they move."""
        nodes = graph.nodes
        moves = self.to is not None or self.host is not None
        touched = transfers_of(graph, None) | (nodes["segment"] == Segment.EXIT).to_numpy()
        touched |= (nodes["node_type"] == NodeType.MEMORY).to_numpy()
        if moves:
            touched |= (nodes["node_type"] == NodeType.HOST).to_numpy()
        unknown = (BLOCKS, *((SOFTWARE,) if self.to is not None else ()), *((HOSTS,) if moves else ()))
        change = HardwareChange(_Cluster(self, graph.world_size))
        return declared_on(graph, touched & nodes["step"].ge(0).to_numpy(), change, unknown)


@dataclass(frozen=True)
class _Cluster:
    """Cluster -> cluster: the device of the one in the other."""

    edit: ChangeCluster
    world_size: int

    def __call__(self, cluster: ClusterSpec) -> ClusterSpec:
        edit = self.edit
        result = cluster if edit.to is None else load_cluster(edit.to, cluster.device)
        result = replace(result, host_speed=_host_speed(cluster, result) if edit.to else result.host_speed)
        if edit.host is not None:
            host = load_host(edit.host)
            result = replace(result, host=host, host_speed=_moved(result, result.host, host))
        if edit.ranks_per_node is not None:
            result = replace(result, ranks_per_node=edit.ranks_per_node)
        return spread(replace(result, nodes=edit.nodes or result.nodes), self.world_size)


def _host_speed(old: ClusterSpec, new: ClusterSpec) -> float:
    """Of the new cluster's host; what its file says of it comes first, else the old one moves by the two speeds."""
    if new.host_speed != 1.0 or new.host is None:
        return new.host_speed
    return _moved(old, old.host, new.host)


def _moved(old: ClusterSpec, before: HostSpec | None, after: HostSpec) -> float:
    """The speed of the old hosts times the ratio of the two processors'; unknown before: as it was."""
    return old.host_speed * (1.0 if before is None else after.single_thread_speed / before.single_thread_speed)
