"""Measurements behind shipped constants, by device (`research.benchmarks.device_evidence` writes them)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path

from gnnperf.core.errors import InputError
from gnnperf.core.files import write_text
from gnnperf.hardware.conf_folders import conf_dir
from gnnperf.hardware.strict_yaml import read_yaml, yaml_text

FILE = "evidence.yaml"
NUMBERS = ("rows", "fitted")


@dataclass(frozen=True)
class Evidence:
    """Measurements on one device that constants were fitted on.

    Attributes:
        device: name of the catalog.
        source: repository that published them, or the shipped data set.
        license: of the source.
        ops: what was measured, e.g. "bmm", "elementwise", "recordings of training steps".
        dtype: of the ops.
        rows: measurements that the source has of this device.
        fitted: how many of them constants were fitted on.
        constants: file of conf/analytic that holds the constants.
    """

    device: str
    source: str
    license: str
    ops: str
    dtype: str
    rows: int
    fitted: int
    constants: str


KEYS = tuple(f.name for f in fields(Evidence))


@cache
def shipped_evidence() -> tuple[Evidence, ...]:
    """Of the constants that ship."""
    return load_evidence(conf_dir("analytic") / FILE)


def load_evidence(path: Path) -> tuple[Evidence, ...]:
    """Read evidence.

    Raises:
        InputError: not readable, an unknown or missing key, or a value of the wrong kind.
    """
    raw = read_yaml(path).get("evidence")
    if not isinstance(raw, list):
        raise InputError(
            "has no list 'evidence'", where=str(path), remedy="python -m research.benchmarks.device_evidence"
        )
    return tuple(_evidence(one, f"{path}, number {place}") for place, one in enumerate(raw))


def save_evidence(found: Sequence[Evidence], provenance: str, path: Path) -> None:
    """Write evidence as YAML: beside `path`, then renamed."""
    raw = {"provenance": provenance, "evidence": [asdict(one) for one in found]}
    text = yaml_text(raw, flow=None)
    write_text(path, text)


def _evidence(raw: object, where: str) -> Evidence:
    if not isinstance(raw, dict) or set(raw) != set(KEYS):
        odd = sorted(map(str, set(KEYS) ^ set(raw))) if isinstance(raw, dict) else [repr(raw)]
        raise InputError(f"missing or unknown: {', '.join(odd)}", where=where, allowed=", ".join(KEYS))
    for name, value in raw.items():
        kind = int if name in NUMBERS else str
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InputError(f"{name} is {value!r}", where=where, allowed=f"a value of type {kind.__name__}")
    return Evidence(**raw)
