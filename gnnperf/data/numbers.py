"""Numeric features known before the run: logs of sizes, each with a flag where it is unknown."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from gnnperf.hardware.spec import ClusterSpec, DeviceSpec, LinkSpec

SIZE_COLUMNS = ("flops", "bytes", "message_bytes")
DIM_FEATURES = (
    "log_num_inputs", "max_rank", "log_elements", "log_largest", "log_second", "log_first_dim", "log_last_dim",
)  # fmt: skip
WORK_FEATURES = (
    *(f"log_{c}" for c in SIZE_COLUMNS), *(f"{c}_unknown" for c in SIZE_COLUMNS),
    *DIM_FEATURES, "dims_unknown",
    "log_ordinal", "log_num_siblings", "log_group_size", "group_size_unknown", "log_world_size",
    "log_analytic_us", "analytic_unknown", "log_base_us", "log_host_speed", "log_ranks_per_node",
)  # fmt: skip
DEVICE_FEATURES = (
    "log_float32", "log_float32_matrix", "log_float16_matrix", "log_bandwidth", "log_l2", "log_num_sms", "log_clock",
    "log_memory", "log_launch_floor_us", "flops_share", "bandwidth_share", "is_gpu",
)  # fmt: skip
LINK_FEATURES = ("log_bandwidth", "log_latency_us", "bandwidth_share", "is_intra", "is_inter", "is_host_link")
LINKS = ("intra", "inter", "host_link")


def work_numbers(
    nodes: pd.DataFrame, analytic_us: np.ndarray, base_us: np.ndarray, cluster: ClusterSpec, world_size: int
) -> np.ndarray:
    """WORK_FEATURES of nodes: [num_nodes, num_features] float32, raw (not normalized), never NaN.

    Args:
        nodes: rows of an ExecutionGraph's node table.
        analytic_us: [num_nodes] the analytical model's answer, NaN where it has none.
        base_us: [num_nodes] what the residual multiplies, never NaN.
        cluster: the hardware asked about.
        world_size: ranks of the run.
    """
    sizes = [nodes[c].to_numpy(np.float64) for c in SIZE_COLUMNS]  # 3 x [num_nodes]
    group = nodes["group_size"].to_numpy(np.float64)  # [num_nodes], -1 unknown
    one = np.ones(len(nodes))
    columns = [
        *(_log1p(s) for s in sizes), *(np.isnan(s) for s in sizes),
        *_dims(nodes["input_dims"]).T,
        np.log1p(nodes["ordinal"].clip(lower=0)), np.log1p(nodes["num_siblings"].clip(lower=0)),
        _log1p(np.where(group < 0, np.nan, group)), group < 0, np.log1p(world_size) * one,
        _log1p(analytic_us), np.isnan(analytic_us), _log1p(base_us),
        np.log(cluster.host_speed) * one, np.log1p(cluster.ranks_per_node) * one,
    ]  # fmt: skip
    stacked = np.stack([np.asarray(c, dtype=np.float32) for c in columns], axis=1)  # [num_nodes, num_features]
    assert stacked.shape[1] == len(WORK_FEATURES)
    return stacked


def device_numbers(device: DeviceSpec) -> np.ndarray:
    """DEVICE_FEATURES: [num_features] float32. A rate that is not in the catalog falls back to float32's."""
    flops = device.flops_per_s
    plain = flops["float32"]
    matrix = flops.get("float32_matrix", plain)
    values = [
        plain, matrix, flops.get("float16_matrix", flops.get("float16", plain)), device.memory_bandwidth_bytes_per_s,
        device.l2_bytes, device.num_sms, device.clock_hz, device.memory_bytes, device.launch_floor_us,
    ]  # fmt: skip
    shares = [device.sustained_flops_share, device.sustained_bandwidth_share, float(device.kind == "gpu")]
    return np.asarray([*np.log1p(values), *shares], dtype=np.float32)


def link_numbers(name: str, link: LinkSpec) -> np.ndarray:
    """LINK_FEATURES of link class `name` (one of LINKS): [num_features] float32."""
    logs = np.log1p([link.bandwidth_bytes_per_s, link.latency_us])
    return np.asarray([*logs, link.sustained_bandwidth_share, *(float(name == n) for n in LINKS)], dtype=np.float32)


def _log1p(values: np.ndarray) -> np.ndarray:
    return np.log1p(np.nan_to_num(np.clip(values, 0.0, None), nan=0.0))


def _dims(texts: pd.Series) -> np.ndarray:
    """[num_nodes, len(DIM_FEATURES) + 1] from JSON shapes; each distinct text is read once."""
    codes, distinct = pd.factorize(texts, use_na_sentinel=True)
    table = np.asarray([_dim_row(t) for t in distinct] + [_dim_row(None)], dtype=np.float64)  # [num_distinct + 1, 8]
    return table[codes]  # the last row for null


def _dim_row(text: str | None) -> list[float]:
    shapes = _shapes(text)
    if shapes is None:
        return [0.0] * len(DIM_FEATURES) + [1.0]
    elements = [float(np.prod(s, dtype=np.float64)) for s in shapes] or [0.0]
    largest = shapes[int(np.argmax(elements))] if shapes else []
    ordered = sorted(elements, reverse=True)
    second = ordered[1] if len(ordered) > 1 else 0.0
    first, last = (largest[0], largest[-1]) if largest else (0, 0)
    logs = np.log1p([float(len(shapes)), sum(elements), ordered[0], second, float(first), float(last)])
    return [logs[0], float(max(map(len, shapes), default=0)), *logs[1:], 0.0]


def _shapes(text: str | None) -> list[list[int]] | None:
    """Tensor shapes in a JSON list of arguments; tensor lists are opened, scalars ([]) dropped; None unreadable."""
    try:
        arguments = json.loads(text) if text else None
    except ValueError:
        return None
    return _flatten(arguments) if isinstance(arguments, list) else None


def _flatten(arguments: list[object]) -> list[list[int]]:
    if arguments and all(isinstance(a, int) for a in arguments):
        return [[max(int(a), 0) for a in arguments if isinstance(a, int)]]
    return [shape for a in arguments if isinstance(a, list) for shape in _flatten(a)]
