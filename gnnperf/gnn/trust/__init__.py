"""How far the network is trusted at a node: how near the node is to what training saw."""

from gnnperf.gnn.trust.carry import Carry, fit_carry
from gnnperf.gnn.trust.likeness import Likeness, fit_likeness
from gnnperf.gnn.trust.trust import (
    Corrections,
    Seen,
    States,
    Trust,
    Trusted,
    fit_corrections,
    fit_seen,
    fit_trust,
    read_states,
)

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
