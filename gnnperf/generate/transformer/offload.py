"""What leaves the device between its uses, and where it goes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Store(StrEnum):
    """Where something lies while it is not used."""

    DEVICE = "device"
    HOST = "host"  # pinned memory, over the device's host link
    NVME = "nvme"  # over the host link, then the node's drives (Rajbhandari et al. 2021, ZeRO-Infinity)


@dataclass(frozen=True)
class Offload:
    """Settings of offloading.

    Attributes:
        activations: what a layer keeps for its backward pass: all of it, or with full recomputation its input. It is
            copied out behind the layer's forward pass and fetched one layer ahead (TransformerEngine, cpu_offload.py).
        optimizer: float32 weights and moments; the host then updates (Ren et al. 2021, ZeRO-Offload).
    """

    activations: Store = Store.DEVICE
    optimizer: Store = Store.DEVICE
