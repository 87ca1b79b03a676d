"""Other devices, links and clusters: the graph stays, the predictor takes another cluster."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gnnperf import hardware
from gnnperf.core import NodeType, Segment, require
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.edit import ON_DEVICE, Edited, HardwareChange, is_type, refusal, rewritten


def cluster_after(cluster: hardware.ClusterSpec, changes: Sequence[HardwareChange]) -> hardware.ClusterSpec:
    """The cluster after all changes, made one after the other.

    Raises:
        InputError: a change does not fit the cluster, or the cluster cannot run the edited graph.
    """
    for change in changes:
        cluster = change.on(cluster)
    for change in changes:
        if change.check is not None:
            change.check(cluster)
    return cluster


AROUND = "which links and hosts come with {}: those of the cluster stay, the edits cluster and link change them"
KERNELS = "which kernels libraries choose on {}: ops, their number and their order stay"
FITS = "whether what a rank holds fits into the {:.0f} GiB of {}"
OTHER_KIND = "what a {} does otherwise than a {}: which work is launched and what waits for it stays"


@dataclass(frozen=True)
class ChangeDevice:
    """All ranks run on another device; links and hosts stay."""

    to: str  # name of the catalog, or a .yaml file

    def __post_init__(self) -> None:
        hardware.load_device(self.to)

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Apply the edit."""
        device = hardware.load_device(self.to)
        unknown = [AROUND.format(self.to), KERNELS.format(self.to), FITS.format(device.memory_bytes / 2**30, self.to)]
        if (device.kind == "gpu") != graph.runs_on_gpu:
            unknown.append(OTHER_KIND.format(device.kind, "gpu" if graph.runs_on_gpu else "cpu"))
        touched = is_type(graph, *ON_DEVICE, NodeType.COLLECTIVE)
        change = HardwareChange(lambda cluster: replace(cluster, device=device))
        return rewritten(graph, touched, tuple(unknown), predicted=touched, hardware=(change,))


LINKS = {"all": ("intra", "inter"), "intra": ("intra",), "inter": ("inter",), "host": ("host_link",)}
SHARE = "what share of its rate the changed link sustains, and who else uses it: the share is that of the link's entry"
COLLECTIVES = "what models of collectives fitted on the old link predict for another medium: its specification is taken"


