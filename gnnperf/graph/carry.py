"""What a step waits for of the step before: blocking calls, event waits and full launch queues across the boundary.

step k-1  host |A|...            device  |------ K ------|
step k    host        |sync ····· waits ·················|A|...        K of k-1 -> sync of k

One step that is scheduled several times in a row keeps these waits as pairs of its own nodes: the node of the copy
before, and the node that waits for its end. Threads and streams carry over by themselves (lanes.py).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.core import TIMED_RELATIONS, Evidence, Relation

NOTHING = np.zeros((2, 0), dtype=np.int64)


def carried_waits(nodes: pd.DataFrame, edges: pd.DataFrame, step: int) -> np.ndarray:
    """[2, num_carried] node ids of `step`: (node awaited in the copy before, node that waits).

    The other end of an edge across the boundary is found in `step` by content: lane, op, segment, kernel, and how
    many like it came before. A first step takes the boundary after it. What was inferred from time is left out, and
    what spans more than one boundary.
    """
    of = nodes["step"].to_numpy()
    src, dst = edges["src"].to_numpy(), edges["dst"].to_numpy()
    waits = edges["relation"].isin([str(r) for r in TIMED_RELATIONS if r is not Relation.FOLLOWS]).to_numpy()
    known = waits & (edges["evidence"] != Evidence.TIMING).to_numpy()
    repeated = step > 0 and bool((of == step - 1).any())  # -1 is outside of whole steps
    first = step - 1 if repeated else step  # of the two steps on either side of the boundary
    crosses = known & (of[src] == first) & (of[dst] == first + 1)
    pairs = np.stack([src[crosses], dst[crosses]])  # [2, num_crossing]
    if not pairs.size:
        return NOTHING
    elsewhere = 0 if repeated else 1  # the end that lies in the other step
    pairs[elsewhere] = _same(nodes, first + elsewhere, step)[pairs[elsewhere]]
    found = pairs[:, (pairs >= 0).all(axis=0)]
    return np.unique(found, axis=1) if found.size else NOTHING


def _same(nodes: pd.DataFrame, other: int, step: int) -> np.ndarray:
    """[num_nodes] for nodes of step `other`, the node of `step` with the same content and position; else -1."""
    keys = nodes.loc[nodes["step"].isin([other, step]), ["step", "rank", "content_key"]]
    keys = keys.assign(position=keys.groupby(["step", "rank", "content_key"]).cumcount(), node=keys.index)
    there, here = keys[keys["step"] == other], keys[keys["step"] == step]
    pairs = there.merge(here, on=["rank", "content_key", "position"], suffixes=("_there", "_here"))
    same = np.full(len(nodes), -1, dtype=np.int64)
    same[pairs["node_there"].to_numpy()] = pairs["node_here"].to_numpy()
    return same
