"""Numeric features known before the run (schema.WORK_FEATURES): logs of sizes, each with a flag where it is unknown."""

import json
import re
import zlib
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from gnnperf.analytic import Call, between_bytes, product_sizes
from gnnperf.core import NUM_TEXT_FEATURES, WORK_FEATURES, InputError, OpFamily, Relation, names
from gnnperf.gnn.data.floors import of_each
from gnnperf.graph import ExecutionGraph, lane_keys
from gnnperf.hardware import ClusterSpec, machines_of
from gnnperf.schedule import timed_edges

# Where work runs: its rank's role, what a collective makes of tensors held in parts, links it crosses, its device.

LINKS = ("intra", "inter", "host_link")
SPLIT, PARTIAL, REPLICATE = "split", "partial", "replicate"
# What ranks hold before and after (the placements of torch's DTensor).
PLACEMENTS = {
    "all_reduce": (PARTIAL, REPLICATE),
    "reduce_scatter": (PARTIAL, SPLIT),
    "all_gather": (SPLIT, REPLICATE),
    "all_to_all": (SPLIT, SPLIT),
    "broadcast": (SPLIT, REPLICATE),  # one rank holds all of it: the other parts are empty
    "scatter": (SPLIT, SPLIT),
    "gather": (SPLIT, SPLIT),
    "reduce": (PARTIAL, SPLIT),
}
PLACES = (("from", SPLIT), ("from", PARTIAL), ("from", REPLICATE), ("to", SPLIT), ("to", REPLICATE))


def group_numbers(graph: ExecutionGraph, cluster: ClusterSpec) -> np.ndarray:
    """[num_nodes, 3] log_group_size, group_size_unknown, log_machines."""
    size, first, stride = (graph.nodes[c].to_numpy() for c in ("group_size", "group_first", "group_stride"))
    machines = np.where(size > 0, machines_of(size, first, stride, cluster.ranks_per_node), 0)
    return np.stack([np.log1p(np.clip(size, 0, None)), size < 0, np.log1p(machines)], axis=1)


def placement_numbers(collectives: np.ndarray) -> np.ndarray:
    """[num_nodes, 5] flags in the order of PLACES; 0 for no collective (null), or one that moves single tensors."""
    table = {kind: [ends[side == "to"] == held for side, held in PLACES] for kind, ends in PLACEMENTS.items()}
    nothing = [False] * len(PLACES)
    return np.array([table.get(str(kind), nothing) for kind in collectives], dtype=np.float64).reshape(-1, len(PLACES))


def link_numbers(graph: ExecutionGraph, cluster: ClusterSpec) -> np.ndarray:
    """[num_nodes, 3] log_link_bytes_per_s, log_link_latency_us, crosses_machines of the slowest link a node crosses.

    A collective crosses what its ranks' parts of it cross.
    """
    result = np.zeros((graph.num_nodes, 3))
    src, dst = _crossings(graph.edges)
    names = graph.nodes["op_name"].astype(object).to_numpy()[dst]
    links = dict(zip(LINKS, (cluster.intra, cluster.inter, cluster.host_link), strict=True))
    for name in set(names) - links.keys():
        raise InputError(f"unknown link class {name!r}", where="link node", allowed=", ".join(links))
    fastest_first = sorted(links, key=lambda name: -links[name].sustained_bytes_per_s)
    for name in fastest_first:  # the slowest is written last
        link = links[name]
        numbers = [np.log(link.sustained_bytes_per_s), np.log1p(link.latency_us), float(name == "inter")]
        result[src[names == name]] = numbers
    return result


