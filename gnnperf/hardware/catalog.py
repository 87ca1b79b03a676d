"""The catalog: devices, links, hosts, clusters by name, from YAML in conf/ or a file of the user's."""

import re
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from gnnperf.core import InputError
from gnnperf.hardware import yaml_spec
from gnnperf.hardware.spec import ClusterSpec, DeviceSpec, HostSpec, LinkSpec
from gnnperf.hardware.strict_yaml import read_yaml


def device_names() -> tuple[str, ...]:
    """Names of the shipped devices, sorted."""
    return yaml_spec.names_in(yaml_spec.DEVICE_GROUP)


def cluster_names() -> tuple[str, ...]:
    """Names of the shipped clusters, sorted."""
    return yaml_spec.names_in(yaml_spec.CLUSTER_GROUP)


def load_device(name: str | Path) -> DeviceSpec:
    """A device of the catalog, or of a YAML file (anything with a suffix .yaml or .yml is a path).

    Raises:
        InputError: unknown name (with the closest ones), or a file that is no device.
    """
    path = yaml_spec.path_of(name, yaml_spec.DEVICE_GROUP)
    return yaml_spec.device_from(read_yaml(path), str(path))


def load_cluster(name: str | Path, device: DeviceSpec | str | None = None) -> ClusterSpec:
    """A cluster of the catalog, or of a YAML file; with `device`, its links and hosts with other devices in them.

    Raises:
        InputError: unknown name (with the closest ones), or a file that is no cluster.
    """
    path = yaml_spec.path_of(name, yaml_spec.CLUSTER_GROUP)
    raw = read_yaml(path)
    named = raw.get("device")
    if not isinstance(named, str):
        raise InputError(f"device is {named!r}", where=str(path), allowed="the name of a device")
    chosen = device if isinstance(device, DeviceSpec) else load_device(device or named)
    return yaml_spec.cluster_from(raw, chosen, str(path))


def load_link(name: str | Path) -> LinkSpec:
    """A link of the catalog, or of a YAML file; raises as `load_device`."""
    return yaml_spec.link_from(str(name), str(name))


def load_host(name: str | Path) -> HostSpec:
    """A host processor of the catalog, or of a YAML file; raises as `load_device`."""
    return yaml_spec.host_from(str(name), str(name))


def default_cluster(device: DeviceSpec) -> ClusterSpec:
    """The shipped cluster that lists `device` under `default_for`, else "single" or "loopback_cpu", with `device`."""
    other = "loopback_cpu" if device.kind == "cpu" else "single"
    return replace(_shipped_cluster(_default_name(device.name) or other), device=device)


def match_device(trace_name: str) -> DeviceSpec | None:
    """The device whose catalog name or alias is `trace_name`, case and punctuation aside; None if none."""
    result = _named(_plain(trace_name))
    return None if result is None else replace(result)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", name.lower())


# The shipped files do not change while a process runs. Only those that hold a name are parsed: there are a hundred.


@cache
def _default_name(device: str) -> str | None:
    """The first cluster that lists a device."""
    for name in cluster_names():
        path = yaml_spec.path_of(name, yaml_spec.CLUSTER_GROUP)
        listed = (read_yaml(path).get("default_for") or []) if device in path.read_text("utf-8") else []
        if isinstance(listed, list) and device in listed:
            return name
    return None


@cache
def _shipped_cluster(name: str) -> ClusterSpec:
    return load_cluster(name)


@cache
def _named(plain: str) -> DeviceSpec | None:
    """The device of a plain name or alias, the last one of several."""
    for name in reversed(device_names()) if plain else ():
        if plain in _plain(name + yaml_spec.path_of(name, yaml_spec.DEVICE_GROUP).read_text("utf-8")):
            device = load_device(name)
            if plain in map(_plain, (device.name, *device.aliases)):
                return device
    return None


# What an entry point can be given about hardware: choices of conf/hardware and conf/cluster, number by number.


@dataclass
class HardwareConfig:
    """The two keys that entry points share (not frozen: Hydra composes into it)."""

    # a device, a choice of conf/hardware (or a YAML file of one's own) and its numbers; empty: not stated
    hardware: Any = field(default_factory=dict)
    # links and hosts, a choice of conf/cluster (or a YAML file of one's own) and its numbers; empty: the device's
    # default. Python code may pass a `DeviceSpec` and a `ClusterSpec`.
    cluster: Any = field(default_factory=dict)

    def device_spec(self) -> DeviceSpec | None:
        """The device requested, None if not stated; refuses keys and values that no device has."""
        if isinstance(self.hardware, DeviceSpec):
            return self.hardware
        return yaml_spec.device_from(self.hardware, "hardware") if self.hardware else None

    def cluster_spec(self) -> ClusterSpec | None:
        """Links and hosts requested, with the device requested; None: its default. Refuses what no cluster has."""
        if isinstance(self.cluster, ClusterSpec) or not self.cluster:
            return self.cluster or None
        device = self.device_spec() or load_device(str(self.cluster.get("device")))
        return yaml_spec.cluster_from(self.cluster, device, "cluster")
