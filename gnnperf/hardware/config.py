"""What an entry point can be given about hardware: choices of conf/hardware and conf/cluster, number by number."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gnnperf.hardware.catalog import load_device
from gnnperf.hardware.spec import ClusterSpec, DeviceSpec
from gnnperf.hardware.yaml_spec import cluster_from, device_from


@dataclass
class HardwareConfig:
    """The two keys that entry points share (not frozen: Hydra composes into it).

    Attributes:
        hardware: a device, a choice of conf/hardware (or a YAML file of one's own) and its numbers; empty: not stated.
        cluster: links and hosts, a choice of conf/cluster (or a YAML file of one's own) and its numbers; empty: the
            device's default. Python code may pass a `DeviceSpec` and a `ClusterSpec`.
    """

    hardware: Any = field(default_factory=dict)
    cluster: Any = field(default_factory=dict)

    def device_spec(self) -> DeviceSpec | None:
        """The device requested; None: not stated.

        Raises:
            InputError: a key or value that no device has.
        """
        if isinstance(self.hardware, DeviceSpec):
            return self.hardware
        return device_from(self.hardware, "hardware") if self.hardware else None

    def cluster_spec(self) -> ClusterSpec | None:
        """The links and hosts requested, with the device requested in them; None: the device's default.

        Raises:
            InputError: a key, value or name that no cluster has.
        """
        if isinstance(self.cluster, ClusterSpec) or not self.cluster:
            return self.cluster or None
        device = self.device_spec() or load_device(str(self.cluster.get("device")))
        return cluster_from(self.cluster, device, "cluster")
