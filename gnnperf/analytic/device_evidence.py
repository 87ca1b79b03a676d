"""Every device of the catalog with the evidence behind predictions for it, computed from the sources of constants.

measured     constants were fitted on ops of this device
few-shot     ... on fewer than LEAST_ROWS of them
zero-shot    by specification: nothing of this device was measured; devices next to it are evidence of the error
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from gnnperf.analytic.constants_file import read_constants
from gnnperf.analytic.kernels.dispatch import has_forms
from gnnperf.hardware import DeviceSpec, conf_dir, default_cluster, device_names, load_device

# Measurements behind shipped constants, by device (`research.benchmarks.device_evidence` writes them).

EVIDENCE_FILE = "evidence.yaml"


@dataclass(frozen=True)
class Evidence:
    """Measurements on one device that constants were fitted on."""

    device: str  # name of the catalog
    source: str  # repository that published them, or the shipped data set
    license: str  # of the source
    ops: str  # what was measured, e.g. "bmm", "elementwise", "recordings of training steps".
    dtype: str  # of the ops
    rows: int  # measurements that the source has of this device
    fitted: int  # how many of them constants were fitted on
    constants: str  # file of conf/analytic that holds the constants


@dataclass(frozen=True)
class EvidenceFile:
    """Content of conf/analytic/evidence.yaml."""

    provenance: str
    evidence: tuple[Evidence, ...]


@cache
def shipped_evidence() -> tuple[Evidence, ...]:
    """Of the constants that ship."""
    return read_constants(conf_dir("analytic") / EVIDENCE_FILE, EvidenceFile).evidence


LEAST_ROWS = 256


class Standing(StrEnum):
    """What predictions for a device rest on."""

    MEASURED = "measured"
    FEW_SHOT = "few-shot"
    ZERO_SHOT = "zero-shot"


@dataclass(frozen=True)
class DeviceEvidence:
    """One device."""

    device: DeviceSpec  # its specification
    standing: Standing  # what predictions rest on
    evidence: tuple[Evidence, ...]  # measurements of it that constants were fitted on
    next_to: tuple[str, ...]  # the nearest measured devices: of the same chip, else of the same generation; () none
    same_chip: bool  # whether those have the same chip
    collective_models_name: str | None  # fitted models that its default cluster names; None: links by specification

    @property
    def statement(self) -> str:
        """The evidence in words."""
        if self.evidence:
            return "; ".join(_counts(self.evidence))
        if self.device.kind == "cpu":
            return "specification; prices per op of another CPU, moved by rates per core"
        if not has_forms(self.device):
            return "specification; a roofline per kind of op, of recordings on mi300x"
        if self.next_to:
            return f"specification; same {'chip' if self.same_chip else 'generation'}: {', '.join(self.next_to)}"
        return "specification; nothing of its generation was measured"


def catalog_evidence(result: Sequence[Evidence] | None = None) -> list[DeviceEvidence]:
    """Every device of the catalog, by name."""
    every = shipped_evidence() if result is None else tuple(result)
    devices = [load_device(name) for name in device_names()]
    measured = [device for device in devices if any(one.device == device.name for one in every)]
    return [_of(device, every, measured) for device in devices]


def _of(device: DeviceSpec, every: Sequence[Evidence], measured: Sequence[DeviceSpec]) -> DeviceEvidence:
    own = tuple(one for one in every if one.device == device.name)
    kin = [m for m in measured if device.kind == "gpu" and m.architecture and m.architecture == device.architecture]
    chip = [m for m in kin if m.num_sms == device.num_sms]
    near = tuple(m.name for m in chip or kin) if not own and has_forms(device) else ()
    collective_models = default_cluster(device).collective_models_name
    standing = Standing.MEASURED if sum(one.fitted for one in own) >= LEAST_ROWS else Standing.FEW_SHOT
    standing = standing if own else Standing.ZERO_SHOT
    return DeviceEvidence(device, standing, own, near, bool(near and chip), collective_models)


def _counts(result: Sequence[Evidence]) -> Iterator[str]:
    """A text per source and dtype: how many rows of which ops constants were fitted on."""
    for source, dtype in dict.fromkeys((one.source, one.dtype) for one in result):
        here = [one for one in result if (one.source, one.dtype) == (source, dtype)]
        yield f"{source}, {dtype}: " + ", ".join(f"{one.ops} {one.fitted:,}" for one in here)
