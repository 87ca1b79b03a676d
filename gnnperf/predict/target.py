"""The hardware a prediction is for: as requested, else the trace's own."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from gnnperf.analytic import collective_models_named, collective_models_of
from gnnperf.core import InputError, counted
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import (
    ANY_DEVICE,
    ClusterSpec,
    DeviceSpec,
    default_cluster,
    device_names,
    load_device,
    match_device,
    placed,
    spread,
)

# Which models of collectives a prediction goes by: as requested, else as in the cluster.

SPECIFICATION = "specification"  # the one word that is no name of models


def check_collective_models(collectives: str) -> None:
    """Refuse a name or file that holds no models, before a trace is read."""
    if collectives != SPECIFICATION:
        collective_models_named(collectives)


def with_collective_models(cluster: ClusterSpec, collectives: str) -> ClusterSpec:
    """The cluster with these models, whatever its device; SPECIFICATION: with none."""
    return replace(cluster, collectives={} if collectives == SPECIFICATION else {ANY_DEVICE: collectives})


def collective_models_text(cluster: ClusterSpec) -> str:
    """Name and provenance of what predicts collectives; file names without their folders."""
    collective_models, name = collective_models_of(cluster), cluster.collective_models_name
    if collective_models is None or name is None:
        return f"by specification: the links of cluster {cluster.name}"
    if not collective_models.collective_models:
        return f"by specification: {Path(name).name} was fitted on links of another kind"
    return f"{Path(name).name}: {collective_models.provenance}"


GENERIC_CPU, GENERIC_GPU = "cpu_generic", "gpu_generic"
ADD_DEVICE = (
    "pass hardware=NAME, or describe the device in conf/hardware/NAME.yaml like the others there, with its alias"
)


@dataclass(frozen=True)
class Target:
    """What to predict for, and how it relates to what was traced."""

    cluster: ClusterSpec  # devices and links
    # device the trace ran on; None where the trace does not say or the catalog does not know it
    traced: DeviceSpec | None
    warnings: tuple[str, ...] = ()  # a device that is assumed
    notes: tuple[str, ...] = ()  # links that are assumed

    @property
    def same_hardware(self) -> bool:
        """Whether the trace ran on the devices that are predicted for."""
        return self.traced == self.cluster.device

    def with_collective_models(self, collectives: str | None) -> "Target":
        """The target with other models of collectives; None: as in the cluster."""
        return self if collectives is None else replace(self, cluster=with_collective_models(self.cluster, collectives))


def choose_target(
    graph: ExecutionGraph, hardware: DeviceSpec | None, cluster: ClusterSpec | None, from_trace: bool = False
) -> "Target":
    """The cluster to predict for: hardware None: the trace's own; cluster None: the default of the device.

    `from_trace`: latencies are those that the trace measured. Then GENERIC_GPU stands for a GPU that the catalog lacks;
    a prediction without measurements needs its numbers.

    Raises InputError: no hardware requested and the trace's own is not known, or more ranks than the cluster holds.
    """
    traced = traced_device(graph)
    device = hardware or traced or _assumed_device(graph, from_trace)
    own = placed(default_cluster(device), graph.placement, graph.world_size)
    chosen = own if cluster is None else spread(replace(cluster, device=device), graph.world_size)
    assumed = () if hardware or traced else (_assumed_text(graph, device),)
    links: tuple[str, ...] = ()
    if cluster is None and graph.world_size > 1:
        links = (f"The links are assumed to be those of cluster {chosen.name!r}; cluster=NAME names others.",)
    # Hardware that was requested, for a trace that does not name its own, is not known to be the same.
    return Target(chosen, traced if hardware else device, assumed, links)


def placement_text(cluster: ClusterSpec, world_size: int) -> str:
    """How ranks are placed on nodes: `8 ranks on 2 nodes of cluster hgx8, 4 on each`."""
    nodes = num_nodes(cluster, world_size)
    of = f"of cluster {cluster.name}" if cluster.name else ""
    on = f"{counted(world_size, 'rank')} on {counted(nodes, 'node')} {of}".strip()
    return f"{on}, {cluster.ranks_per_node} on each" if nodes > 1 else on


def num_nodes(cluster: ClusterSpec, world_size: int) -> int:
    """Nodes that so many ranks take."""
    return -(-world_size // cluster.ranks_per_node)


def traced_name(graph: ExecutionGraph) -> str:
    """The device names of the trace, once each; "" unknown."""
    return ", ".join(dict.fromkeys(name for name in graph.device_names if name))


def traced_device(graph: ExecutionGraph) -> DeviceSpec | None:
    """The one catalog device that every naming rank ran on."""
    result = {name: match_device(name) for name in dict.fromkeys(graph.device_names) if name}
    if len({d.name if d else n for n, d in result.items()}) > 1:
        return None
    return next(iter(result.values()), None)


def _assumed_device(graph: ExecutionGraph, from_trace: bool) -> DeviceSpec:
    """A generic device where its numbers matter little: a CPU, or a GPU with measured latencies."""
    if not graph.runs_on_gpu:
        return load_device(GENERIC_CPU)
    if from_trace:
        return load_device(GENERIC_GPU)
    names = list(dict.fromkeys(name for name in graph.device_names if name))
    if len(names) > 1:
        raise InputError(f"the ranks ran on different devices: {', '.join(names)}", where=graph.name, remedy=ADD_DEVICE)
    what = "the trace does not say which device it ran on"
    if names:
        close = closest(names[0])
        also = f"; closest: {', '.join(close)}" if close else ""
        what = f"the trace's device {names[0]!r} is not in the catalog{also}"
    raise InputError(what, where=graph.name, allowed=", ".join(device_names()), remedy=ADD_DEVICE)


def closest(name: str) -> list[str]:
    """Catalog names that share most words with `name`, at most three."""
    words, *others = (set(re.findall(r"[^\W_]+", one.lower())) for one in (name, *device_names()))
    shared = {known: len(words & other) for known, other in zip(device_names(), others, strict=True)}
    return sorted((known for known, count in shared.items() if count), key=lambda known: -shared[known])[:3]


def _assumed_text(graph: ExecutionGraph, device: DeviceSpec) -> str:
    named, kind = traced_name(graph), "GPU" if graph.runs_on_gpu else "CPU"
    why = f"The trace's {kind} {named!r} is not in the catalog" if named else f"The trace does not name its {kind}"
    part = " for edits and for work without a measurement" if graph.runs_on_gpu else ""
    close = closest(named) if named else []
    also = f" (closest: {', '.join(close)})" if close else ""
    return f"{why}; {device.name} is assumed{part}, hardware=NAME names another{also}."
