"""Which hardware a run ran on."""

from __future__ import annotations

from gnnperf.errors import InputError
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.hardware import (
    ClusterSpec,
    DeviceSpec,
    default_cluster,
    device_names,
    load_cluster,
    load_device,
    match_device,
    placed,
)

GENERIC_CPU = "cpu_generic"


def cluster_for(graph: ExecutionGraph, hardware: str | None, cluster: str | None) -> ClusterSpec:
    """The cluster of a run: as configured, else as its trace names the device.

    Args:
        graph: the run.
        hardware: catalog name of the device; None: the trace's own.
        cluster: catalog name of the cluster; None: the default for the device, placed as the run's card says.

    Raises:
        InputError: unknown names, a device that the catalog lacks, or ranks on different devices.
    """
    device = load_device(hardware) if hardware else _traced_device(graph)
    if cluster:
        return load_cluster(cluster, device)
    return placed(default_cluster(device), graph.placement, graph.world_size)


def _traced_device(graph: ExecutionGraph) -> DeviceSpec:
    names = sorted(set(graph.device_names)) or [""]
    if names == [""] and not graph.runs_on_gpu:
        return load_device(GENERIC_CPU)  # processors go unnamed
    found = match_device(names[0])
    if len(names) > 1 or found is None:
        what = f"ranks on {names}" if len(names) > 1 else f"device {names[0]!r} is not in the catalog"
        remedy = "pass data.hardware=NAME if all runs ran on one device, or add it to conf/hardware"
        raise InputError(what, where=f"run {graph.name!r}", allowed=", ".join(device_names()), remedy=remedy)
    return found