def _crossings(edges: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """([num_crossings] node, [num_crossings] link node), of parts and of the collectives that they join."""
    ends = edges[["src", "dst"]]
    crosses, joins = (ends[(edges["relation"] == r).to_numpy()] for r in (Relation.CROSSES, Relation.JOINS))
    whole = joins.merge(crosses, on="src", suffixes=("_collective", "_link"))
    node = np.concatenate([crosses["src"].to_numpy(), whole["dst_collective"].to_numpy()])
    return node, np.concatenate([crosses["dst"].to_numpy(), whole["dst_link"].to_numpy()])


def sustained_flops_per_s(dtypes: pd.Series, cluster: ClusterSpec) -> np.ndarray:
    """[num_nodes] by dtype (or null); without matrix units for float32, float32's rate where it has none."""
    device, peak = cluster.device, cluster.device.flops_per_s
    plain = peak["float32"]
    dtypes_known = {name.removesuffix("_matrix") for name in peak} - {"float32"}  # some have matrix units only
    rates = {name: peak.get(f"{name}_matrix") or peak[name] for name in dtypes_known}
    return of_each(dtypes, lambda name: rates.get(name, plain)) * device.sustained_flops_share


# Numbers of shapes: sizes of arguments, sizes of a matrix product, alignment. Each distinct text is read once.

NUM_DIMS, NUM_PRODUCT = 8, 5  # columns of each table
MAX_ALIGNMENT = 64.0


@dataclass(frozen=True)
class ShapeNumbers:
    """Of n nodes."""

    # [n, 8] log_num_inputs, max_dims, log_elements, log_largest, log_second, log_first_dim, log_last_dim, dims_unknown
    dims: np.ndarray
    product: np.ndarray  # [n, 5] batch, m, n, k as they are, 0 where there is no product; is_product
    last_dim: np.ndarray  # [n] last dimension of the largest argument, 0 unknown


def shape_numbers(nodes: pd.DataFrame) -> ShapeNumbers:
    """Numbers of the shapes of nodes (columns op_name, family, input_dims)."""
    texts, rows = pd.factorize(nodes["input_dims"], use_na_sentinel=True)[::-1]
    dims = np.asarray([*(_dim_row(t) for t in texts), _dim_row(None)], dtype=np.float64)  # [num_distinct + 1, 9]
    result = dims[rows]  # the last row for null
    return ShapeNumbers(result[:, :NUM_DIMS], _shapes_products(nodes), result[:, NUM_DIMS])


def alignment(sizes: np.ndarray) -> np.ndarray:
    """log2 of the largest power of two up to MAX_ALIGNMENT that divides whole numbers, same shape; 0 for 0."""
    whole = np.asarray(sizes, dtype=np.int64)
    lowest = np.where(whole > 0, whole & -whole, 1).astype(np.float64)
    return np.log2(np.minimum(lowest, MAX_ALIGNMENT))


def _shapes_products(nodes: pd.DataFrame) -> np.ndarray:
    """[n, 5] batch, m, n, k, is_product."""
    result = np.zeros((len(nodes), NUM_PRODUCT))
    rows = np.flatnonzero((nodes["family"] == OpFamily.GEMM).to_numpy())
    calls = list(zip(nodes["op_name"].astype(object).iloc[rows], nodes["input_dims"].astype(object).iloc[rows],
                     strict=True))  # fmt: skip
    known = {call: _product_row(*call) for call in set(calls)}
    for row, call in zip(rows, calls, strict=True):
        result[row] = known[call]
    return result


def _product_row(op: object, text: object) -> tuple[float, ...]:
    arguments = _arguments(text if isinstance(text, str) else None)
    if arguments is None:
        return (0.0,) * NUM_PRODUCT
    dims = tuple(_tensor(argument) for argument in arguments)
    sizes = product_sizes(Call(str(op).rpartition("::")[2], dims, 0.0, 0.0))
    return (0.0,) * NUM_PRODUCT if sizes is None else (*sizes, 1.0)


def _tensor(argument: object) -> list[int]:
    """Shape of one tensor; [] for whatever else a trace may hold there."""
    if not isinstance(argument, list) or not all(isinstance(size, int) for size in argument):
        return []
    return [max(size, 0) for size in argument]


def _dim_row(text: str | None) -> list[float]:
    arguments = _arguments(text)
    if arguments is None:
        return [0.0] * (NUM_DIMS - 1) + [1.0, 0.0]
    shapes = _flatten(arguments)
    elements = [float(np.prod(s, dtype=np.float64)) for s in shapes] or [0.0]
    largest = shapes[int(np.argmax(elements))] if shapes else []
    ordered = sorted(elements, reverse=True)
    second = ordered[1] if len(ordered) > 1 else 0.0
    first, last = (largest[0], largest[-1]) if largest else (0, 0)
    logs = np.log1p([float(len(shapes)), sum(elements), ordered[0], second, float(first), float(last)])
    return [logs[0], float(max(map(len, shapes), default=0)), *logs[1:], 0.0, float(last)]


def _arguments(text: str | None) -> list[Any] | None:
    """A JSON list of arguments; None: not stated, or unreadable."""
    try:
        arguments = json.loads(text) if text else None
    except ValueError:
        return None
    return arguments if isinstance(arguments, list) else None


def _flatten(arguments: list[Any]) -> list[list[int]]:
    """Tensor shapes; tensor lists are opened, scalars ([]) dropped."""
    if arguments and all(isinstance(a, int) for a in arguments):
        return [[max(int(a), 0) for a in arguments if isinstance(a, int)]]
    return [shape for a in arguments if isinstance(a, list) for shape in _flatten(a)]


# Op names as numbers: pieces of the name, hashed, so that an op nothing has seen lands near its kin.
#
# aten::convolution_backward -> aten, convolution, backward, and every three letters in a row

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_WORD_WEIGHT = 2.0  # a whole word counts more than three of its letters


def text_numbers(names: pd.Series) -> np.ndarray:
    """Hashed pieces of op names (feature hashing, Weinberger et al. 2009): [n, NUM_TEXT_FEATURES] float32.

    Rows have length 1; a name without letters, or none at all, is 0.
    """
    codes, distinct = pd.factorize(names, use_na_sentinel=True)
    table = np.stack([*(_hashed(str(name)) for name in distinct), _hashed("")])  # [num_distinct + 1, features]
    return table[codes]  # the last row for null


@cache
def _hashed(name: str) -> np.ndarray:
    """[NUM_TEXT_FEATURES] float32; the same on every machine (CRC-32, not Python's salted hash)."""
    result = np.zeros(NUM_TEXT_FEATURES)
    for piece, weight in _pieces(name):
        code = zlib.crc32(piece.encode())
        result[(code >> 1) % NUM_TEXT_FEATURES] += weight if code & 1 else -weight
    length = float(np.linalg.norm(result))
    return (result / length if length else result).astype(np.float32)


def _pieces(name: str) -> list[tuple[str, float]]:
    words = [word.lower() for word in _WORDS.findall(name)]
    threes = [padded[i : i + 3] for word in words for padded in (f"<{word}>",) for i in range(len(padded) - 2)]
    return [*((word, _WORD_WEIGHT) for word in words), *((three, 1.0) for three in threes)]


SIZE_COLUMNS = ("flops", "bytes", "message_bytes")
WORK_NAMES = (*names(WORK_FEATURES), *(f"text_{i}" for i in range(NUM_TEXT_FEATURES)))
TILE, BLOCK = 128.0, 1024.0  # edge of a product's tile, elements of a block of threads
US = 1e6


def work_numbers(
    graph: ExecutionGraph, analytic_us: np.ndarray, base_us: np.ndarray, cluster: ClusterSpec
) -> np.ndarray:
    """WORK_NAMES of all nodes: [num_nodes, num_features] float32, raw (not normalized), never NaN.

    [num_nodes] `analytic_us` is NaN where the analytical model has none. `base_us`, which the residual multiplies,
    never is.
    """
    nodes, one = graph.nodes, np.ones((graph.num_nodes, 1))
    shapes, ranks, last = shape_numbers(nodes), nodes["rank"].to_numpy(), max(graph.world_size - 1, 1)
    parts = [
        _sizes(nodes), shapes.dims, _products(shapes), _time_numbers(nodes, shapes, cluster), _order(graph),
        np.stack([_log1p(analytic_us), np.isnan(analytic_us), _log1p(base_us)], axis=1),
        np.log1p(graph.world_size) * one, group_numbers(graph, cluster),
        # is_first_rank, is_last_rank, rank_share; 0 for what belongs to none (-1)
        np.stack([ranks == 0, (ranks == last) & (graph.world_size > 1), np.clip(ranks, 0, None) / last], axis=1),
        placement_numbers(nodes["collective"].astype(object).to_numpy()),
        np.log1p(cluster.ranks_per_node) * one, np.log(cluster.host_speed) * one, link_numbers(graph, cluster),
        _per_sm(nodes, cluster), text_numbers(nodes["op_name"]),
    ]  # fmt: skip
    stacked = np.concatenate(parts, axis=1).astype(np.float32)  # [num_nodes, num_features]
    assert stacked.shape[1] == len(WORK_NAMES)
    return stacked


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
    result = np.empty((graph.num_nodes, 5))
    result[order] = np.log1p(np.stack([between_bytes(nodes), *siblings, before, after], axis=1).astype(np.float64))
    return result


def _per_sm(nodes: pd.DataFrame, cluster: ClusterSpec) -> np.ndarray:
    """[num_nodes, 4] rate of the dtype, bandwidth and cache per SM, SMs."""
    device, one = cluster.device, np.ones(len(nodes))
    rate = sustained_flops_per_s(nodes["dtype"], cluster) / device.num_sms
    bandwidth = device.memory_bandwidth_bytes_per_s * device.sustained_bandwidth_share / device.num_sms
    cache = np.log(device.l2_bytes / device.num_sms)
    return np.stack([np.log(rate), np.log(bandwidth) * one, cache * one, np.log(device.num_sms) * one], axis=1)


def _log1p(values: np.ndarray) -> np.ndarray:
    return np.log1p(np.nan_to_num(np.clip(values, 0.0, None), nan=0.0))
