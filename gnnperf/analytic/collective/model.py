"""CollectiveModel: latency of one kind of collective over one link, as a function of bytes and ranks.

latency = start + hop x hops + touched / pass + wire x sharers^power / lanes / bandwidth
          + sum over switches (extra + extra_hop x hops) x r / (1 + r),  r = (touched / (at x (n/4)^growth))^sharpness

The first line is latency and bandwidth (Hockney 1994; Thakur, Rabenseifner, Gropp 2005) with a second rate: every byte
passes a rank's own memory once, however few ranks there are, which rings of 2, 4 and 8 ranks show as a rate that rises
with n. `sharers^power` is what ranks on one bus or adapter take from each other (power 0: a switched fabric).

The second line is a change of protocol. NCCL has three (src/graph/tuning.cc: LL, LL128, Simple), each with a later
start and more bandwidth than the one before, and changes at sizes that its own estimates choose. Where it changes, the
start-up grows by `extra`: gradually (sharpness 1: a soft minimum of two lines), or at once, if it changes late.
All terms grow with bytes, so more bytes are never faster.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from gnnperf.core import FromZero
from gnnperf.hardware import ClusterSpec, ring_hops_between_nodes, ring_terms, touched_bytes

REFERENCE_RANKS = 4.0  # `at_bytes` is for a group of this size
LARGEST_EXPONENT = 60.0  # exp of it is still far from overflow, and r / (1 + r) is 1


@dataclass(frozen=True)
class ProtocolSwitch:
    """Where a library changes to a protocol with a later start and more bandwidth."""

    extra_us: FromZero  # start-up beyond the protocol before
    extra_hop_us: FromZero  # ... and per hop
    at_bytes: FromZero  # half of the extra is paid here, in a group of REFERENCE_RANKS
    growth: float  # at_bytes grows with (ranks / REFERENCE_RANKS)^growth
    sharpness: FromZero  # 1 gradual; large: a step


@dataclass(frozen=True)
class CollectiveModel:
    """Constants of one kind of collective over one link."""

    start_us: FromZero  # start-up
    hop_us: FromZero  # per hop of the ring
    pass_bytes_per_s: FromZero  # a rank's own passage of what it reads and writes
    wire_bytes_per_s: FromZero  # of one lane
    sharing_power: FromZero  # 0: lanes are a rank's own; 1: all ranks share one
    switches: tuple[ProtocolSwitch, ...]  # changes of protocol
    # the smallest measured size (larger of a rank's input and output); far below it, start-up is a guess
    from_bytes: FromZero = 0.0

    def latency_us(self, calls: "CollectiveCalls") -> np.ndarray:
        """[n] us of `calls`."""
        rate = calls.wire_bytes * calls.sharers**self.sharing_power / calls.lanes / self.wire_bytes_per_s
        seconds = calls.touched_bytes / self.pass_bytes_per_s + rate  # [n]
        result = self.start_us + self.hop_us * calls.hops + seconds * 1e6
        for switch in self.switches:
            result = result + (switch.extra_us + switch.extra_hop_us * calls.hops) * _changed(switch, calls)
        return result

    def moved(self, latency_ratio: float, bandwidth_ratio: float) -> "CollectiveModel":
        """The model on another link of the same medium: hops take its latency, the wire its bandwidth.

        Start-up, a rank's own memory and the sizes at which the library changes its protocol stay.
        """
        return replace(
            self,
            hop_us=self.hop_us * latency_ratio,
            wire_bytes_per_s=self.wire_bytes_per_s * bandwidth_ratio,
            switches=tuple(replace(s, extra_hop_us=s.extra_hop_us * latency_ratio) for s in self.switches),
        )


def _changed(switch: ProtocolSwitch, calls: "CollectiveCalls") -> np.ndarray:
    at = switch.at_bytes * (calls.ranks / REFERENCE_RANKS) ** switch.growth  # [n] bytes
    with np.errstate(divide="ignore"):  # no bytes: log is -inf, the share 0
        exponent = switch.sharpness * np.log(calls.touched_bytes / at)
    return 1.0 / (1.0 + np.exp(-np.clip(exponent, -LARGEST_EXPONENT, LARGEST_EXPONENT)))


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
    """n calls."""

    touched_bytes: np.ndarray  # [n] the larger of a rank's input and output
    wire_bytes: np.ndarray  # [n] over the busiest link of a ring
    hops: np.ndarray  # [n] of the ring's critical path, over the slowest link it crosses
    ranks: np.ndarray  # [n] of the group
    lanes: np.ndarray  # [n] rings, or adapters of a machine, that carry the wire bytes side by side
    sharers: np.ndarray  # [n] ranks that could share a lane, 1 for the smallest group


def calls_of(
    kinds: np.ndarray, message_bytes: np.ndarray, ranks: np.ndarray, nodes: np.ndarray, rings: Mapping[int, int]
) -> "CollectiveCalls":
    """The calls of groups inside a machine, or over several machines in equal parts.

    Between machines every rank of a machine has a ring of its own through its own adapter (NCCL builds one channel per
    adapter, src/graph/search.cc).
    """
    number, machines = ranks.astype(float), nodes.astype(float)
    hops, share = ring_terms(kinds, number)
    spans = machines > 1
    per_node = number / machines  # [n]
    inside = np.array([float(rings.get(int(r), 1)) for r in ranks])  # [n]
    between = ring_hops_between_nodes(hops, number, machines)
    return CollectiveCalls(
        touched_bytes=touched_bytes(kinds, message_bytes, number), wire_bytes=share * message_bytes,
        hops=np.where(spans, between, hops), ranks=number, lanes=np.where(spans, per_node, inside),
        sharers=np.where(spans, per_node, number / SMALLEST_GROUP),
    )  # fmt: skip
