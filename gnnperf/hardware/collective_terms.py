"""Closed forms of collectives: hops of the critical path and bytes on the busiest link, by algorithm.

n ranks; S is the bytes of one rank's input (schema.NODE_COLUMNS).

kind             ring hops  ring bytes    source
all_reduce       2(n-1)     2(n-1)/n S    Thakur, Rabenseifner, Gropp 2005, section 4.5; NCCL's ring
reduce_scatter   n-1        (n-1)/n S     the first half of it
all_gather       n-1        (n-1) S       the second half; S is one rank's part
all_to_all       n-1        (n-1)/n S     pairwise exchange, ibid. section 4.3
broadcast, reduce, gather, scatter  n-1  S  pipelined ring; S is the message at the root
send, recv       1          S
barrier          2(n-1)     0

tree             2(g-1) hops inside + 2 log2 m between m machines of g ranks, 2 S: up and down a double binary tree of
                 chains; every rank sends and receives each byte twice (Sanders, Speck, Träff 2009; NCCL's tree)
in-network       2 hops, (n+1)/n S: the switch reduces on its way and multicasts the result back (NVLS, SHARP: Graham et
                 al. 2016, Klenk et al. 2020); a rank's whole input leaves it once, and its n-th of the result once more
"""

import numpy as np

# kind -> (hops as multiple of n-1, share of S: numerator in n-1, divided by n)
RING = {
    "all_reduce": (2.0, 2.0, True),
    "reduce_scatter": (1.0, 1.0, True),
    "all_gather": (1.0, 1.0, False),
    "all_to_all": (1.0, 1.0, True),
}
PIPELINED = ("broadcast", "reduce", "gather", "scatter")
POINT_TO_POINT = ("send", "recv", "send_recv", "p2p")
BARRIER = "barrier"
KINDS = (*RING, *PIPELINED, *POINT_TO_POINT, BARRIER)


def ring_terms(kinds: np.ndarray, ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hops [n] and share of S [n] on the busiest link, for `kinds` [n] in groups of `ranks` [n]; NaN unknown."""
    hops, share = np.full(len(kinds), np.nan), np.full(len(kinds), np.nan)
    others = ranks - 1
    for kind, (hop_factor, share_factor, divided) in RING.items():
        here = kinds == kind
        hops[here] = (hop_factor * others)[here]
        share[here] = (share_factor * others / (ranks if divided else 1.0))[here]
    pipelined = np.isin(kinds, PIPELINED)
    hops[pipelined], share[pipelined] = others[pipelined], np.minimum(others, 1.0)[pipelined]
    direct = np.isin(kinds, POINT_TO_POINT)
    hops[direct], share[direct] = 1.0, 1.0
    barrier = kinds == BARRIER
    hops[barrier], share[barrier] = 2 * others[barrier], 0.0
    return hops, share


def tree_terms(ranks: np.ndarray, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hops inside machines [n], hops between them [n] and share of S [n] of an all-reduce over a double binary tree."""
    inside = 2 * (np.ceil(ranks / nodes) - 1)
    return inside, 2 * np.ceil(np.log2(nodes)), 2 * np.minimum(ranks - 1, 1.0)


def in_network_terms(ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hops [n] and share of S [n] of an all-reduce that the switch computes; nothing to do for one rank."""
    several = np.minimum(ranks - 1, 1.0)  # [n] 0 for one rank
    return 2 * several, (ranks + 1) / ranks * several


def ring_hops_between_nodes(hops: np.ndarray, ranks: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """How many of a ring's hops [n] cross from one machine to the next: `nodes` of them each time around."""
    others = ranks - 1
    rounds = hops / np.maximum(others, 1.0)  # [n] times around the ring
    return np.where(nodes > 1, rounds * np.minimum(nodes, others), 0.0)


def touched_bytes(kinds: np.ndarray, message_bytes: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """The larger of a rank's input and output [n] bytes: what nccl-tests call size, and a rank's memory must pass."""
    return message_bytes * np.where(kinds == "all_gather", ranks, 1.0)
