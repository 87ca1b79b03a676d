"""All or some ranks run on another device; links and hosts stay.

rank 0   [gemm] as it was  |            |
rank 1   [gemm] on an H100 |all_reduce|      who is done first waits: mixed clusters come out of the schedule
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gnnperf.core import NodeType
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import ClusterSpec, DeviceSpec, load_device
from gnnperf.whatif.edit import Edited, declared_on
from gnnperf.whatif.hardware_change import MIXED, HardwareChange, transfers_of, work_of

ON_DEVICE = (NodeType.COMPUTE, NodeType.MEMORY)
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
        """Refuse an unknown device."""
        load_device(self.to)

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Declare it.

        Raises:
            InputError: the graph has no such rank.
        """
        device = load_device(self.to)
        nodes = graph.nodes
        works = nodes["node_type"].isin([str(t) for t in ON_DEVICE]).to_numpy() & work_of(graph, self.ranks)
        unknown = [AROUND.format(self.to), KERNELS.format(self.to), FITS.format(device.memory_bytes / 2**30, self.to)]
        if self.ranks is not None and set(self.ranks) != set(graph.ranks):
            unknown.append(MIXED)
        if (device.kind == "gpu") != graph.runs_on_gpu:
            unknown.append(OTHER_KIND.format(device.kind, "gpu" if graph.runs_on_gpu else "cpu"))
        touched = works | transfers_of(graph, self.ranks)
        return declared_on(graph, touched, HardwareChange(_Device(device), self.ranks), tuple(unknown))


@dataclass(frozen=True)
class _Device:
    """Cluster -> cluster: another device in it."""

    device: DeviceSpec

    def __call__(self, cluster: ClusterSpec) -> ClusterSpec:
        return replace(cluster, device=self.device)
