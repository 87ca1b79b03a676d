"""MemoryConstants: what the models of memory-bound kernels take as given."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gnnperf.analytic.constants_file import shipped
from gnnperf.core import AboveZero, FromZero
from gnnperf.hardware import require_names

MEMORY_BOUND_FILE = "memory_bound.yaml"
ROW_KERNELS = ("layer_norm", "softmax_warp", "softmax_block")


@dataclass(frozen=True)
class RowKernel:
    """A kernel that gives each row to one block or warp: layer norm, softmax."""

    rereads: FromZero  # how often a row's inputs are read again after the first time
    cycles_per_row: FromZero  # of an SM of 64 float32 lanes, whatever the row's length
    cycles_per_element: FromZero  # of the same SM, for each column
    rows_in_flight_per_sm: FromZero  # rows that an SM works on at a time
    bandwidth_share: FromZero  # of what a plain stream sustains
    overlap_power: FromZero  # p of (issue^p + memory^p)^(1/p)


@dataclass(frozen=True)
class EventGap:
    """What a pair of events around one eager call adds: see research.tables.observation."""

    call_us: FromZero  # host time between the two events' records
    issue_share: FromZero  # part of it that passes before the kernel starts


@dataclass(frozen=True)
class MemorySystem:
    """What one kind of memory sustains."""

    bus_bits: FromZero  # width of its bus; wide ones are HBM
    pin_bits_per_s: FromZero  # rate of a pin
    stream_share: FromZero  # sustained / data-sheet bandwidth of long streams


@dataclass(frozen=True)
class ProgramStreams:
    """What kernels of programs reach on a generation whose programs were measured."""

    start_us: AboveZero  # of the shortest kernel
    index_start_us: FromZero  # more of one that loads element by element: its first loads wait for indices
    stream_share: AboveZero  # sustained / data-sheet bandwidth of long streams
    cache_bytes_per_clock: AboveZero  # of one SM, of operands that the op before left in the last-level cache


@dataclass(frozen=True)
class MemoryConstants:
    """Constants of memory-bound kernels."""

    stream_share: AboveZero  # sustained / data-sheet bandwidth of long streams, for devices that were not calibrated
    cache_share: AboveZero  # part of the last-level cache that keeps what the call before left there
    partitioned_share: AboveZero  # the same of a cache in two partitions (`streams.PARTITIONED`)
    cache_bytes_per_clock: AboveZero  # of one SM from the last-level cache
    # elementwise op -> cycles of one float32 lane per element; "other" for the rest
    lane_cycles: Mapping[str, FromZero]
    # What makes a kernel load element by element, and ops that an SM of Ampere does as fast as one of Hopper, which has
    # twice the float32 lanes (dropout's random numbers, gelu's functions) -> cycles of one of an SM's integer lanes.
    index_cycles: Mapping[str, FromZero]
    clocks: Mapping[str, FromZero]  # of steps that a block does one after the other: a row, a target, a level of a sum
    # what cuDNN's backward kernels reach on Hopper of its forward's rate, and how much longer its forward kernel takes
    # that draws a mask of dropout, next to a second one; FLOPs that an SM of Hopper issues in a clock for float32
    attention: Mapping[str, AboveZero]
    # Time of a convolution's product on matrix units over that of a plain product of its sizes: implicit, whose
    # operands are gathered, and unaligned, whose rows are no whole vectors.
    convolution: Mapping[str, AboveZero]
    rows: Mapping[str, RowKernel]  # ROW_KERNELS -> its constants, of all generations together
    gaps: Mapping[str, EventGap] = field(default_factory=dict)  # class of op -> EventGap
    # the same of each memory that was measured; the nearest is taken where a device's is known
    systems: Mapping[str, MemorySystem] = field(default_factory=dict)
    programs: Mapping[str, ProgramStreams] = field(default_factory=dict)  # generation -> its own
    index_start_us: FromZero = 0.0  # as of ProgramStreams; other generations' launch floor has it
    # generation (`architecture`) -> the same of its own, where it was measured
    rows_of: Mapping[str, Mapping[str, RowKernel]] = field(default_factory=dict)
    provenance: str = ""  # where the numbers come from

    def __post_init__(self) -> None:
        for rows in (self.rows, *self.rows_of.values()):
            require_names(rows, ROW_KERNELS, "rows")

    def row_kernel(self, name: str, architecture: str | None) -> RowKernel:
        """Constants of one of ROW_KERNELS on a generation; those of all together where it was not measured."""
        return self.rows_of.get(architecture or "", self.rows)[name]


default_memory_constants = shipped(MEMORY_BOUND_FILE, MemoryConstants)
