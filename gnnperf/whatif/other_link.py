"""Other links, or the same ones faster or slower: all, one kind of link, of one kind of collective, of some ranks.

before   [all_reduce] 1 Gbit/s, 30 us a hop
after    [all_reduce] 5 Gbit/s, 30 us a hop        rate_gbit_per_s=5, or bandwidth_factor=5, or another link (to)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnnperf.core import InputError, NodeType, require
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import ClusterSpec, LinkSpec, load_link
from gnnperf.whatif.edit import Edited, declared_on
from gnnperf.whatif.hardware_change import MIXED, HardwareChange, transfers_of, work_of

LINKS = {"all": ("intra", "inter"), "intra": ("intra",), "inter": ("inter",), "host": ("host_link",)}
SHARE = "what share of its rate the changed link sustains, and who else uses it: the share is that of the link's entry"
LAWS = "what laws of collectives fitted on the old link say of a link of another medium: its specification answers"


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
        """Refuse what is no link and changes nothing."""
        require(self.link in LINKS, "link", self.link, ", ".join(LINKS))
        require(self.bandwidth_factor > 0, "bandwidth_factor of a link", self.bandwidth_factor, "above 0")
        require(self.latency_factor >= 0, "latency_factor of a link", self.latency_factor, "0 or more")
        rate = self.rate_gbit_per_s
        require(rate is None or rate > 0, "rate_gbit_per_s of a link", rate, "above 0")
        sentences = (self.to, rate, self.bandwidth_factor, self.latency_factor)
        require(sentences != (None, None, 1.0, 1.0), "a link", "no change", "to, rate_gbit_per_s or a factor")
        if self.to is not None:
            load_link(self.to)

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Declare it.

        Raises:
            InputError: the graph has no such rank, or nothing that crosses such a link.
        """
        crossing = self._crossing(graph)
        if not crossing.any():
            what = self.collective or ("copy between host and device" if self.link == "host" else "collective")
            of_ranks = "" if self.ranks is None else f" of ranks {list(self.ranks)}"
            kinds = ", ".join(_kinds(graph)) or "a run that has one"
            raise InputError(f"no {what}{of_ranks}", where=f"graph {graph.name!r}", allowed=kinds)
        link = None if self.to is None else load_link(self.to)
        change = HardwareChange(_Links(self, link), self.ranks, self.collective)
        unknown = (SHARE, *((LAWS,) if link else ()), *((MIXED,) if self.ranks else ()))
        return declared_on(graph, crossing, change, unknown)

    def _crossing(self, graph: ExecutionGraph) -> np.ndarray:
        """[num_nodes] bool: copies, or transfers."""
        of_ranks = work_of(graph, self.ranks)
        if self.link == "host":
            return of_ranks & (graph.nodes["node_type"] == NodeType.MEMORY).to_numpy()
        result = transfers_of(graph, self.ranks)
        return result if self.collective is None else result & (graph.nodes["collective"] == self.collective).to_numpy()

    def changed(self, link: LinkSpec) -> LinkSpec:
        """A link with the factors and the rate."""
        rate = self.rate_gbit_per_s
        factor = self.bandwidth_factor * (1.0 if rate is None else rate * 1e9 / 8 / link.bandwidth_bytes_per_s)
        pair = link.pair_bandwidth_bytes_per_s
        return replace(
            link,
            bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * factor,
            pair_bandwidth_bytes_per_s=None if pair is None else pair * factor,
            latency_us=link.latency_us * self.latency_factor,
        )


@dataclass(frozen=True)
class _Links:
    """Cluster -> cluster: other links in it."""

    edit: ChangeLink
    link: LinkSpec | None

    def __call__(self, cluster: ClusterSpec) -> ClusterSpec:
        for field in LINKS[self.edit.link]:
            new = self.edit.changed(self.link or getattr(cluster, field))
            cluster = replace(cluster, **{field: new})  # type: ignore[arg-type]
        return cluster


def _kinds(graph: ExecutionGraph) -> list[str]:
    return sorted({str(kind) for kind in graph.nodes["collective"].dropna()})
