"""Collectives: latency plus bytes over bandwidth, by kind, algorithm and protocol.

latency = start-up + hops x hop latency + share x message / bandwidth        n ranks, message S per rank

Hops and shares by algorithm: gnnperf.hardware.collective_terms. A library has several protocols; a specification
answers with the best (gnnperf.analytic.collective.protocols), a platform's table with fitted laws
(gnnperf.analytic.collective.fit).

An all-reduce over several machines is the fastest of what NCCL chooses from (src/graph/tuning.cc): the ring, the tree
(chains inside machines, a double binary tree between them) and, where the switches inside machines reduce, NVLS with a
tree between them (since 2.18). Where the cluster says `all_reduce: hierarchical`, its library reduces machine by
machine (Horovod's HOROVOD_HIERARCHICAL_ALLREDUCE, BlueConnect), and that alone answers.
"""

from __future__ import annotations

import numpy as np

from gnnperf.analytic.collective.constants import CollectiveConstants
from gnnperf.analytic.collective.hierarchical import machine_by_machine_us, switches_and_tree_us
from gnnperf.analytic.collective.protocols import (
    BY_DEVICE_KIND,
    IN_NETWORK_BANDWIDTH,
    IN_NETWORK_START,
    TREE_BANDWIDTH,
    Protocol,
    soft_minimum,
)
from gnnperf.analytic.collective.wires import across_bytes_per_s, hops_us, inside_bytes_per_s
from gnnperf.analytic.constants import AnalyticConstants
from gnnperf.hardware import (
    BARRIER,
    HIERARCHICAL,
    KINDS,
    ClusterSpec,
    in_network_terms,
    ring_hops_between_nodes,
    ring_terms,
    tree_terms,
)

__all__ = ["KINDS", "collective_us", "fitted_collective_us"]

IN_NETWORK = "in_network_reduction"  # key of a cluster's metadata: "nvls" where switches reduce inside machines


def fitted_collective_us(
    kinds: np.ndarray,
    message_bytes: np.ndarray,
    group_size: np.ndarray,
    cluster: ClusterSpec,
    constants: AnalyticConstants,
    fitted: CollectiveConstants,
) -> np.ndarray:
    """As collective_us, with the platform's own laws wherever its table had the kind on the group's link.

    Args:
        kinds: [n] kind of collective.
        message_bytes: [n] bytes each rank sends; NaN unknown.
        group_size: [n] ranks of the group; -1 unknown.
        cluster: ranks per node; its links where there is no law.
        constants: start-up per device kind, where there is no law.
        fitted: laws of this cluster.

    Returns:
        [n] us; NaN where kind, size or group are unknown.
    """
    specified = collective_us(kinds, message_bytes, group_size, cluster, constants)
    several = group_size > 1  # one rank alone moves nothing
    nodes = np.ceil(np.maximum(group_size, 1) / cluster.ranks_per_node).astype(int)  # [n]
    if cluster.all_reduce == HIERARCHICAL:  # not what the table measured
        several &= (kinds != "all_reduce") | (nodes == 1)
    if cluster.adapters < cluster.ranks_per_node:  # nor has a table adapters that ranks share
        several &= nodes == 1
    asked = (each[several] for each in (kinds, message_bytes, group_size, nodes, specified))
    own = fitted.latency_us(*asked)
    specified[several] = np.where(np.isnan(own), specified[several], own)
    return specified


def collective_us(
    kinds: np.ndarray,
    message_bytes: np.ndarray,
    group_size: np.ndarray,
    cluster: ClusterSpec,
    constants: AnalyticConstants,
) -> np.ndarray:
    """Latency of collective nodes by specification, from the last arrival to the end of the transfer.

    A group no larger than `ranks_per_node` is taken to share a node: nodes do not say which ranks a group has.

    Args:
        kinds: [n] kind of collective.
        message_bytes: [n] bytes each rank sends; NaN unknown.
        group_size: [n] ranks of the group; -1 unknown.
        cluster: links and ranks per node.
        constants: start-up per device kind.

    Returns:
        [n] us; NaN where kind, size or group are unknown.
    """
    ranks = np.where(group_size > 0, group_size, np.nan).astype(float)  # [n]
    size = np.where(kinds == BARRIER, 0.0, message_bytes)  # [n]
    start_us = constants.collective_floor_us[cluster.device.kind]
    protocols = BY_DEVICE_KIND[cluster.device.kind]
    candidates = [_ring_us(kinds, size, ranks, cluster, start_us, protocol) for protocol in protocols]
    if len(protocols) > 1:
        candidates += [_tree_us(kinds, size, ranks, cluster, start_us, protocol) for protocol in protocols]
    if IN_NETWORK in cluster.metadata:
        candidates.append(_in_network_us(kinds, size, ranks, cluster, start_us))
        candidates.append(switches_and_tree_us(kinds, size, ranks, cluster, start_us))
    fastest = soft_minimum(np.stack(candidates))
    if cluster.all_reduce != HIERARCHICAL:
        return fastest
    staged = soft_minimum(np.stack([machine_by_machine_us(size, ranks, cluster, start_us, p) for p in protocols]))
    return np.where((kinds == "all_reduce") & (ranks > cluster.ranks_per_node), staged, fastest)


def _ring_us(
    kinds: np.ndarray, size: np.ndarray, ranks: np.ndarray, cluster: ClusterSpec, start_us: float, protocol: Protocol
) -> np.ndarray:
    """[n] us of a ring, of an exchange between pairs and of one message."""
    hops, share = ring_terms(kinds, ranks)  # [n], [n]
    nodes = np.ceil(ranks / cluster.ranks_per_node)  # [n] machines the group spans
    across, inside = across_bytes_per_s(kinds, ranks, cluster), inside_bytes_per_s(ranks, cluster)  # [n], [n]
    bandwidth = np.where(nodes > 1, across, inside)
    between = ring_hops_between_nodes(hops, ranks, nodes)
    latency = hops_us(hops - between, between, cluster, protocol)
    return protocol.start * start_us + latency + share * size / bandwidth / protocol.bandwidth_share(kinds) * 1e6


def _tree_us(
    kinds: np.ndarray, size: np.ndarray, ranks: np.ndarray, cluster: ClusterSpec, start_us: float, protocol: Protocol
) -> np.ndarray:
    """[n] us of an all-reduce over several machines by trees; infinite for all others."""
    nodes = np.ceil(ranks / cluster.ranks_per_node)  # [n]
    inside, between, share = tree_terms(ranks, np.fmax(nodes, 1.0))
    bandwidth = across_bytes_per_s(kinds, ranks, cluster) * TREE_BANDWIDTH * protocol.reducing  # [n] bytes/s
    found = protocol.start * start_us + hops_us(inside, between, cluster, protocol) + share * size / bandwidth * 1e6
    return np.where((kinds == "all_reduce") & (nodes > 1), found, np.inf)


def _in_network_us(
    kinds: np.ndarray, size: np.ndarray, ranks: np.ndarray, cluster: ClusterSpec, start_us: float
) -> np.ndarray:
    """[n] us of an all-reduce that the switch inside a machine computes; infinite for all others."""
    _, share = in_network_terms(ranks)  # the way to the switch and back is in the start-up
    bandwidth = cluster.intra.sustained_bytes_per_s * IN_NETWORK_BANDWIDTH
    found = IN_NETWORK_START * start_us + share * size / bandwidth * 1e6
    return np.where((kinds == "all_reduce") & (ranks > 1) & (ranks <= cluster.ranks_per_node), found, np.inf)
