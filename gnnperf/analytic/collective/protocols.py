"""Protocols of collective libraries: start-up, hops and bandwidth of each, relative to what a specification gives.

NCCL's numbers are its own estimates, by which it chooses (NVIDIA/nccl 2.20, src/graph/tuning.cc: baseLat, hwLat of the
ring, and the factors on busBw). A specification's start-up (AnalyticConstants.collective_floor_us, 14 us) and a link's
latency_us (NVLink 1.9, network 4.0) are those of LL128, so LL128 is 1.

LL writes 4 bytes of data beside 4 of flag, so that no fence is needed: half of the bytes are wasted, and more by short
stores. LL128 has 8 of flag in 128. Simple waits for fences and has all of the bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SOFTNESS = 24.0  # power of the soft minimum; two equal answers give one 3 % shorter
REDUCING = ("all_reduce", "reduce")


@dataclass(frozen=True)
class Protocol:
    """One way of a library to move bytes.

    Attributes:
        start: start-up, as a share of the specification's.
        hop_inside: latency of a hop inside a machine, as a share of the link's.
        hop_between: ... and between machines.
        reducing: bandwidth of all-reduce and reduce, as a share of the link's sustained bandwidth.
        moving: ... of all others.
    """

    name: str
    start: float
    hop_inside: float
    hop_between: float
    reducing: float
    moving: float

    def bandwidth_share(self, kinds: np.ndarray) -> np.ndarray:
        """[n] by kind."""
        return np.where(np.isin(kinds, REDUCING), self.reducing, self.moving)


PLAIN = (Protocol("plain", 1.0, 1.0, 1.0, 1.0, 1.0),)  # gloo, and whatever else has one protocol
SIMPLE = Protocol("Simple", 8.4 / 14.0, 3.4 / 1.9, 14.0 / 4.0, 1.0, 1.0)
NCCL = (
    Protocol("LL", 6.6 / 14.0, 0.6 / 1.9, 2.7 / 4.0, 1 / 4, 1 / 3),
    Protocol("LL128", 1.0, 1.0, 1.0, 0.92, 0.92),
    SIMPLE,
)
BY_DEVICE_KIND = {"gpu": NCCL, "cpu": PLAIN}

# The tree's bandwidth beside the ring's, and what a switch that reduces takes to start and can carry.
TREE_BANDWIDTH = 0.92 * 0.85
IN_NETWORK_START = 23.0 / 14.0  # hwLat of NVLS
IN_NETWORK_BANDWIDTH = 5 / 6


def soft_minimum(candidates: np.ndarray) -> np.ndarray:
    """The shortest of several answers, a little shorter where two are close.

    (sum of x^-p)^(-1/p) is below the minimum and grows with every x: what makes no candidate slower makes the answer
    not slower either.

    Args:
        candidates: [k, n] us; infinite where one does not apply.

    Returns:
        [n] us; NaN where a candidate is.
    """
    shortest = candidates.min(axis=0)  # [n]
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(candidates > shortest, shortest / candidates, 1.0)  # [k, n] 0 where infinite
    return shortest * (ratio**SOFTNESS).sum(axis=0) ** (-1.0 / SOFTNESS)
