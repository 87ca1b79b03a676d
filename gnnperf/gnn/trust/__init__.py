"""How far the network is trusted at a node: how near the node is to what training saw."""

from gnnperf.gnn.trust.carry import Carry, fit_carry
from gnnperf.gnn.trust.corrections import Corrections, fit_corrections
from gnnperf.gnn.trust.likeness import Likeness, fit_likeness
from gnnperf.gnn.trust.seen import Seen, fit_seen
from gnnperf.gnn.trust.trust import States, Trust, Trusted, fit_trust, read_states

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
