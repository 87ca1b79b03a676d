"""Other devices, links and clusters; and the clusters that predict each node after such changes.

rank 0   cluster as it is                      |
rank 1   ... with another device        |      |  a transfer takes the prediction of its slowest rank
all_to_all, any rank   ... with other links    |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnnperf.core import NodeType, Relation, Segment, require
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import (
    ClusterSpec,
    HostSpec,
    LinkSpec,
    load_cluster,
    load_device,
    load_host,
    load_link,
    spread,
)
from gnnperf.whatif.edit import ON_DEVICE, Edited, HardwareChange, ends, is_type, refusal, rewritten

MIXED = "how a library goes about a group of unlike ranks: a transfer takes what it takes on the slowest of them"


@dataclass(frozen=True)
class Requested:
    """Which cluster predicts which node; a transfer has a row for every rank that takes part."""

    clusters: tuple[ClusterSpec, ...]  # each once, in the order of their first node
    node: np.ndarray  # [num_rows] node ids, every node at least once
    cluster: np.ndarray  # [num_rows] index into `clusters`


def requested(graph: ExecutionGraph, cluster: ClusterSpec, changes: Sequence[HardwareChange]) -> Requested:
    """The clusters after all changes, made one after the other, and their nodes.

    Args:
        graph: the edited graph.
        cluster: without any change.
        changes: in the order of the edits.

    Raises:
        InputError: a change does not fit a cluster, or the cluster cannot run the edited graph.
    """
    node, rank = _rows(graph)
    kind = graph.nodes["collective"].astype(object).to_numpy()[node]
    code = np.zeros(len(node), dtype=np.int64)  # bit i: change i holds
    for place, change in enumerate(changes):
        holds = np.ones(len(node), bool) if change.ranks is None else np.isin(rank, change.ranks)
        holds &= change.collective is None or kind == change.collective
        code |= holds.astype(np.int64) << place
    distinct, first, number = np.unique(code, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return Requested(tuple(_after(cluster, changes, int(distinct[i])) for i in order), node, np.argsort(order)[number])


def _after(cluster: ClusterSpec, changes: Sequence[HardwareChange], code: int) -> ClusterSpec:
    holding = [change for place, change in enumerate(changes) if code >> place & 1]
    for change in holding:
        cluster = change.on(cluster)
    for change in holding:
        if change.check is not None:
            change.check(cluster)
    return cluster


def _rows(graph: ExecutionGraph) -> tuple[np.ndarray, np.ndarray]:
    """(node, rank) [num_rows]: nodes of ranks once, transfers per rank that joins; of no rank: rank -1."""
    rank = graph.nodes["rank"].to_numpy().astype(np.int64)
    part, transfer = ends(graph, Relation.JOINS)
    others = np.setdiff1d(np.arange(graph.num_nodes), transfer)
    return np.concatenate([others, transfer]), np.concatenate([rank[others], rank[part]])


def _transfers_of(graph: ExecutionGraph, ranks: Sequence[int] | None) -> np.ndarray:
    """[num_nodes] bool: transfers in which one of the ranks takes part; None: all."""
    result = is_type(graph, NodeType.COLLECTIVE)
    if ranks is None:
        return result
    node, rank = _rows(graph)
    return result & np.isin(np.arange(graph.num_nodes), node[np.isin(rank, list(ranks))])


def _work_of(graph: ExecutionGraph, ranks: tuple[int, ...] | None) -> np.ndarray:
    """[num_nodes] bool: work of these ranks; None: of all. Raises InputError: the graph has not all of them."""
    rank = graph.nodes["rank"].to_numpy()
    missing = [one for one in ranks or () if one not in graph.ranks]
    if missing or ranks == ():
        raise refusal(graph, f"no rank {', '.join(map(str, missing))}", ", ".join(map(str, graph.ranks)))
    return rank >= 0 if ranks is None else np.isin(rank, ranks)


AROUND = "which links and hosts come with {}: those of the cluster stay, the edits cluster and link change them"
KERNELS = "which kernels libraries choose on {}: ops, their number and their order stay"
FITS = "whether what a rank holds fits into the {:.0f} GiB of {}"
OTHER_KIND = "what a {} does otherwise than a {}: which work is launched and what waits for it stays"


@dataclass(frozen=True)
class ChangeDevice:
    """All or some ranks run on another device; links and hosts stay.

    Attributes:
        to: name of the catalog, or a .yaml file.
        ranks: None all.
    """

    to: str
    ranks: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        load_device(self.to)

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Apply the edit."""
        device = load_device(self.to)
        unknown = [AROUND.format(self.to), KERNELS.format(self.to), FITS.format(device.memory_bytes / 2**30, self.to)]
        if self.ranks is not None and set(self.ranks) != set(graph.ranks):
            unknown.append(MIXED)
        if (device.kind == "gpu") != graph.runs_on_gpu:
            unknown.append(OTHER_KIND.format(device.kind, "gpu" if graph.runs_on_gpu else "cpu"))
        touched = (is_type(graph, *ON_DEVICE) & _work_of(graph, self.ranks)) | _transfers_of(graph, self.ranks)
        change = HardwareChange(lambda cluster: replace(cluster, device=device), self.ranks)
        return rewritten(graph, touched, tuple(unknown), predicted=touched, hardware=(change,))


LINKS = {"all": ("intra", "inter"), "intra": ("intra",), "inter": ("inter",), "host": ("host_link",)}
SHARE = "what share of its rate the changed link sustains, and who else uses it: the share is that of the link's entry"
LAWS = "what laws of collectives fitted on the old link say of a link of another medium: its specification is taken"


