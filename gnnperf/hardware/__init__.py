"""Hardware as numbers: specifications, and the catalog they are loaded from."""

from gnnperf.hardware.catalog import (
    cluster_names,
    default_cluster,
    device_names,
    host_names,
    link_names,
    load_cluster,
    load_device,
    load_host,
    load_link,
    match_device,
)
from gnnperf.hardware.placement import Placement, placed, placement_of, spread
from gnnperf.hardware.spec import ClusterSpec, DeviceSpec, HostSpec, LinkSpec, Measured

__all__ = [
    "ClusterSpec",
    "DeviceSpec",
    "HostSpec",
    "LinkSpec",
    "Measured",
    "Placement",
    "cluster_names",
    "default_cluster",
    "device_names",
    "host_names",
    "link_names",
    "load_cluster",
    "load_device",
    "load_host",
    "load_link",
    "match_device",
    "placed",
    "placement_of",
    "spread",
]
