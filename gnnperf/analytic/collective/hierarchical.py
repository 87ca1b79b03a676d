"""All-reduce over machines in levels: only a part of each rank's bytes leaves its machine.

g ranks on each of m machines, S bytes of one rank's input:

machine by machine   reduce-scatter of S inside, all-reduce of S/g between ranks of equal place, all-gather inside:
                     three collectives, one after the other, each a ring (Jia et al. 2018, section 4.3; Cho et al. 2019,
                     BlueConnect; Horovod's HOROVOD_HIERARCHICAL_ALLREDUCE)
switches and tree    the switch of a machine reduces, a double binary tree carries S/g of each rank up and down between
                     machines, the switch multicasts; pipelined, so that the slower of the two rules (NCCL 2.18,
                     NVLS_TREE in src/graph/tuning.cc)
"""

from __future__ import annotations

import numpy as np

from gnnperf.analytic.collective.protocols import (
    IN_NETWORK_BANDWIDTH,
    IN_NETWORK_START,
    SIMPLE,
    TREE_BANDWIDTH,
    Protocol,
)
from gnnperf.analytic.collective.wires import adapter_bytes_per_s, hops_us, inside_bytes_per_s
from gnnperf.hardware import ClusterSpec, in_network_terms

NUM_STAGES = 3  # reduce-scatter, all-reduce, all-gather


def machine_by_machine_us(
    size: np.ndarray, ranks: np.ndarray, cluster: ClusterSpec, start_us: float, protocol: Protocol
) -> np.ndarray:
    """[n] us of an all-reduce in three stages, by one protocol.

    Args:
        size: [n] bytes of one rank's input.
        ranks: [n] of the group, float; NaN unknown.
        cluster: links and ranks per node.
        start_us: start-up of each stage by specification.
        protocol: of the library.
    """
    nodes = np.ceil(ranks / cluster.ranks_per_node)  # [n]
    own = ranks / nodes  # [n] ranks of a machine
    hops = hops_us(2 * np.maximum(own - 1, 0.0), 2 * (nodes - 1), cluster, protocol)
    inside = 2 * (own - 1) / own * size / inside_bytes_per_s(own, cluster)  # [n] s
    between = 2 * (nodes - 1) / nodes * size / own / adapter_bytes_per_s(cluster)  # [n] s
    return NUM_STAGES * protocol.start * start_us + hops + (inside + between) / protocol.reducing * 1e6


def switches_and_tree_us(
    kinds: np.ndarray, size: np.ndarray, ranks: np.ndarray, cluster: ClusterSpec, start_us: float
) -> np.ndarray:
    """[n] us of an all-reduce over machines whose switches reduce; infinite for all others.

    Args:
        kinds: [n] kind of collective.
        size: [n] bytes of one rank's input.
        ranks: [n] of the group, float; NaN unknown.
        cluster: links and ranks per node.
        start_us: start-up by specification.
    """
    nodes = np.fmax(np.ceil(ranks / cluster.ranks_per_node), 1.0)  # [n]
    own = ranks / nodes  # [n] ranks of a machine
    _, share = in_network_terms(own)
    hops = hops_us(np.zeros(len(ranks)), 2 * np.ceil(np.log2(nodes)), cluster, SIMPLE)
    inside = share * size / (cluster.intra.sustained_bytes_per_s * IN_NETWORK_BANDWIDTH)  # [n] s
    between = 2 * size / own / (adapter_bytes_per_s(cluster) * TREE_BANDWIDTH)  # [n] s
    found = IN_NETWORK_START * start_us + hops + np.maximum(inside, between) * 1e6
    return np.where((kinds == "all_reduce") & (nodes > 1), found, np.inf)
