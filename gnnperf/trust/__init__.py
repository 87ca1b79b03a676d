"""How far the network is trusted at a node: how near the node is to what training saw."""

from gnnperf.trust.carry import Carry, fit_carry
from gnnperf.trust.corrections import Corrections, fit_corrections
from gnnperf.trust.likeness import Likeness, fit_likeness
from gnnperf.trust.seen import Seen, fit_seen
from gnnperf.trust.trust import States, Trust, Trusted, fit_trust, read_states

__all__ = [
    "Carry",
    "Corrections",
    "Likeness",
    "Seen",
    "States",
    "Trust",
    "Trusted",
    "fit_carry",
    "fit_corrections",
    "fit_likeness",
    "fit_seen",
    "fit_trust",
    "read_states",
]
