"""MemoryConstants: what the models of memory-bound kernels take as given, and their YAML form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path

from gnnperf.analytic.constant_values import exactly, mapping, not_negative, positive
from gnnperf.core.files import write_text
from gnnperf.hardware.conf_folders import conf_dir
from gnnperf.hardware.strict_yaml import read_yaml, yaml_text

FILE = "memory_bound.yaml"
ROW_KERNELS = ("layer_norm", "softmax_warp", "softmax_block")
SIGNIFICANT = 4  # digits in the file


@dataclass(frozen=True)
class RowKernel:
    """A kernel that gives each row to one block or warp: layer norm, softmax.

    Attributes:
        rereads: how often a row's inputs are read again after the first time.
        cycles_per_row: of an SM of 64 float32 lanes, whatever the row's length.
        cycles_per_element: of the same SM, for each column.
        rows_in_flight_per_sm: rows that an SM works on at a time.
        bandwidth_share: of what a plain stream sustains.
        overlap_power: p of (issue^p + memory^p)^(1/p).
    """

    rereads: float
    cycles_per_row: float
    cycles_per_element: float
    rows_in_flight_per_sm: float
    bandwidth_share: float
    overlap_power: float


@dataclass(frozen=True)
class EventGap:
    """What a pair of events around one eager call adds: see research.tables.observation.

    Attributes:
        call_us: host time between the two events' records.
        issue_share: part of it that passes before the kernel starts.
    """

    call_us: float
    issue_share: float


@dataclass(frozen=True)
class MemorySystem:
    """What one kind of memory sustains.

    Attributes:
        bus_bits: width of its bus; wide ones are HBM.
        pin_bits_per_s: rate of a pin.
        stream_share: sustained / data-sheet bandwidth of long streams.
    """

    bus_bits: float
    pin_bits_per_s: float
    stream_share: float


@dataclass(frozen=True)
class MemoryConstants:
    """Constants of memory-bound kernels.

    Attributes:
        stream_share: sustained / data-sheet bandwidth of long streams, for devices that were not calibrated.
        systems: the same of each memory that was measured; the nearest answers where a device's is known.
        cache_share: part of the last-level cache that keeps what the call before left there.
        cache_speedup: last-level cache's bandwidth over sustained DRAM bandwidth.
        lane_cycles: elementwise op -> cycles of one float32 lane per element; "other" for the rest.
        rows: ROW_KERNELS -> its constants, of all generations together.
        rows_of: generation (`architecture`) -> the same of its own, where it was measured.
        gaps: class of op -> EventGap.
        provenance: where the numbers come from.
    """

    stream_share: float
    cache_share: float
    cache_speedup: float
    lane_cycles: Mapping[str, float]
    rows: Mapping[str, RowKernel]
    gaps: Mapping[str, EventGap] = field(default_factory=dict)
    systems: Mapping[str, MemorySystem] = field(default_factory=dict)
    rows_of: Mapping[str, Mapping[str, RowKernel]] = field(default_factory=dict)
    provenance: str = ""

    def row_kernel(self, name: str, architecture: str | None) -> RowKernel:
        """Constants of one of ROW_KERNELS on a generation; those of all together where it was not measured."""
        return self.rows_of.get(architecture or "", self.rows)[name]


@cache
def default_memory_constants() -> MemoryConstants:
    """The constants that ship, conf/analytic/memory_bound.yaml."""
    return load_memory_constants(conf_dir("analytic") / FILE)


def load_memory_constants(path: Path) -> MemoryConstants:
    """Read constants.

    Raises:
        InputError: not readable, an unknown or missing key, or a value that is no positive number.
    """
    raw = exactly(read_yaml(path), [f.name for f in fields(MemoryConstants)], str(path))
    rows = _rows(raw["rows"], f"{path}, key 'rows'")
    rows_of = mapping(raw["rows_of"], f"{path}, key 'rows_of'")
    gaps = mapping(raw["gaps"], f"{path}, key 'gaps'")
    return MemoryConstants(
        stream_share=positive(raw["stream_share"], f"{path}, key 'stream_share'"),
        cache_share=positive(raw["cache_share"], f"{path}, key 'cache_share'"),
        cache_speedup=positive(raw["cache_speedup"], f"{path}, key 'cache_speedup'"),
        lane_cycles=_numbers(raw["lane_cycles"], None, f"{path}, key 'lane_cycles'"),
        rows=rows,
        rows_of={name: _rows(one, f"{path}, rows_of.{name}") for name, one in rows_of.items()},
        systems={
            name: MemorySystem(**_numbers(one, MemorySystem, f"{path}, systems.{name}"))
            for name, one in mapping(raw["systems"], f"{path}, key 'systems'").items()
        },
        gaps={name: EventGap(**_numbers(gap, EventGap, f"{path}, gaps.{name}")) for name, gap in gaps.items()},
        provenance=str(raw["provenance"]),
    )


def save_memory_constants(constants: MemoryConstants, path: Path) -> None:
    """Write constants as YAML: beside `path`, then renamed."""
    values = {key: _rounded(value) for key, value in asdict(constants).items()}
    raw = {"provenance": values.pop("provenance"), **values}
    write_text(path, yaml_text(raw))


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return float(f"{value:.{SIGNIFICANT}g}") if isinstance(value, float) else value


def _rows(raw: object, where: str) -> dict[str, RowKernel]:
    found = exactly(raw, ROW_KERNELS, where)
    return {name: RowKernel(**_numbers(found[name], RowKernel, f"{where}, {name}")) for name in ROW_KERNELS}


def _numbers(raw: object, kind: type | None, where: str) -> dict[str, float]:
    found = mapping(raw, where) if kind is None else exactly(raw, [f.name for f in fields(kind)], where)
    return {key: not_negative(value, f"{where}.{key}") for key, value in found.items()}
