"""Copies between a device and what is behind it, on streams of their own (cudaMemcpyAsync from and to pinned memory).

    out   device -- host link --> host -- drive --> storage        in   the same, backwards

To the drives the device's bytes go through pinned memory of the host (DeepSpeed's asynchronous I/O, csrc/aio); both
ways of a link and of a drive run at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from gnnperf.core import Phase
from gnnperf.generate.transformer.items import Await, Copy, Item, Lane, Record

# What leaves the device between its uses, and where it goes.


class Store(StrEnum):
    """Where something lies while it is not used."""

    DEVICE = "device"
    HOST = "host"  # pinned memory, over the device's host link
    NVME = "nvme"  # over the host link, then the node's drives (Rajbhandari et al. 2021, ZeRO-Infinity)


@dataclass(frozen=True)
class Offload:
    """Settings of offloading."""

    # what a layer keeps for its backward pass: all of it, or with full recomputation its input. It is copied out behind
    # the layer's forward pass and fetched one layer ahead (TransformerEngine, cpu_offload.py).
    activations: Store = Store.DEVICE
    # float32 weights and moments; the host then updates (Ren et al. 2021, ZeRO-Offload).
    optimizer: Store = Store.DEVICE


TO_HOST, TO_DEVICE = "Memcpy DtoH (Device -> Pinned)", "Memcpy HtoD (Pinned -> Device)"
TO_STORAGE, FROM_STORAGE = "Storage write (Host -> Drive)", "Storage read (Drive -> Host)"
ON_HOST, FROM_DRIVE = "on the host", "read from the drive"


def copy_out(store: Store, moved_bytes: float, dtype: str, phase: Phase) -> Iterator[Item]:
    """From the device to where it is stored; behind what its stream was instructed to wait for."""
    yield Copy(TO_HOST, moved_bytes, dtype, phase, Lane.OUT)
    if store is Store.NVME:
        yield Record(Lane.OUT, ON_HOST)
        yield Await(Lane.STORAGE_WRITE, ON_HOST)
        yield Copy(TO_STORAGE, moved_bytes, dtype, phase, Lane.STORAGE_WRITE)


def copy_in(store: Store, moved_bytes: float, dtype: str, phase: Phase) -> Iterator[Item]:
    """Back to the device."""
    if store is Store.NVME:
        yield Copy(FROM_STORAGE, moved_bytes, dtype, phase, Lane.STORAGE_READ)
        yield Record(Lane.STORAGE_READ, FROM_DRIVE)
        yield Await(Lane.IN, FROM_DRIVE)
    yield Copy(TO_DEVICE, moved_bytes, dtype, phase, Lane.IN)


def stored(store: Store) -> Lane:
    """Where the last copy of copy_out runs."""
    return Lane.STORAGE_WRITE if store is Store.NVME else Lane.OUT


def fetching(store: Store) -> Lane:
    """Where the first copy of copy_in runs."""
    return Lane.STORAGE_READ if store is Store.NVME else Lane.IN
