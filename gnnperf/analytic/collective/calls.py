"""CollectiveCalls: what the cost of a collective depends on, from kind, bytes, ranks and machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gnnperf.hardware import ClusterSpec, ring_hops_between_nodes, ring_terms, touched_bytes

SMALLEST_GROUP = 2.0
# Edge-disjoint directed rings through the first n GPUs of a hybrid cube mesh: GPUs 0 to 3 and 4 to 7 are two squares
# with diagonals, i and i + 4 are joined; the edges 0-3, 1-2, 4-7, 5-6, 2-3, 6-7, 0-4, 1-5 are two NVLinks wide (NVIDIA
# DGX-1 white paper WP-08437-002, figure 4; `nvidia-smi topo -m`). Each undirected ring counts in both directions. Five
# GPUs have none, as the fifth has one neighbor only: a library must relay, and two is an assumption.
HYBRID_CUBE_MESH_RINGS: Mapping[int, int] = {2: 1, 3: 2, 4: 4, 5: 2, 6: 2, 7: 4, 8: 6}

TOPOLOGY = "topology"  # key of a cluster's metadata: there is no switch, how many rings there are depends on the group
RINGS: Mapping[str, Mapping[int, int]] = {"hybrid_cube_mesh": HYBRID_CUBE_MESH_RINGS}


def rings_of(cluster: ClusterSpec) -> Mapping[int, int] | None:
    """Ranks -> rings inside a machine; None: a switch."""
    return RINGS.get(cluster.metadata.get(TOPOLOGY, ""))


@dataclass(frozen=True)
class CollectiveCalls:
    """n calls.

    Attributes:
        touched_bytes: [n] the larger of a rank's input and output.
        wire_bytes: [n] over the busiest link of a ring.
        hops: [n] of the ring's critical path, over the slowest link it crosses.
        ranks: [n] of the group.
        lanes: [n] rings, or adapters of a machine, that carry the wire bytes side by side.
        sharers: [n] ranks that could share a lane, 1 for the smallest group.
    """

    touched_bytes: np.ndarray
    wire_bytes: np.ndarray
    hops: np.ndarray
    ranks: np.ndarray
    lanes: np.ndarray
    sharers: np.ndarray


def calls_of(
    kinds: np.ndarray, message_bytes: np.ndarray, ranks: np.ndarray, nodes: np.ndarray, rings: Mapping[int, int]
) -> CollectiveCalls:
    """The calls of groups inside a machine, or over several machines in equal parts.

    Between machines every rank of a machine has a ring of its own through its own adapter (NCCL builds one channel per
    adapter, src/graph/search.cc).

    Args:
        kinds: [n] kind of collective; NaN comes of kinds without a formula.
        message_bytes: [n] bytes of one rank's input.
        ranks: [n] of the group.
        nodes: [n] machines the group spans.
        rings: ranks -> rings inside a machine; one where it does not say (a switch).
    """
    number, machines = ranks.astype(float), nodes.astype(float)
    hops, share = ring_terms(kinds, number)
    spans = machines > 1
    per_node = number / machines  # [n]
    inside = np.array([float(rings.get(int(r), 1)) for r in ranks])  # [n]
    between = ring_hops_between_nodes(hops, number, machines)
    return CollectiveCalls(
        touched_bytes=touched_bytes(kinds, message_bytes, number),
        wire_bytes=share * message_bytes,
        hops=np.where(spans, between, hops),
        ranks=number,
        lanes=np.where(spans, per_node, inside),
        sharers=np.where(spans, per_node, number / SMALLEST_GROUP),
    )
