"""Memory nodes: copies over the link they cross, device copies and memsets over device memory; host arithmetic.

Arithmetic on the host next to a GPU is an optimizer whose state lies there:

    latency = bytes / (sockets x bandwidth of a socket x HOST_SHARE / ranks of the node)

An update like Adam's has half an operation per byte, vectorized and on all cores (DeepSpeed, csrc/adam): memory is what
it waits for. All ranks of a node update at the same time and share its sockets evenly.
"""

from enum import StrEnum

import numpy as np

from gnnperf.analytic.constants import AnalyticConstants
from gnnperf.hardware import ClusterSpec, LinkSpec

# Of the channels' peak that mixed reads and writes sustain: an estimate, as of the shipped links; no table of host
# updates is at hand that it could be fitted to.
HOST_SHARE = 0.80


class CopyPath(StrEnum):
    """What a copy crosses."""

    HOST = "host"
    HOST_PAGEABLE = "host_pageable"
    PEER = "peer"
    STORAGE = "storage"  # between host memory and a drive
    DEVICE = "device"  # within one memory: read and written
    FILL = "fill"  # written only


# (what the profiler writes, lower case) -> path, first match wins: "Memcpy HtoD (Pageable -> Device)", ROCm's
# "CopyHostToDevice", "Memset (Device)"; "Storage read (...)" is what plans write. Direction is part of what a copy is,
# unlike a kernel's name.
_NAMES = (
    ("storage", CopyPath.STORAGE),
    ("pageable", CopyPath.HOST_PAGEABLE),
    ("htod", CopyPath.HOST), ("dtoh", CopyPath.HOST), ("hosttodevice", CopyPath.HOST), ("devicetohost", CopyPath.HOST),
    ("ptop", CopyPath.PEER), ("peertopeer", CopyPath.PEER),
    ("dtod", CopyPath.DEVICE), ("devicetodevice", CopyPath.DEVICE),
    ("memset", CopyPath.FILL), ("fillbuffer", CopyPath.FILL),
)  # fmt: skip


def path_of(event_name: str | None) -> CopyPath | None:
    """What a copy of this name crosses; None unknown."""
    plain = (event_name or "").lower().replace(" ", "").replace("_", "")
    return next((path for text, path in _NAMES if text in plain), None)


def copy_us(
    paths: np.ndarray, moved_bytes: np.ndarray, cluster: ClusterSpec, constants: AnalyticConstants
) -> np.ndarray:
    """Latency of memory nodes: start-up + link latency + bytes / sustained bandwidth."""
    device = cluster.device
    memory = device.memory_bandwidth_bytes_per_s * device.sustained_bandwidth_share
    host = _sustained(cluster.host_link)
    cost = {  # path -> (latency us, us per byte)
        CopyPath.HOST: (cluster.host_link.latency_us, 1e6 / host),
        CopyPath.HOST_PAGEABLE: (cluster.host_link.latency_us, 1e6 / (host * constants.pageable_share)),
        CopyPath.PEER: (cluster.intra.latency_us, 1e6 / _sustained(cluster.intra)),
        CopyPath.DEVICE: (0.0, 2e6 / memory),
        CopyPath.FILL: (0.0, 1e6 / memory),
    }
    if cluster.storage is not None:
        cost[CopyPath.STORAGE] = (cluster.storage.latency_us, 1e6 / _sustained(cluster.storage))
    fixed, slope = np.full(len(paths), np.nan), np.full(len(paths), np.nan)  # [n]
    for path, (latency, per_byte) in cost.items():
        here = paths == path  # [n]
        fixed[here], slope[here] = latency, per_byte
    return constants.copy_floor_us[device.kind] + fixed + slope * moved_bytes


def _sustained(link: LinkSpec) -> float:
    return link.bandwidth_bytes_per_s * link.sustained_bandwidth_share


def host_work_us(moved_bytes: np.ndarray, cluster: ClusterSpec) -> np.ndarray:
    """[n] us for [n] bytes read and written in host memory; NaN where the cluster does not state its host's memory."""
    rate = cluster.host_memory_bytes_per_s
    if rate is None:
        return np.full(len(moved_bytes), np.nan)
    return np.asarray(moved_bytes / (rate * HOST_SHARE) * 1e6)
