"""Where in a step a change acts: found by phase and order on each rank's main thread.

main thread   | zero_grad, forward | backward | optimizers step |
              START                BACKWARD   OPTIMIZER
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from gnnperf.core import InputError, Phase, Relation, Segment
from gnnperf.graph import ExecutionGraph, consecutive, lane_keys

ROOT_GRADIENT = "aten::ones_like"


class Place(StrEnum):
    """Positions in a step, named as in the cards of recorded programs (`research.recording`)."""

    START = "start"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


def gap_at(graph: ExecutionGraph, rank: int, place: Place) -> np.ndarray:
    """[num_steps] the gap (T1) of the rank's main thread at this place of every step.

    Raises:
        InputError: the rank is not in the graph, or a step has no such place.
    """
    if rank not in graph.ranks:
        raise InputError(f"rank {rank} is not in the graph", where=f"graph {graph.name!r}",
                         allowed=", ".join(map(str, graph.ranks)))  # fmt: skip
    nodes = graph.nodes
    main = ((nodes["rank"] == rank) & (nodes["thread"] == 0)).to_numpy()
    is_gap = (nodes["segment"] == Segment.T1).to_numpy()
    backward, optimizer = _in_backward(graph), (nodes["phase"] == Phase.OPTIMIZER).to_numpy()
    backward |= _root_gradient(graph, backward)
    step = nodes["step"].to_numpy()
    results = []
    for label in graph.steps:
        lane = np.flatnonzero(main & (step == label.step))
        inside = np.flatnonzero(backward[lane])
        fits = is_gap[lane]
        if place == Place.BACKWARD:
            fits = fits & backward[lane]
        elif place == Place.OPTIMIZER:
            fits = fits & optimizer[lane] & (np.arange(len(lane)) > (inside[-1] if len(inside) else len(lane)))
        at = np.flatnonzero(fits)
        if not len(at):
            raise InputError(
                f"step {label.name} of rank {rank} has no place {str(place)!r}", where=f"graph {graph.name!r}",
                remedy="choose a place that the program passes",
            )  # fmt: skip
        results.append(int(lane[at[0]]))
    return np.array(results, dtype=np.int64)


def _in_backward(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes] bool: backward itself, and on other threads' behalf the gaps where they fork and join."""
    own = (graph.nodes["phase"] == Phase.BACKWARD).to_numpy()
    thread = graph.nodes["thread"].to_numpy()
    waits = (graph.edges["relation"] == Relation.WAITS).to_numpy()
    src, dst = graph.edges["src"].to_numpy()[waits], graph.edges["dst"].to_numpy()[waits]
    between_threads = (thread[src] >= 0) & (thread[dst] >= 0)
    src, dst = src[between_threads], dst[between_threads]
    result = own.copy()
    result[src[own[dst] & (thread[src] == 0)]] = True
    result[dst[own[src] & (thread[dst] == 0)]] = True
    return result


def _root_gradient(graph: ExecutionGraph, backward: np.ndarray) -> np.ndarray:
    """[num_nodes] bool: `backward()` makes the gradient of the loss before it enters the engine."""
    lane = lane_keys(graph.nodes)
    ones = (graph.nodes["op_name"] == ROOT_GRADIENT).to_numpy()
    before, after = consecutive(lane)
    enters = before[ones[before] & backward[after]]  # its last node
    result = np.zeros(graph.num_nodes, dtype=bool)
    result[enters] = True
    for node, following in zip(before[::-1].tolist(), after[::-1].tolist(), strict=True):
        if ones[node] and result[following]:
            result[node] = True
    return result
