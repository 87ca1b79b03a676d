"""How far the network is trusted at a node: how near the node is to what training saw."""

from gnnperf.gnn.trust.ood_distance import OodDistance, fit_ood_distance
from gnnperf.gnn.trust.transferability import Transferability, fit_transferability
from gnnperf.gnn.trust.trust import (
    Corrections,
    Seen,
    States,
    Trust,
    Trusted,
    fit_corrections,
    fit_seen,
    fit_trust,
    plain_trust,
    read_states,
)

__all__ = [
    "Corrections",
    "OodDistance",
    "Seen",
    "States",
    "Transferability",
    "Trust",
    "Trusted",
    "fit_corrections",
    "fit_ood_distance",
    "fit_seen",
    "fit_transferability",
    "fit_trust",
    "plain_trust",
    "read_states",
]
