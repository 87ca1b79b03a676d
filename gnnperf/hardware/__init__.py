"""Hardware as numbers: specifications, and the catalog they are loaded from."""

from gnnperf.hardware.catalog import (
    cluster_names,
    default_cluster,
    device_names,
    load_cluster,
    load_device,
    match_device,
)
from gnnperf.hardware.placement import Placement, placed, placement_of
from gnnperf.hardware.spec import ClusterSpec, DeviceSpec, LinkSpec, Measured

__all__ = [
    "ClusterSpec",
    "DeviceSpec",
    "LinkSpec",
    "Measured",
    "Placement",
    "cluster_names",
    "default_cluster",
    "device_names",
    "load_cluster",
    "load_device",
    "match_device",
    "placed",
    "placement_of",
]
