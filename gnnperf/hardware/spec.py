"""Hardware as numbers. The catalog itself is YAML in conf/hardware; there is no class per GPU."""

from dataclasses import dataclass, field

from gnnperf.core import AboveZero, Count, FromZero, ShareAboveZero

MEDIA = ("nvlink", "infinity_fabric", "pcie", "network", "loopback", "memory", "storage")
REFERENCE_CLOCK_HZ = 3.0e9
ANY_DEVICE = "any"
FASTEST, HIERARCHICAL = "fastest", "hierarchical"


@dataclass(frozen=True)
class Measured:
    """A calibrated quantity, in the unit its name ends with."""

    value: FromZero  # the median over rounds
    low: FromZero  # a repeat of the calibration is expected above
    high: FromZero  # ... and below


@dataclass(frozen=True)
class DeviceSpec:
    """One accelerator, or one CPU socket share acting as the device."""

    name: str  # catalog name, e.g. "v100_sxm2_32gb"
    kind: str  # "gpu" or "cpu"
    # peak FLOP/s by dtype, dense; key "float32" without, "float32_matrix" with matrix units
    flops_per_s: dict[str, AboveZero]
    memory_bandwidth_bytes_per_s: AboveZero  # data-sheet DRAM bandwidth
    l2_bytes: AboveZero  # last-level cache
    num_sms: Count  # SMs or compute units (CPU: cores)
    # boost clock, behind the rates without matrix units (shipped CPUs: base clock, which all cores keep)
    clock_hz: AboveZero
    memory_bytes: AboveZero  # capacity
    power_limit_w: AboveZero | None = None  # board power; None unknown
    architecture: str = ""  # generation, e.g. "ampere": what a split by generation leaves out together; "" unknown
    lanes_per_sm: Count | None = None  # float32 multiply-adds an SM finishes per clock; None unknown
    base_clock_hz: AboveZero | None = None  # guaranteed under the power limit; None not published
    matrix_clock_hz: AboveZero | None = None  # behind the rates with matrix units; None: clock_hz
    memory_bus_bits: Count | None = None  # width of the memory bus; None unknown
    memory_pin_bits_per_s: AboveZero | None = None  # data rate of one pin of it; None unknown
    # peak rate of matrix units with 2:4 sparse operands over the dense rate; 1: no such units
    sparse_matrix_speedup: AboveZero = 1.0
    launch_floor_us: FromZero = 2.0  # the shortest kernel
    sustained_flops_share: ShareAboveZero = 0.65  # sustained / peak FLOP rate (vendor derating until calibrated)
    sustained_bandwidth_share: ShareAboveZero = 0.80  # sustained / peak bandwidth
    # names a trace or a table may use, matched case-insensitively ("Tesla V100-SXM2-32GB")
    aliases: tuple[str, ...] = ()
    source: str = ""  # where the numbers come from
    # calibrated devices: quantity -> value and interval ("flops_per_s.float32", "launch_floor_us", ...)
    measured: dict[str, Measured] = field(default_factory=dict)
    # calibrated devices: the same for the host ("host_op_us", "profiler_event_us", ...)
    host: dict[str, Measured] = field(default_factory=dict)
    # calibrated devices: when, with which versions, at which clocks
    provenance: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LinkSpec:
    """One link class."""

    name: str
    bandwidth_bytes_per_s: AboveZero  # per device and direction, data sheet
    latency_us: FromZero  # one hop
    sustained_bandwidth_share: ShareAboveZero = 0.80  # sustained / peak
    source: str = ""  # where the numbers come from
    medium: str = ""  # one of MEDIA; "" unknown
    # between two devices, per direction, where a device's links lead to different peers; None: all of it (switched, or
    # one link)
    pair_bandwidth_bytes_per_s: AboveZero | None = None
    # the switches can add up (NVLS, SHARP); whether a job uses it is the library's choice
    in_network_reduction: bool = False
    # where a token bucket limits the bandwidth (tc tbf, instances of clouds): so much passes after a pause before the
    # limit is felt; None: not limited so, or not stated
    bucket_bytes: AboveZero | None = None

    @property
    def sustained_bytes_per_s(self) -> float:
        """What the link carries, per device and direction."""
        return self.bandwidth_bytes_per_s * self.sustained_bandwidth_share


@dataclass(frozen=True)
class HostSpec:
    """A host processor: what host overheads scale with."""

    name: str
    clock_hz: AboveZero  # highest clock of one core
    work_per_clock: AboveZero  # of one thread, relative to a Skylake-SP core
    num_cores: Count  # per socket
    aliases: tuple[str, ...] = ()  # names a trace or /proc/cpuinfo may use
    source: str = ""  # where the numbers come from, and what is an assumption
    # per socket: channels x transfers per second x 8 bytes; None not stated
    memory_bandwidth_bytes_per_s: AboveZero | None = None

    @property
    def single_thread_speed(self) -> float:
        """Relative to a Skylake-SP core at REFERENCE_CLOCK_HZ; host overheads are inversely proportional to it."""
        return self.clock_hz / REFERENCE_CLOCK_HZ * self.work_per_clock


@dataclass(frozen=True)
class ClusterSpec:
    """Devices of one kind in equal nodes, and the links between them."""

    name: str
    device: DeviceSpec  # what every rank runs on
    intra: LinkSpec  # link between ranks of one node
    inter: LinkSpec  # link between nodes
    host_link: LinkSpec  # link between host memory and device (PCIe), for copies
    ranks_per_node: Count = 8  # ranks sharing `intra`
    host_speed: AboveZero = 1.0  # host single-thread speed relative to the host that the overheads hold for
    metadata: dict[str, str] = field(default_factory=dict)
    nodes: Count | None = None  # how many nodes the ranks are divided over, in equal blocks; None: as many as they need
    host: HostSpec | None = None  # the processor of a node; None unknown
    # per rank the processor cores it is bound to, numbered over nodes; empty: a node's ranks share them
    core_sets: tuple[tuple[int, ...], ...] = ()
    # device name -> models of its collectives in this cluster (conf/analytic/collective_models, or a .yaml file);
    # ANY_DEVICE: whatever the device. Where none is named, links and NCCL's estimates are used.
    collectives: dict[str, str] = field(default_factory=dict)
    # over several nodes: the "fastest" that the library has, or "hierarchical", machine by machine
    all_reduce: str = FASTEST
    host_sockets: Count | None = None  # processors of a node; None not stated
    storage: LinkSpec | None = None  # drives of a node, as much of them as one device has to itself; None: not stated
    # ways out of a node, each as `inter`; None: one for each GPU, one for all ranks on CPUs
    adapters_per_node: Count | None = None

    @property
    def adapters(self) -> int:
        """Ways out of a node that its ranks can use, one at most for each of them."""
        usual = self.ranks_per_node if self.device.kind == "gpu" else 1
        return min(self.adapters_per_node or usual, self.ranks_per_node)

    @property
    def ranks_per_adapter(self) -> int:
        """Ranks that share a way out of their node."""
        return -(-self.ranks_per_node // self.adapters)

    @property
    def host_memory_bytes_per_s(self) -> float | None:
        """Of a rank, while all ranks of its node read and write host memory; None: host or sockets are not stated."""
        per_socket = None if self.host is None else self.host.memory_bandwidth_bytes_per_s
        if per_socket is None or self.host_sockets is None:
            return None
        return per_socket * self.host_sockets / self.ranks_per_node

    @property
    def collective_models_name(self) -> str | None:
        """Name or path of the models for the cluster's device; None: by specification."""
        return self.collectives.get(self.device.name, self.collectives.get(ANY_DEVICE))
