"""DeviceIntervals on disk: conf/analytic/unseen_gpu.yaml, written by `research.benchmarks.generations --write`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from gnnperf.core.errors import InputError
from gnnperf.core.files import write_text
from gnnperf.gnn.intervals.devices import DeviceIntervals
from gnnperf.hardware.conf_folders import conf_dir
from gnnperf.hardware.strict_yaml import read_yaml, yaml_text

FILE = "unseen_gpu.yaml"
KEYS = ("provenance", "level", "generations", "log_bounds")


@cache
def shipped_device_intervals() -> DeviceIntervals:
    """Those that ship."""
    return load_device_intervals(conf_dir("analytic") / FILE)


def load_device_intervals(path: Path) -> DeviceIntervals:
    """Read intervals.

    Raises:
        InputError: not readable, an unknown or missing key, or a value of the wrong kind.
    """
    raw = read_yaml(path)
    if set(raw) != set(KEYS):
        raise InputError(f"missing or unknown: {', '.join(sorted(set(KEYS) ^ set(map(str, raw))))}", where=str(path),
                         allowed=", ".join(KEYS))  # fmt: skip
    level, bounds, generations = raw["level"], raw["log_bounds"], raw["generations"]
    if not isinstance(generations, list):
        raise InputError(f"generations is {generations!r}", where=str(path), allowed="a list of names")
    if not isinstance(level, float) or not 0 < level < 1:
        raise InputError(f"level is {level!r}", where=str(path), allowed="a number between 0 and 1")
    if not isinstance(bounds, dict) or not all(map(_is_pair, bounds.values())):
        raise InputError("log_bounds", where=str(path), allowed="groups with a lower and an upper number each")
    found = {str(group): (float(low), float(high)) for group, (low, high) in bounds.items()}
    return DeviceIntervals(level, found, tuple(map(str, generations)))


def save_device_intervals(found: DeviceIntervals, provenance: str, path: Path) -> None:
    """Write intervals as YAML: beside `path`, then renamed."""
    bounds = {group: [round(value, 4) for value in pair] for group, pair in found.log_bounds.items()}
    raw = {"provenance": provenance, "level": found.level, "generations": list(found.generations), "log_bounds": bounds}
    write_text(path, yaml_text(raw, flow=None))


def _is_pair(value: object) -> bool:
    numbers = isinstance(value, list) and all(isinstance(one, int | float) for one in value)
    return numbers and isinstance(value, list) and len(value) == 2 and value[0] < value[1]
