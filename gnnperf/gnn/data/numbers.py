"""Numeric features known before the run (schema.WORK_FEATURES): logs of sizes, each with a flag where it is unknown."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.analytic import between_bytes
from gnnperf.core import DEVICE_FEATURES, LINK_FEATURES, NUM_TEXT_FEATURES, WORK_FEATURES, names
from gnnperf.gnn.data.places import (
    LINKS,
    group_numbers,
    link_numbers,
    placement_numbers,
    rank_numbers,
    sustained_flops_per_s,
)
from gnnperf.gnn.data.shapes import ShapeNumbers, alignment, shape_numbers
from gnnperf.gnn.data.text import text_numbers
from gnnperf.graph import ExecutionGraph, lane_keys
from gnnperf.hardware import ClusterSpec, DeviceSpec, LinkSpec
from gnnperf.schedule import timed_edges

SIZE_COLUMNS = ("flops", "bytes", "message_bytes")
WORK_NAMES = (*names(WORK_FEATURES), *(f"text_{i}" for i in range(NUM_TEXT_FEATURES)))
DEVICE_NAMES, LINK_NAMES = names(DEVICE_FEATURES), names(LINK_FEATURES)
TILE, BLOCK = 128.0, 1024.0  # edge of a product's tile, elements of a block of threads
US = 1e6


def work_numbers(
    graph: ExecutionGraph, analytic_us: np.ndarray, base_us: np.ndarray, cluster: ClusterSpec
) -> np.ndarray:
    """WORK_NAMES of all nodes: [num_nodes, num_features] float32, raw (not normalized), never NaN.

    Args:
        graph: one step.
        analytic_us: [num_nodes] the analytical model's answer, NaN where it has none.
        base_us: [num_nodes] what the residual multiplies, never NaN.
        cluster: the hardware asked about.

    Raises:
        InputError: an unknown link class.
    """
    nodes, one = graph.nodes, np.ones((graph.num_nodes, 1))
    shapes = shape_numbers(nodes)
    parts = [
        _sizes(nodes), shapes.dims, _products(shapes), _time_numbers(nodes, shapes, cluster), _order(graph),
        np.stack([_log1p(analytic_us), np.isnan(analytic_us), _log1p(base_us)], axis=1),
        np.log1p(graph.world_size) * one, group_numbers(graph, cluster),
        rank_numbers(nodes["rank"].to_numpy(), graph.world_size),
        placement_numbers(nodes["collective"].astype(object).to_numpy()),
        np.log1p(cluster.ranks_per_node) * one, np.log(cluster.host_speed) * one, link_numbers(graph, cluster),
        _per_sm(nodes, cluster), text_numbers(nodes["op_name"]),
    ]  # fmt: skip
    stacked = np.concatenate(parts, axis=1).astype(np.float32)  # [num_nodes, num_features]
    assert stacked.shape[1] == len(WORK_NAMES)
    return stacked


def device_numbers(device: DeviceSpec) -> np.ndarray:
    """DEVICE_NAMES: [num_features] float32. A rate that is not in the catalog falls back to float32's."""
    flops = device.flops_per_s
    plain = flops["float32"]
    matrix = flops.get("float32_matrix", plain)
    values = [
        plain, matrix, flops.get("float16_matrix", flops.get("float16", plain)), device.memory_bandwidth_bytes_per_s,
        device.l2_bytes, device.num_sms, device.clock_hz, device.memory_bytes, device.launch_floor_us,
    ]  # fmt: skip
    shares = [device.sustained_flops_share, device.sustained_bandwidth_share, float(device.kind == "gpu")]
    return np.asarray([*np.log1p(values), *shares], dtype=np.float32)


def link_spec_numbers(name: str, link: LinkSpec) -> np.ndarray:
    """LINK_NAMES of link class `name` (one of LINKS): [num_features] float32."""
    logs = np.log1p([link.bandwidth_bytes_per_s, link.latency_us])
    return np.asarray([*logs, link.sustained_bandwidth_share, *(float(name == n) for n in LINKS)], dtype=np.float32)


