"""Hardware as numbers. The catalog itself is YAML in conf/hardware; there is no class per GPU."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Measured:
    """A calibrated quantity, in the unit its name ends with.

    Attributes:
        value: the median over rounds.
        low: a repeat of the calibration is expected above.
        high: ... and below.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class DeviceSpec:
    """One accelerator, or one CPU socket share acting as the device.

    Attributes:
        name: catalog name, e.g. "v100_sxm2_32gb".
        kind: "gpu" or "cpu".
        aliases: names a trace may use, matched case-insensitively ("Tesla V100-SXM2-32GB").
        flops_per_s: peak FLOP/s by dtype; key "float32" without, "float32_matrix" with matrix units.
        memory_bandwidth_bytes_per_s: data-sheet DRAM bandwidth.
        l2_bytes: last-level cache.
        num_sms: SMs or compute units (CPU: cores).
        clock_hz: boost clock.
        memory_bytes: capacity.
        power_limit_w: board power; None unknown.
        launch_floor_us: the shortest kernel.
        sustained_flops_share: sustained / peak FLOP rate (vendor derating until calibrated).
        sustained_bandwidth_share: sustained / peak bandwidth.
        source: where the numbers come from.
        measured: calibrated devices: quantity -> value and interval ("flops_per_s.float32", "launch_floor_us", ...).
        host: calibrated devices: the same for the host ("host_op_us", "profiler_event_us", ...).
        provenance: calibrated devices: when, with which versions, at which clocks.
    """

    name: str
    kind: str
    flops_per_s: dict[str, float]
    memory_bandwidth_bytes_per_s: float
    l2_bytes: float
    num_sms: int
    clock_hz: float
    memory_bytes: float
    power_limit_w: float | None = None
    launch_floor_us: float = 2.0
    sustained_flops_share: float = 0.65
    sustained_bandwidth_share: float = 0.80
    aliases: tuple[str, ...] = ()
    source: str = ""
    measured: dict[str, Measured] = field(default_factory=dict)
    host: dict[str, Measured] = field(default_factory=dict)
    provenance: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LinkSpec:
    """One link class.

    Attributes:
        bandwidth_bytes_per_s: per device and direction, data sheet.
        latency_us: one hop.
        sustained_bandwidth_share: sustained / peak.
    """

    name: str
    bandwidth_bytes_per_s: float
    latency_us: float
    sustained_bandwidth_share: float = 0.80
    source: str = ""


@dataclass(frozen=True)
class ClusterSpec:
    """Devices of one kind in equal nodes, and the links between them.

    Attributes:
        device: what every rank runs on.
        intra: link between ranks of one node.
        inter: link between nodes.
        host_link: link between host memory and device (PCIe), for copies.
        ranks_per_node: ranks sharing `intra`.
        host_speed: host single-thread speed relative to the host the overheads were measured on.
    """

    name: str
    device: DeviceSpec
    intra: LinkSpec
    inter: LinkSpec
    host_link: LinkSpec
    ranks_per_node: int = 8
    host_speed: float = 1.0
    metadata: dict[str, str] = field(default_factory=dict)
