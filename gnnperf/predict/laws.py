"""Which laws of collectives a prediction goes by: as asked, else as the cluster says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gnnperf.analytic import laws_named, laws_of
from gnnperf.hardware import ANY_DEVICE, ClusterSpec

SPECIFICATION = "specification"  # the one word that is no name of laws


def check_laws(collectives: str | None) -> None:
    """Refuse a name or file that holds no laws, before a trace is read.

    Raises:
        InputError: with the closest names, or what is wrong with the file.
    """
    if collectives not in (None, SPECIFICATION):
        laws_named(str(collectives))


def with_laws(cluster: ClusterSpec, collectives: str) -> ClusterSpec:
    """The cluster with these laws, whatever its device; SPECIFICATION: with none."""
    return replace(cluster, collectives={} if collectives == SPECIFICATION else {ANY_DEVICE: collectives})


def laws_text(cluster: ClusterSpec) -> str:
    """Name and provenance of what answers collectives; file names without their folders.

    Raises:
        InputError: the cluster names laws that are not there.
    """
    laws, name = laws_of(cluster), cluster.collective_laws
    if laws is None or name is None:
        return f"by specification: the links of cluster {cluster.name}"
    if not laws.laws:
        return f"by specification: {Path(name).name} was fitted on links of another kind"
    return f"{Path(name).name}: {laws.provenance}"
