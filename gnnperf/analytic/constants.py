"""AnalyticConstants, what the analytical model takes as given, and ContentionConstants: YAML form, values that ship."""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from gnnperf.analytic.constants_file import constants_from, shipped
from gnnperf.analytic.cpu.coefficients import OpCoefficients
from gnnperf.core import FromOne, NotNegative, require
from gnnperf.hardware import UNLIMITED, Bucket, ClusterSpec, Contention, conf_dir, read_yaml, require_names

SEGMENTS = ("T1", "T2", "T3", "T4", "T5", "arrive", "exit")
LAG_CLASSES = ("launch", "stream", "event", "sync", "thread", "copy")
DEVICE_KINDS = ("gpu", "cpu")
GRAPH_LAUNCH = ("call", "kernel")
KEYS = {"segment_us": SEGMENTS, "lag_us": DEVICE_KINDS, "graph_launch_us": GRAPH_LAUNCH,
        "collective_floor_us": DEVICE_KINDS, "copy_floor_us": DEVICE_KINDS}  # fmt: skip


@dataclass(frozen=True)
class AnalyticConstants:
    """Constants of the analytical model."""

    # (segment, op name) -> own host time of one such node
    host_overhead_us: dict[tuple[str, str], NotNegative] = field(default_factory=dict)
    segment_us: dict[str, NotNegative] = field(default_factory=dict)  # of a node whose op is not in `host_overhead_us`
    # device kind -> lag class -> delay along an edge of that class
    lag_us: dict[str, dict[str, NotNegative]] = field(default_factory=dict)
    graph_launch_us: dict[str, NotNegative] = field(default_factory=dict)  # of a "call", and of each "kernel" under it
    # device kind -> start-up of one collective, next to its hops
    collective_floor_us: dict[str, NotNegative] = field(default_factory=dict)
    # device kind -> start-up of one copy or memset, next to the link's latency
    copy_floor_us: dict[str, NotNegative] = field(default_factory=dict)
    # bandwidth of a copy from or to pageable host memory, relative to pinned
    pageable_share: Annotated[float, Meta(gt=1e-6, le=1e12)] = 0.5
    roofline_power: Annotated[float, Meta(gt=1.0, le=1e12)] = 4.0  # p of (compute^p + memory^p)^(1/p); large: hard
    op_prices: OpCoefficients | None = None  # what ops cost on a CPU; None: the roofline there, too
    device_kind: str = ""  # of the devices that these numbers hold for; "": any
    provenance: str = ""  # where the numbers come from

    def __post_init__(self) -> None:
        require(self.device_kind in ("", *DEVICE_KINDS), "device_kind", self.device_kind, ", ".join(DEVICE_KINDS))
        for segment, op in self.host_overhead_us:
            require(segment in SEGMENTS, "host_overhead_us", (segment, op), ", ".join(SEGMENTS))


@cache
def default_constants(device_kind: str = "gpu") -> AnalyticConstants:
    """The constants that ship for devices of a kind (DEVICE_KINDS): conf/analytic/gpu.yaml, cpu.yaml."""
    return load_constants(conf_dir("analytic") / f"{device_kind}.yaml")


def load_constants(path: Path) -> AnalyticConstants:
    """Read constants.

    Raises:
        InputError: not readable, an unknown or missing key, or a value that is no number from 0 up.
    """
    return constants_from_plain(read_yaml(path), str(path))


def constants_from_plain(raw: object, where: str) -> AnalyticConstants:
    """The constants in plain values: of a YAML file, or of a checkpoint.

    Raises:
        InputError: an unknown or missing key, or a value that is no number from 0 up.
    """
    result = constants_from(raw, AnalyticConstants, where)
    for name, keys in KEYS.items():
        require_names(getattr(result, name), keys, f"{where}, {name}")
    for kind in DEVICE_KINDS:
        require_names(result.lag_us[kind], LAG_CLASSES, f"{where}, lag_us.{kind}")
    return result


CONTENTION_FILE = "contention.yaml"


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


default_contention = shipped(CONTENTION_FILE, ContentionConstants)
