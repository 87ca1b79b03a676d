"""Where work runs: its rank's role, what a collective makes of tensors held in parts, links it crosses, its device."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.core import InputError, Relation
from gnnperf.gnn.data.floors import of_each
from gnnperf.graph import ExecutionGraph
from gnnperf.hardware import ClusterSpec, LinkSpec, machines_of

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


def link_of(name: str, cluster: ClusterSpec) -> LinkSpec:
    """The link of a class.

    Raises:
        InputError: no such class.
    """
    links = dict(zip(LINKS, (cluster.intra, cluster.inter, cluster.host_link), strict=True))
    if name not in links:
        raise InputError(f"unknown link class {name!r}", where="link node", allowed=", ".join(links))
    return links[name]


def rank_numbers(ranks: np.ndarray, world_size: int) -> np.ndarray:
    """[num_nodes, 3] is_first_rank, is_last_rank, rank_share; 0 for what belongs to no rank (-1).

    Args:
        ranks: [num_nodes].
        world_size: ranks of the run.
    """
    last = max(world_size - 1, 1)
    return np.stack([ranks == 0, (ranks == last) & (world_size > 1), np.clip(ranks, 0, None) / last], axis=1)


def group_numbers(graph: ExecutionGraph, cluster: ClusterSpec) -> np.ndarray:
    """[num_nodes, 3] log_group_size, group_size_unknown, log_machines."""
    size, first, stride = (graph.nodes[c].to_numpy() for c in ("group_size", "group_first", "group_stride"))
    machines = np.where(size > 0, machines_of(size, first, stride, cluster.ranks_per_node), 0)
    return np.stack([np.log1p(np.clip(size, 0, None)), size < 0, np.log1p(machines)], axis=1)


def placement_numbers(collectives: np.ndarray) -> np.ndarray:
    """[num_nodes, 5] flags in the order of PLACES; 0 for what is no collective, or one that moves single tensors.

    Args:
        collectives: [num_nodes] kind of collective or null.
    """
    table = {kind: [ends[side == "to"] == held for side, held in PLACES] for kind, ends in PLACEMENTS.items()}
    nothing = [False] * len(PLACES)
    return np.array([table.get(str(kind), nothing) for kind in collectives], dtype=np.float64).reshape(-1, len(PLACES))


def link_numbers(graph: ExecutionGraph, cluster: ClusterSpec) -> np.ndarray:
    """[num_nodes, 3] log_link_bytes_per_s, log_link_latency_us, crosses_machines of the slowest link a node crosses.

    A collective crosses what its ranks' parts of it cross.

    Raises:
        InputError: an unknown link class.
    """
    result = np.zeros((graph.num_nodes, 3))
    src, dst = _crossings(graph.edges)
    names = graph.nodes["op_name"].astype(object).to_numpy()[dst]
    links = {str(name): link_of(str(name), cluster) for name in set(names)}
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
    """[num_nodes] of the device, by dtype; without matrix units for float32, float32's rate where it has none.

    Args:
        dtypes: [num_nodes] dtype or null.
        cluster: whose device.
    """
    device, peak = cluster.device, cluster.device.flops_per_s
    plain = peak["float32"]
    dtypes_known = {name.removesuffix("_matrix") for name in peak} - {"float32"}  # some have matrix units only
    rates = {name: peak.get(f"{name}_matrix") or peak[name] for name in dtypes_known}
    return of_each(dtypes, lambda name: rates.get(name, plain)) * device.sustained_flops_share
