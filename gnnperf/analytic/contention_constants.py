"""ContentionConstants: what overlapping work takes from each other, per kind of device."""

from dataclasses import dataclass
from functools import cache

from gnnperf.analytic.constants_file import FromOne, read_constants
from gnnperf.hardware import UNLIMITED, Bucket, ClusterSpec, Contention, conf_dir

FILE = "contention.yaml"


@dataclass(frozen=True)
class CpuContention:
    """What a transfer takes of the cores that its ranks' threads share."""

    # bytes of messages that one core moves per second between processes of one machine
    loopback_core_bytes_per_s: FromOne
    network_core_bytes_per_s: FromOne  # ... and over a network.


@dataclass(frozen=True)
class ContentionConstants:
    """Constants of CPUs, and where they come from. Kernels and transfers of a GPU slow each other in no data."""

    cpu: CpuContention
    provenance: str

    def on(self, cluster: ClusterSpec) -> Contention:
        """What overlapping work shares on a cluster: links per device of GPUs, cores of CPUs, ways out of nodes."""
        if cluster.device.kind == "gpu":
            return Contention(
                ranks_per_node=cluster.ranks_per_node, ranks_per_inner_link=1,
                ranks_per_outer_link=cluster.ranks_per_adapter, outer_bucket=_bucket_of(cluster, UNLIMITED),
            )  # fmt: skip
        inner, outer = self.cpu.loopback_core_bytes_per_s, self.cpu.network_core_bytes_per_s
        return Contention(
            ranks_per_node=cluster.ranks_per_node, ranks_per_outer_link=cluster.ranks_per_adapter,
            cores_per_node=float(cluster.device.num_sms), core_sets=cluster.core_sets,
            inner_core_bytes_per_s=inner, outer_core_bytes_per_s=outer, outer_bucket=_bucket_of(cluster, outer),
        )  # fmt: skip


def _bucket_of(cluster: ClusterSpec, moved_bytes_per_s: float) -> Bucket | None:
    """Bytes that have tokens pass as fast as they are moved, at most as fast as within a machine."""
    if cluster.inter.bucket_bytes is None:
        return None
    at_once = min(cluster.intra.sustained_bytes_per_s, moved_bytes_per_s)
    return Bucket(cluster.inter.bucket_bytes, cluster.inter.sustained_bytes_per_s, at_once)


@cache
def default_contention() -> ContentionConstants:
    """The constants that ship, conf/analytic/contention.yaml."""
    return read_constants(conf_dir("analytic") / FILE, ContentionConstants)
