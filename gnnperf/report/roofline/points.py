"""Where the op families of a step lie under the roofs of its device, measured and predicted.

A point is all nodes of a family that run on one kind of unit: FLOPs over bytes to the right, FLOPs over time upwards.
How near it is to the roof is given node by node, since a family has calls of many intensities:

    share of the roof = sum over nodes of max(FLOPs / rate, bytes / bandwidth) / sum of their latencies

Above 1: the bytes came from caches, of which a roofline of the memory knows nothing.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gnnperf.analytic import US, DeviceRoofs, rate_key_of, roofs_of
from gnnperf.core import InputError, NodeType, OpFamily, reading
from gnnperf.hardware import DeviceSpec, device_from, match_device
from gnnperf.report.compare.side import AGAIN, DOCUMENT, NODES, read_document, read_nodes

MEASURED, PREDICTED = "measured", "predicted"
COMPUTE, MEMORY = "compute", "memory"


@dataclass(frozen=True)
class Point:
    """All nodes of one family on one kind of unit."""

    family: str  # OpFamily
    rate: str  # key of DeviceSpec.flops_per_s
    num_nodes: int  # with known FLOPs, bytes and latency
    flops: float  # flops, moved_bytes, time_us: summed over them
    moved_bytes: float
    time_us: float
    sustained_us: float  # what the sustained roof allows, summed over nodes
    peak_us: float | None  # what the vendor's peak allows; None: not known
    bound: str  # "compute" or "memory": what most of `sustained_us` is limited by

    @property
    def intensity(self) -> float:
        """FLOPs per byte."""
        return self.flops / self.moved_bytes

    @property
    def flops_per_s(self) -> float:
        """What is reached."""
        return self.flops / self.time_us * US

    @property
    def bytes_per_s(self) -> float:
        """What is reached."""
        return self.moved_bytes / self.time_us * US

    @property
    def share_of_sustained(self) -> float:
        """Time that the sustained roof allows over the time that it takes."""
        return self.sustained_us / self.time_us

    @property
    def share_of_peak(self) -> float | None:
        """Time that the peak allows over the time that it takes; None: the peak is not known."""
        return None if self.peak_us is None else self.peak_us / self.time_us


@dataclass(frozen=True)
class DevicePicture:
    """One device with the points of each kind."""

    roofs: DeviceRoofs  # of the device
    points: dict[str, tuple[Point, ...]]  # MEASURED, PREDICTED -> points, the longest first
    # MEASURED, PREDICTED -> ops' nodes without FLOPs, bytes or latency, which are in no point
    num_left_out: dict[str, int]


def pictures_of(
    nodes: pd.DataFrame, predicted_on: DeviceSpec, measured_on: DeviceSpec | None
) -> tuple[DevicePicture, ...]:
    """One picture per device: two where a step was measured on another device than it is predicted for.

    `nodes`: [num_nodes] schema.PREDICTION_COLUMNS; `measured_on` None: not known, or no one ran it.
    """
    columns = {PREDICTED: ("latency_us", predicted_on)}
    if measured_on is not None and nodes["measured_latency_us"].notna().any():
        columns[MEASURED] = ("measured_latency_us", measured_on)
    pictures = list[DevicePicture]()
    for device in (predicted_on, measured_on):
        kinds = [kind for kind, (_, on) in columns.items() if on == device]
        if device is None or not kinds or (pictures and device == predicted_on):
            continue
        roofs = roofs_of(device)
        result = {kind: points_of(nodes, columns[kind][0], roofs) for kind in sorted(kinds)}
        pictures.append(DevicePicture(roofs, {kind: one for kind, (one, _) in result.items()},
                                      {kind: left_out for kind, (_, left_out) in result.items()}))  # fmt: skip
    return tuple(pictures)


def points_of(nodes: pd.DataFrame, column: str, roofs: DeviceRoofs) -> tuple[tuple[Point, ...], int]:
    """The points of one column of latencies, the longest first, and how many ops' nodes are in none."""
    work = nodes[(nodes["node_type"] == NodeType.COMPUTE).to_numpy()]
    numbers = work[["flops", "bytes", column]].to_numpy(np.float64)  # [num_ops, 3]
    known = ~np.isnan(numbers).any(axis=1) & (numbers[:, 1] > 0) & (numbers[:, 2] > 0)
    chosen = work[known]
    family = chosen["family"].fillna(str(OpFamily.UNKNOWN)).to_numpy(dtype=object)
    dtype = chosen["dtype"].astype(object).where(chosen["dtype"].notna(), None)
    rate = np.array([rate_key_of(roofs.device, *pair) for pair in zip(family, dtype, strict=True)], dtype=object)
    rows = pd.DataFrame(numbers[known], columns=["flops", "bytes", "us"]).assign(family=family, rate=rate)
    points = [_point(str(name[0]), str(name[1]), group, roofs) for name, group in rows.groupby(["family", "rate"])]
    return tuple(sorted(points, key=lambda one: (-one.time_us, one.family, one.rate))), int((~known).sum())


