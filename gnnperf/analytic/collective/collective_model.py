"""CollectiveLaw: latency of one kind of collective over one link, as a function of bytes and ranks.

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

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnnperf.analytic.collective.calls import CollectiveCalls
from gnnperf.analytic.constants_file import FromZero

REFERENCE_RANKS = 4.0  # `at_bytes` is for a group of this size
LARGEST_EXPONENT = 60.0  # exp of it is still far from overflow, and r / (1 + r) is 1


@dataclass(frozen=True)
class ProtocolSwitch:
    """Where a library changes to a protocol with a later start and more bandwidth.

    Attributes:
        extra_us: start-up beyond the protocol before.
        extra_hop_us: ... and per hop.
        at_bytes: half of the extra is paid here, in a group of REFERENCE_RANKS.
        growth: at_bytes grows with (ranks / REFERENCE_RANKS)^growth.
        sharpness: 1 gradual; large: a step.
    """

    extra_us: FromZero
    extra_hop_us: FromZero
    at_bytes: FromZero
    growth: float
    sharpness: FromZero


@dataclass(frozen=True)
class CollectiveModel:
    """Constants of one kind of collective over one link.

    Attributes:
        start_us: start-up.
        hop_us: per hop of the ring.
        pass_bytes_per_s: a rank's own passage of what it reads and writes.
        wire_bytes_per_s: of one lane.
        sharing_power: 0: lanes are a rank's own; 1: all ranks share one.
        switches: changes of protocol.
        from_bytes: the smallest measured size (larger of a rank's input and output); far below it, start-up is a guess.
    """

    start_us: FromZero
    hop_us: FromZero
    pass_bytes_per_s: FromZero
    wire_bytes_per_s: FromZero
    sharing_power: FromZero
    switches: tuple[ProtocolSwitch, ...]
    from_bytes: FromZero = 0.0

    def latency_us(self, calls: CollectiveCalls) -> np.ndarray:
        """[n] us of `calls`."""
        rate = calls.wire_bytes * calls.sharers**self.sharing_power / calls.lanes / self.wire_bytes_per_s
        seconds = calls.touched_bytes / self.pass_bytes_per_s + rate  # [n]
        result = self.start_us + self.hop_us * calls.hops + seconds * 1e6
        for switch in self.switches:
            result = result + (switch.extra_us + switch.extra_hop_us * calls.hops) * _changed(switch, calls)
        return result

    def moved(self, latency_ratio: float, bandwidth_ratio: float) -> CollectiveModel:
        """The law on another link of the same medium: hops take its latency, the wire its bandwidth.

        Start-up, a rank's own memory and the sizes at which the library changes its protocol stay.

        Args:
            latency_ratio: latency of a hop, new / old.
            bandwidth_ratio: sustained bandwidth, new / old.
        """
        return replace(
            self,
            hop_us=self.hop_us * latency_ratio,
            wire_bytes_per_s=self.wire_bytes_per_s * bandwidth_ratio,
            switches=tuple(replace(s, extra_hop_us=s.extra_hop_us * latency_ratio) for s in self.switches),
        )


def _changed(switch: ProtocolSwitch, calls: CollectiveCalls) -> np.ndarray:
    """Share of the change made [n], 0 to 1."""
    at = switch.at_bytes * (calls.ranks / REFERENCE_RANKS) ** switch.growth  # [n] bytes
    with np.errstate(divide="ignore"):  # no bytes: log is -inf, the share 0
        exponent = switch.sharpness * np.log(calls.touched_bytes / at)
    return 1.0 / (1.0 + np.exp(-np.clip(exponent, -LARGEST_EXPONENT, LARGEST_EXPONENT)))
