"""DeviceIntervals on disk: conf/analytic/unseen_gpu.yaml, written by `research.benchmarks.generations --write`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from gnnperf.analytic import read_constants
from gnnperf.core import require, write_text
from gnnperf.gnn.intervals.devices import DeviceIntervals
from gnnperf.hardware import conf_dir, yaml_text

FILE = "unseen_gpu.yaml"


@dataclass(frozen=True)
class _File:
    provenance: str
    level: Annotated[float, Meta(gt=0.0, lt=1.0)]
    generations: tuple[str, ...]
    log_bounds: Mapping[str, tuple[float, float]]

    def __post_init__(self) -> None:
        for low, high in self.log_bounds.values():
            require(low < high, "log_bounds", [low, high], "a lower and an upper number")


@cache
def shipped_device_intervals() -> DeviceIntervals:
    """Those that ship."""
    return load_device_intervals(conf_dir("analytic") / FILE)


def load_device_intervals(path: Path) -> DeviceIntervals:
    """Read intervals.

    Raises:
        InputError: not readable, an unknown or missing key, or a value of the wrong kind.
    """
    result = read_constants(path, _File)
    return DeviceIntervals(result.level, result.log_bounds, result.generations)


def save_device_intervals(result: DeviceIntervals, provenance: str, path: Path) -> None:
    """Write intervals as YAML: next to `path`, then renamed."""
    bounds = {group: [round(value, 4) for value in pair] for group, pair in result.log_bounds.items()}
    raw = {
        "provenance": provenance,
        "level": result.level,
        "generations": list(result.generations),
        "log_bounds": bounds,
    }
    write_text(path, yaml_text(raw, flow=None))