@dataclass(frozen=True)
class ChangeLink:
    """Other links, or faster and slower ones."""

    to: str | None = None  # name of the catalog, or a .yaml file; None: the link as it is
    bandwidth_factor: float = 1.0  # of its bandwidth
    latency_factor: float = 1.0  # of the latency of a hop
    rate_gbit_per_s: float | None = None  # its bandwidth per device and direction, whatever it was; None: not stated
    link: str = "all"  # all (between ranks), intra (of one node), inter (between nodes), host (to the device)

    def __post_init__(self) -> None:
        require(self.link in LINKS, "link", self.link, ", ".join(LINKS))
        require(self.bandwidth_factor > 0, "bandwidth_factor of a link", self.bandwidth_factor, "above 0")
        require(self.latency_factor >= 0, "latency_factor of a link", self.latency_factor, "0 or more")
        rate = self.rate_gbit_per_s
        require(rate is None or rate > 0, "rate_gbit_per_s of a link", rate, "above 0")
        given = (self.to, rate, self.bandwidth_factor, self.latency_factor)
        require(given != (None, None, 1.0, 1.0), "a link", "no change", "to, rate_gbit_per_s or a factor")
        if self.to is not None:
            hardware.load_link(self.to)

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Apply the edit."""
        crossing = is_type(graph, NodeType.MEMORY if self.link == "host" else NodeType.COLLECTIVE)
        if not crossing.any():
            what = "copy between host and device" if self.link == "host" else "collective"
            raise refusal(graph, f"no {what}", "a run that has one")
        link = None if self.to is None else hardware.load_link(self.to)
        change = HardwareChange(lambda cluster: self._on(cluster, link))
        return rewritten(
            graph, crossing, (SHARE, *((COLLECTIVES,) if link else ())), predicted=crossing, hardware=(change,)
        )

    def _on(self, cluster: hardware.ClusterSpec, link: hardware.LinkSpec | None) -> hardware.ClusterSpec:
        fields = {field: self._changed(link or getattr(cluster, field)) for field in LINKS[self.link]}
        return replace(cluster, **fields)  # type: ignore[arg-type]

    def _changed(self, link: hardware.LinkSpec) -> hardware.LinkSpec:
        """A link with the factors and the rate."""
        rate, pair = self.rate_gbit_per_s, link.pair_bandwidth_bytes_per_s
        factor = self.bandwidth_factor * (1.0 if rate is None else rate * 1e9 / 8 / link.bandwidth_bytes_per_s)
        return replace(
            link,
            bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * factor,
            pair_bandwidth_bytes_per_s=None if pair is None else pair * factor,
            latency_us=link.latency_us * self.latency_factor,
        )


SOFTWARE = "which software another cluster runs: the library's choices are those of its links or fitted models"
BLOCKS = "which ranks share a node: equal blocks of neighbors do"
HOSTS = ("how each host overhead follows the host: all move by the ratio of single-thread speeds, where both clusters "
         "name their host")  # fmt: skip


@dataclass(frozen=True)
class ChangeCluster:
    """The same ranks and devices in another cluster: its links, hosts, ranks per node."""

    to: str | None = None  # name of the catalog, or a .yaml file; None: the cluster as it is, with what else is stated
    nodes: int | None = None  # how many nodes the ranks are divided over, in equal blocks; None: as in the cluster
    ranks_per_node: int | None = None  # devices of a node; None: as in the cluster
    host: str | None = None  # processor of the nodes, a name of the catalog or a .yaml file; None: the cluster's

    def __post_init__(self) -> None:
        given = (self.to, self.nodes, self.ranks_per_node, self.host)
        require(any(one is not None for one in given), "a cluster", "no change", "to, nodes, ranks_per_node or host")
        for key, value in (("nodes", self.nodes), ("ranks_per_node", self.ranks_per_node)):
            require(value is None or value >= 1, f"{key} of a cluster", value, "1 or more")
        if self.to is not None:
            hardware.load_cluster(self.to)
        if self.host is not None:
            hardware.load_host(self.host)

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Latencies of transfers and copies become unknown, those of hosts where the processor changes."""
        nodes, moves = graph.nodes, self.to is not None or self.host is not None
        touched = is_type(graph, NodeType.COLLECTIVE, NodeType.MEMORY, *((NodeType.HOST,) if moves else ()))
        touched = (touched | (nodes["segment"] == Segment.EXIT).to_numpy()) & nodes["step"].ge(0).to_numpy()
        unknown = (BLOCKS, *((SOFTWARE,) if self.to is not None else ()), *((HOSTS,) if moves else ()))
        change = HardwareChange(lambda cluster: self._on(cluster, graph.world_size))
        return rewritten(graph, touched, unknown, predicted=touched, hardware=(change,))

    def _on(self, cluster: hardware.ClusterSpec, world_size: int) -> hardware.ClusterSpec:
        """The device of `cluster` in the other one."""
        result = cluster
        if self.to is not None:
            result = hardware.load_cluster(self.to, cluster.device)
        if self.host is not None:
            host, before = hardware.load_host(self.host), result.host or hardware.load_host(hardware.REFERENCE_HOST)
            speed = result.host_speed * host.single_thread_speed / before.single_thread_speed
            result = replace(result, host=host, host_speed=speed)  # an unknown host counts as the reference
        if self.ranks_per_node is not None:
            result = replace(result, ranks_per_node=self.ranks_per_node)
        return hardware.spread(replace(result, nodes=self.nodes or result.nodes), world_size)