def _point(family: str, rate: str, group: pd.DataFrame, roofs: DeviceRoofs) -> Point:
    flops, moved = group["flops"].to_numpy(), group["bytes"].to_numpy()  # [n]
    roof, bandwidth = roofs.flops[rate], roofs.bandwidth
    compute_us, memory_us = flops / roof.sustained * US, moved / bandwidth.sustained * US  # [n]
    sustained_us = np.maximum(compute_us, memory_us)  # [n]
    peak_us = None
    if roof.peak is not None and bandwidth.peak is not None:
        peak_us = float(np.maximum(flops / roof.peak, moved / bandwidth.peak).sum() * US)
    bound = COMPUTE if sustained_us[compute_us >= memory_us].sum() > sustained_us.sum() / 2 else MEMORY
    time_us = float(group["us"].sum())
    return Point(family, rate, len(group), float(flops.sum()), float(moved.sum()), time_us, float(sustained_us.sum()),
                 peak_us, bound)  # fmt: skip


# What is drawn: a folder that predict.py wrote.


NUMBERS = ("flops", "bytes", "latency_us", "measured_latency_us")
COLUMNS = ("node_type", "family", "dtype", *NUMBERS)


def read_pictures(folder: Path) -> tuple[str, tuple[DevicePicture, ...]]:
    """Run and step of a prediction's folder, and the pictures of its devices."""
    where = folder / DOCUMENT
    given = read_document(where)
    with reading(where, "cannot be understood", remedy=AGAIN):
        title = f"{given['run']}, step {given['step']}, mode {given['mode']}"
        same = given["measured_step_time_us"] is not None
    predicted_on, traced_on = (_device(given, key, str(where)) for key in ("hardware", "traced_hardware"))
    if predicted_on is None:
        raise InputError(f"the device {given.get('hardware')!r} is not in the catalog", where=str(where), remedy=AGAIN)
    with reading(folder / NODES, "has a column that is no number", remedy=AGAIN):
        nodes = read_nodes(folder / NODES, COLUMNS).astype(dict.fromkeys(NUMBERS, "float64"))
    return title, pictures_of(nodes, predicted_on, predicted_on if same else traced_on)


def _device(given: dict[str, Any], key: str, where: str) -> DeviceSpec | None:
    """By the numbers in the document, else by name; that of the catalog where it has the same numbers."""
    numbers, where = given.get(f"{key}_numbers"), f"{where}, key '{key}_numbers'"
    if numbers is None:
        return match_device(str(given.get(key) or ""))
    if not isinstance(numbers, dict):
        raise InputError(f"{numbers!r} are no numbers of a device", where=where, remedy=AGAIN)
    result = device_from(numbers, where)
    known = match_device(result.name)
    return known if known is not None and result == replace(known, source="", host={}, provenance={}) else result
