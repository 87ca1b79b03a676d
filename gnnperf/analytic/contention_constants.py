"""ContentionConstants: what overlapping work takes from each other, per kind of device; its YAML form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path

from gnnperf.core.errors import InputError
from gnnperf.core.files import write_text
from gnnperf.hardware.conf_folders import conf_dir
from gnnperf.hardware.contention import UNLIMITED, Bucket, Contention
from gnnperf.hardware.spec import ClusterSpec
from gnnperf.hardware.strict_yaml import read_yaml, yaml_text


@dataclass(frozen=True)
class GpuContention:
    """Slowdowns on a GPU, 1 or more; 1 where the measurements show none.

    Attributes:
        compute_slowdown: of matrix products, convolutions and attention while a collective's kernel runs beside them.
        memory_slowdown: of all other kernels and copies.
        transfer_slowdown: of a collective's transfer while kernels run on one of its devices.
    """

    compute_slowdown: float
    memory_slowdown: float
    transfer_slowdown: float


@dataclass(frozen=True)
class CpuContention:
    """What a transfer takes of the cores that its ranks' threads share.

    Attributes:
        loopback_core_bytes_per_s: bytes of messages that one core moves per second between processes of one machine.
        network_core_bytes_per_s: ... and over a network.
    """

    loopback_core_bytes_per_s: float
    network_core_bytes_per_s: float


@dataclass(frozen=True)
class ContentionConstants:
    """Constants per kind of device, and where they come from."""

    gpu: GpuContention
    cpu: CpuContention
    provenance: str

    def on(self, cluster: ClusterSpec) -> Contention:
        """What overlapping work shares on a cluster: links per device of GPUs, cores of CPUs, ways out of nodes."""
        if cluster.device.kind == "gpu":
            return Contention(
                **asdict(self.gpu), ranks_per_node=cluster.ranks_per_node, ranks_per_inner_link=1,
                ranks_per_outer_link=cluster.ranks_per_adapter, outer_bucket=_bucket_of(cluster, UNLIMITED),
            )  # fmt: skip
        return Contention(
            ranks_per_node=cluster.ranks_per_node,
            ranks_per_outer_link=cluster.ranks_per_adapter,
            cores_per_node=float(cluster.device.num_sms),
            core_sets=cluster.core_sets,
            inner_core_bytes_per_s=self.cpu.loopback_core_bytes_per_s,
            outer_core_bytes_per_s=self.cpu.network_core_bytes_per_s,
            outer_bucket=_bucket_of(cluster, self.cpu.network_core_bytes_per_s),
        )


def _bucket_of(cluster: ClusterSpec, moved_bytes_per_s: float) -> Bucket | None:
    """Bytes that have tokens pass as fast as they are moved, at most as fast as within a machine."""
    if cluster.inter.bucket_bytes is None:
        return None
    at_once = min(cluster.intra.sustained_bytes_per_s, moved_bytes_per_s)
    return Bucket(cluster.inter.bucket_bytes, cluster.inter.sustained_bytes_per_s, at_once)


@cache
def default_contention() -> ContentionConstants:
    """The constants that ship, conf/analytic/contention.yaml."""
    return load_contention(conf_dir("analytic") / "contention.yaml")


def load_contention(path: Path) -> ContentionConstants:
    """Read constants.

    Raises:
        InputError: not readable, an unknown or missing key, a slowdown below 1 or a rate not above 0.
    """
    raw = read_yaml(path)
    _exactly(raw, tuple(f.name for f in fields(ContentionConstants)), str(path))
    gpu = _numbers(raw["gpu"], tuple(f.name for f in fields(GpuContention)), 1.0, f"{path}, key 'gpu'")
    cpu = _numbers(raw["cpu"], tuple(f.name for f in fields(CpuContention)), 1.0, f"{path}, key 'cpu'")
    return ContentionConstants(GpuContention(**gpu), CpuContention(**cpu), str(raw["provenance"]))


def save_contention(constants: ContentionConstants, path: Path) -> None:
    """Write constants as YAML: beside `path`, then renamed."""
    write_text(path, yaml_text(asdict(constants)))


def _exactly(raw: object, keys: tuple[str, ...], where: str) -> Mapping[str, object]:
    if not isinstance(raw, dict) or set(raw) != set(keys):
        found = ", ".join(map(str, raw)) if isinstance(raw, dict) else repr(raw)
        raise InputError(f"has the keys {found}", where=where, allowed=", ".join(keys))
    return raw


def _numbers(raw: object, keys: tuple[str, ...], least: float, where: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for key, value in _exactly(raw, keys, where).items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not least <= float(value) < float("inf"):  # type: ignore[arg-type]
            raise InputError(f"value {value!r} of {key!r}", where=where, allowed=f"a number from {least:g} up")
        found[key] = float(value)  # type: ignore[arg-type]
    return found