def _sizes(nodes: pd.DataFrame) -> np.ndarray:
    """[num_nodes, 7] log sizes, which are unknown, log intensity."""
    sizes = [nodes[c].to_numpy(np.float64) for c in SIZE_COLUMNS]  # 3 x [num_nodes]
    intensity = _log1p(sizes[0]) - _log1p(sizes[1])
    known = ~np.isnan(sizes[0]) & ~np.isnan(sizes[1])
    return np.stack([*map(_log1p, sizes), *map(np.isnan, sizes), np.where(known, intensity, 0.0)], axis=1)


def _products(shapes: ShapeNumbers) -> np.ndarray:
    """[num_nodes, 9] is_product, log batch, m, n, k, alignment of m, n, k and of the last dimension."""
    product = shapes.product
    aligned = [*alignment(product[:, 1:4]).T, alignment(shapes.last_dim)]
    return np.stack([product[:, 4], *np.log1p(product[:, :4]).T, *aligned], axis=1)


def _time_numbers(nodes: pd.DataFrame, shapes: ShapeNumbers, cluster: ClusterSpec) -> np.ndarray:
    """[num_nodes, 6] waves, how full the last one is, us to compute, us to move, which is longer, bytes / cache."""
    device = cluster.device
    flops, moved = (np.nan_to_num(nodes[c].to_numpy(np.float64)) for c in ("flops", "bytes"))
    batch, m, n, _, is_product = shapes.product.T
    tiles = np.where(is_product > 0, batch * np.ceil(m / TILE) * np.ceil(n / TILE),
                     np.ceil(np.expm1(shapes.dims[:, 3]) / BLOCK))  # fmt: skip
    waves = tiles / device.num_sms
    compute_us = flops / sustained_flops_per_s(nodes["dtype"], cluster) * US
    memory_us = moved / (device.memory_bandwidth_bytes_per_s * device.sustained_bandwidth_share) * US
    filled = np.divide(waves, np.ceil(waves), out=np.zeros_like(waves), where=waves > 0)
    columns = [np.log1p(waves), filled, np.log1p(compute_us), np.log1p(memory_us), memory_us > compute_us,
               np.log1p(moved / device.l2_bytes)]  # fmt: skip
    return np.stack(columns, axis=1)


def _order(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes, 5] bytes moved since the op last ran; place among siblings, how many; lane's nodes before and after.

    Order is that of the edges, not of the rows. Without a lane the last two are 0.
    """
    order = timed_edges(graph).order  # [num_nodes]
    nodes = graph.nodes.iloc[order]
    lane = lane_keys(nodes)
    groups, on_lane = pd.Series(lane).groupby(lane), lane >= 0
    before = np.where(on_lane, groups.cumcount().to_numpy(), 0)
    after = np.where(on_lane, groups.cumcount(ascending=False).to_numpy(), 0)
    siblings = [nodes[c].clip(lower=0).to_numpy() for c in ("ordinal", "num_siblings")]
    found = np.empty((graph.num_nodes, 5))
    found[order] = np.log1p(np.stack([between_bytes(nodes), *siblings, before, after], axis=1).astype(np.float64))
    return found


def _per_sm(nodes: pd.DataFrame, cluster: ClusterSpec) -> np.ndarray:
    """[num_nodes, 4] rate of the dtype, bandwidth and cache per SM, SMs."""
    device, one = cluster.device, np.ones(len(nodes))
    rate = sustained_flops_per_s(nodes["dtype"], cluster) / device.num_sms
    bandwidth = device.memory_bandwidth_bytes_per_s * device.sustained_bandwidth_share / device.num_sms
    cache = np.log(device.l2_bytes / device.num_sms)
    return np.stack([np.log(rate), np.log(bandwidth) * one, cache * one, np.log(device.num_sms) * one], axis=1)


def _log1p(values: np.ndarray) -> np.ndarray:
    return np.log1p(np.nan_to_num(np.clip(values, 0.0, None), nan=0.0))