@dataclass(frozen=True)
class ChangeLink:
    """Other links, or faster and slower ones.

    Attributes:
        to: name of the catalog, or a .yaml file; None: the link as it is.
        bandwidth_factor: of its bandwidth; latency_factor: of the latency of a hop.
        rate_gbit_per_s: its bandwidth per device and direction, whatever it was; None: not stated.
        link: all (between ranks), intra (of one node), inter (between nodes), host (to the device).
        collective: the kind of collective that takes it; None all.
        ranks: whose; a transfer goes as fast as its slowest rank's. None all.
    """

    to: str | None = None
    bandwidth_factor: float = 1.0
    latency_factor: float = 1.0
    rate_gbit_per_s: float | None = None
    link: str = "all"
    collective: str | None = None
    ranks: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        require(self.link in LINKS, "link", self.link, ", ".join(LINKS))
        require(self.bandwidth_factor > 0, "bandwidth_factor of a link", self.bandwidth_factor, "above 0")
        require(self.latency_factor >= 0, "latency_factor of a link", self.latency_factor, "0 or more")
        rate = self.rate_gbit_per_s
        require(rate is None or rate > 0, "rate_gbit_per_s of a link", rate, "above 0")
        given = (self.to, rate, self.bandwidth_factor, self.latency_factor)
        require(given != (None, None, 1.0, 1.0), "a link", "no change", "to, rate_gbit_per_s or a factor")
        if self.to is not None:
            load_link(self.to)

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Apply the edit."""
        crossing = self._crossing(graph)
        if not crossing.any():
            what = self.collective or ("copy between host and device" if self.link == "host" else "collective")
            of_ranks = "" if self.ranks is None else f" of ranks {list(self.ranks)}"
            kinds = sorted({str(kind) for kind in graph.nodes["collective"].dropna()})
            raise refusal(graph, f"no {what}{of_ranks}", ", ".join(kinds) or "a run that has one")
        link = None if self.to is None else load_link(self.to)
        unknown = (SHARE, *((LAWS,) if link else ()), *((MIXED,) if self.ranks else ()))
        change = HardwareChange(lambda cluster: self._on(cluster, link), self.ranks, self.collective)
        return rewritten(graph, crossing, unknown, predicted=crossing, hardware=(change,))

    def _crossing(self, graph: ExecutionGraph) -> np.ndarray:
        """[num_nodes] bool: copies, or transfers."""
        of_ranks = _work_of(graph, self.ranks)
        if self.link == "host":
            return of_ranks & is_type(graph, NodeType.MEMORY)
        result = _transfers_of(graph, self.ranks)
        return result if self.collective is None else result & (graph.nodes["collective"] == self.collective).to_numpy()

    def _on(self, cluster: ClusterSpec, link: LinkSpec | None) -> ClusterSpec:
        fields = {field: self._changed(link or getattr(cluster, field)) for field in LINKS[self.link]}
        return replace(cluster, **fields)  # type: ignore[arg-type]

    def _changed(self, link: LinkSpec) -> LinkSpec:
        """A link with the factors and the rate."""
        rate, pair = self.rate_gbit_per_s, link.pair_bandwidth_bytes_per_s
        factor = self.bandwidth_factor * (1.0 if rate is None else rate * 1e9 / 8 / link.bandwidth_bytes_per_s)
        return replace(
            link,
            bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * factor,
            pair_bandwidth_bytes_per_s=None if pair is None else pair * factor,
            latency_us=link.latency_us * self.latency_factor,
        )


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
        given = (self.to, self.nodes, self.ranks_per_node, self.host)
        require(any(one is not None for one in given), "a cluster", "no change", "to, nodes, ranks_per_node or host")
        for key, value in (("nodes", self.nodes), ("ranks_per_node", self.ranks_per_node)):
            require(value is None or value >= 1, f"{key} of a cluster", value, "1 or more")
        if self.to is not None:
            load_cluster(self.to)
        if self.host is not None:
            load_host(self.host)

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Latencies of transfers and copies become unknown, those of hosts where the processor changes."""
        nodes, moves = graph.nodes, self.to is not None or self.host is not None
        touched = is_type(graph, NodeType.COLLECTIVE, NodeType.MEMORY, *((NodeType.HOST,) if moves else ()))
        touched = (touched | (nodes["segment"] == Segment.EXIT).to_numpy()) & nodes["step"].ge(0).to_numpy()
        unknown = (BLOCKS, *((SOFTWARE,) if self.to is not None else ()), *((HOSTS,) if moves else ()))
        change = HardwareChange(lambda cluster: self._on(cluster, graph.world_size))
        return rewritten(graph, touched, unknown, predicted=touched, hardware=(change,))

    def _on(self, cluster: ClusterSpec, world_size: int) -> ClusterSpec:
        """The device of `cluster` in the other one."""
        result = cluster
        if self.to is not None:
            result = load_cluster(self.to, cluster.device)
            if result.host_speed == 1.0 and result.host is not None:  # its file does not say otherwise
                result = replace(result, host_speed=_host_speed(cluster, result.host))
        if self.host is not None:
            host = load_host(self.host)
            result = replace(result, host=host, host_speed=_host_speed(result, host))
        if self.ranks_per_node is not None:
            result = replace(result, ranks_per_node=self.ranks_per_node)
        return spread(replace(result, nodes=self.nodes or result.nodes), world_size)


def _host_speed(old: ClusterSpec, host: HostSpec) -> float:
    """Of the hosts of `old` with another processor, by the ratio of speeds; an unknown processor: as it was."""
    return old.host_speed * (1.0 if old.host is None else host.single_thread_speed / old.host.single_thread_speed)
