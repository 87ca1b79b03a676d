"""Arithmetic on the host beside a GPU: an optimizer whose state lies there.

latency = bytes / (sockets x bandwidth of a socket x HOST_SHARE / ranks of the node)

An update like Adam's has half an operation per byte, vectorized and on all cores (DeepSpeed, csrc/adam): memory is what
it waits for. All ranks of a node update at the same time and share its sockets evenly.
"""

from __future__ import annotations

import numpy as np

from gnnperf.hardware.spec import ClusterSpec

# Of the channels' peak that mixed reads and writes sustain: an estimate, as of the shipped links; no table of host
# updates is at hand that it could be fitted to.
HOST_SHARE = 0.80


def host_work_us(moved_bytes: np.ndarray, cluster: ClusterSpec) -> np.ndarray:
    """[n] us for [n] bytes read and written in host memory; NaN where the cluster does not say its host's memory."""
    rate = cluster.host_memory_bytes_per_s
    if rate is None:
        return np.full(len(moved_bytes), np.nan)
    found: np.ndarray = moved_bytes / (rate * HOST_SHARE) * 1e6
    return found
