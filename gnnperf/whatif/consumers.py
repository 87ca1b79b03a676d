"""Who takes what a call makes: told by `feeds` edges where there are any, else by shapes.

[T1|all_to_all -> [8,4]]-[T1|linear [8,5]]-[T1|view [8,4]]      no edge: the next call with an input [8,4] takes it

A shape can be taken for a tensor's that it is not; the first call after it is the earliest that may need it.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.core import Phase, Relation
from gnnperf.generate import Shape, parse, tensors
from gnnperf.graph import ExecutionGraph

ALLOCATES = ("empty_like", "zeros_like", "ones_like", "new_empty", "new_zeros", "empty_strided", "rand_like")
Takers = dict[Shape, np.ndarray]


def takers(nodes: pd.DataFrame, chosen: np.ndarray) -> Takers:
    """Shape -> [n] nodes among `chosen` [num_nodes] bool with such an input, ascending; what only allocates aside."""
    known = np.flatnonzero(chosen & nodes["input_dims"].notna().to_numpy())
    dims = nodes["input_dims"].astype(object).to_numpy()[known]
    names = nodes["op_name"].astype(str).to_numpy()[known]
    found: dict[Shape, list[int]] = {}
    for node, text, name in zip(known.tolist(), dims, names, strict=True):
        if name.rpartition("::")[2] not in ALLOCATES:
            for shape in {shape for argument in parse(str(text)) for shape in tensors(argument)}:
                found.setdefault(shape, []).append(node)
    return {shape: np.array(places) for shape, places in found.items()}


def first_after(found: Takers, shape: Shape, node: int) -> int:
    """The first node after `node` that takes such a shape; -1 none."""
    places = found.get(shape, np.zeros(0, dtype=np.int64))
    at = int(np.searchsorted(places, node, side="right"))
    return int(places[at]) if at < len(places) else -1


def fed_by(graph: ExecutionGraph) -> dict[int, np.ndarray]:
    """Node -> [n] nodes that its tensors feed, ascending.

    Edges from forward to backward are left out: every trace has them, and they do not say who takes a result next.
    """
    phase = graph.nodes["phase"].astype(str).to_numpy()
    feeds = graph.edges[(graph.edges["relation"] == Relation.FEEDS).to_numpy()]
    src, dst = feeds["src"].to_numpy(), feeds["dst"].to_numpy()
    told = (phase[src] != Phase.FORWARD) | (phase[dst] != Phase.BACKWARD)
    src, dst = src[told], dst[told]
    return {node: np.unique(dst[src == node]) for node in np.unique(src).tolist()}
