"""Which hardware a run ran on."""

from __future__ import annotations

from dataclasses import replace

from gnnperf.core import InputError
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import (
    ClusterSpec,
    DeviceSpec,
    default_cluster,
    device_names,
    load_device,
    match_device,
    placed,
    spread,
)

GENERIC_CPU = "cpu_generic"


def cluster_for(graph: ExecutionGraph, hardware: DeviceSpec | None, cluster: ClusterSpec | None) -> ClusterSpec:
    """The cluster of a run: as configured, else as its trace names the device.

    Args:
        graph: the run.
        hardware: the device; None: the trace's own.
        cluster: links and hosts, with whatever devices; None: the device's default, placed as the run's card says.

    Raises:
        InputError: a device that the catalog lacks, ranks on different devices, or more than the cluster holds.
    """
    device = hardware or _traced_device(graph)
    if cluster:
        return spread(replace(cluster, device=device), graph.world_size)
    return placed(default_cluster(device), graph.placement, graph.world_size)


def _traced_device(graph: ExecutionGraph) -> DeviceSpec:
    names = sorted(set(graph.device_names)) or [""]
    if names == [""] and not graph.runs_on_gpu:
        return load_device(GENERIC_CPU)  # processors go unnamed
    found = match_device(names[0])
    if len(names) > 1 or found is None:
        what = f"ranks on {names}" if len(names) > 1 else f"device {names[0]!r} is not in the catalog"
        remedy = "pass hardware=NAME if all runs ran on one device, or add it to conf/hardware"
        raise InputError(what, where=f"run {graph.name!r}", allowed=", ".join(device_names()), remedy=remedy)
    return found
