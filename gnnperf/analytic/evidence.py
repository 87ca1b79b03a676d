"""Measurements behind shipped constants, by device (`research.benchmarks.device_evidence` writes them)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from gnnperf.analytic.constants_file import read_constants
from gnnperf.core import write_text
from gnnperf.hardware import conf_dir, yaml_text

EVIDENCE_FILE = "evidence.yaml"


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


@dataclass(frozen=True)
class EvidenceFile:
    """Content of conf/analytic/evidence.yaml."""

    provenance: str
    evidence: tuple[Evidence, ...]


@cache
def shipped_evidence() -> tuple[Evidence, ...]:
    """Of the constants that ship."""
    return read_constants(conf_dir("analytic") / EVIDENCE_FILE, EvidenceFile).evidence


def save_evidence(found: Sequence[Evidence], provenance: str, path: Path) -> None:
    """Write evidence as YAML: beside `path`, then renamed."""
    raw = {"provenance": provenance, "evidence": [asdict(one) for one in found]}
    write_text(path, yaml_text(raw, flow=None))
