"""Edits that declare a change of latencies and leave the latencies themselves to the predictor in use.

op latency    [T1|mm]-[T1|relu]    ->  [T1|mm x 0.5]-[T1|relu]
straggler     everything that one rank runs x 1.3
input stall   [T1|first op]        ->  [T1 + stall|first op]      in every step
pause         | forward |T1| backward |  ->  | forward |T1 + us| backward |
"""

import difflib
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from gnnperf.core import InputError, NodeType, Phase, Relation, Segment, require, require_one
from gnnperf.graph import ExecutionGraph, consecutive, lane_keys
from gnnperf.whatif.edit import ON_DEVICE, Edited, chosen, ends, is_type, latency_change, refusal, rewritten

WORK_OF = {"host": (NodeType.HOST,), "device": ON_DEVICE, "all": (NodeType.HOST, *ON_DEVICE)}  # Straggler.work


@dataclass(frozen=True)
class OpLatency:
    """Calls of an op take another time: their device work, or, where they have none, their host time."""

    op: str  # its name (aten::mm), or a kind of collective (all_reduce): then its transfers
    factor: float | None = None  # of the latency that is predicted; None: `us` is given
    us: float | None = None  # the latency of each node; None: `factor` is given
    phase: str | None = None  # forward, backward, optimizer; None any
    rank: int | None = None  # None all

    def __post_init__(self) -> None:
        require_one("an op latency", factor=self.factor, us=self.us)
        value = self.factor if self.us is None else self.us
        require(value is not None and value >= 0, "factor or us of an op latency", value, "0 or more")

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Apply the edit."""
        nodes = self._nodes(graph)
        if not nodes.any():
            raise _no_op(graph, self)
        change = latency_change(nodes, 1.0 if self.factor is None else self.factor,
                                declared_us=np.nan if self.us is None else self.us)  # fmt: skip
        return rewritten(graph, nodes, change=change)

    def _nodes(self, graph: ExecutionGraph) -> np.ndarray:
        """[num_nodes] bool."""
        named = chosen(graph.nodes, op_name=self.op, phase=self.phase, rank=self.rank)
        named &= (graph.nodes["segment"] != Segment.T1).to_numpy()
        works = named & is_type(graph, *ON_DEVICE)
        if works.any():
            return works
        transfers = chosen(graph.nodes, NodeType.COLLECTIVE, phase=self.phase)
        transfers &= ((graph.nodes["collective"] == self.op) | (graph.nodes["op_name"] == self.op)).to_numpy()
        return transfers if transfers.any() and self.rank is None else named & is_type(graph, NodeType.HOST)


def _no_op(graph: ExecutionGraph, requested: OpLatency) -> InputError:
    nodes = graph.nodes[graph.nodes["step"].ge(0) & (graph.nodes["segment"] != Segment.T1)]
    names = sorted({*map(str, nodes["op_name"].dropna()), *map(str, nodes["collective"].dropna())})
    near = [name for name in names if name.rpartition("::")[2] == requested.op.rpartition("::")[2]]
    near += [name for name in difflib.get_close_matches(requested.op, names, n=5, cutoff=0.5) if name not in near]
    limits = "".join(f" {key} {value}" for key, value in (("phase", requested.phase), ("rank", requested.rank))
                     if value is not None)  # fmt: skip
    return refusal(graph, f"no call of {requested.op!r}{f' in{limits}' if limits else ''}",
                   f"an op of the graph, e.g. {', '.join((near or names)[:8])}")  # fmt: skip


@dataclass(frozen=True)
class Straggler:
    """One rank works slower."""

    rank: int  # which
    factor: float  # of the latency of its work; below 1: faster
    work: str = "all"  # host, device or all. On a CPU the ops are device work, what lies between them is host work.

    def __post_init__(self) -> None:
        require(self.factor > 0, "factor of a straggler", self.factor, "above 0")
        require(self.work in WORK_OF, "work of a straggler", self.work, ", ".join(WORK_OF))

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Apply the edit."""
        nodes = (graph.nodes["rank"] == self.rank).to_numpy() & is_type(graph, *WORK_OF[self.work])
        if not nodes.any():
            raise refusal(
                graph, f"no work ({self.work}) of rank {self.rank}", f"rank {', '.join(map(str, graph.ranks))}"
            )
        unknown = (f"whether rank {self.rank} also slows the transfers down that it takes part in",)
        return rewritten(graph, nodes, unknown, change=latency_change(nodes, self.factor))


@dataclass(frozen=True)
class InputStall:
    """The main thread waits for data before each step."""

    us: float  # how long
    rank: int | None = None  # which rank; None all

    def __post_init__(self) -> None:
        require(self.us >= 0, "us of an input stall", self.us, "0 or more")

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Apply the edit."""
        nodes = np.zeros(graph.num_nodes, dtype=bool)
        for rank in graph.ranks if self.rank is None else (self.rank,):
            nodes[gap_at(graph, rank, Place.START)] = True
        unknown = ("how much of the stall work of other threads hides, and what that work costs the host",)
        return rewritten(graph, nodes, unknown, change=latency_change(nodes, added_us=self.us))


@dataclass(frozen=True)
class DeclarePause:
    """One rank waits once per step."""

    us: float  # how long
    rank: int  # which
    place: str = "start"  # start, backward (before it) or optimizer (before it)

    def __post_init__(self) -> None:
        require(self.us >= 0, "us of a pause", self.us, "0 or more")
        require(self.place in list(Place), "place of a pause", self.place, ", ".join(Place))

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Apply the edit."""
        nodes = np.zeros(graph.num_nodes, dtype=bool)
        nodes[gap_at(graph, self.rank, Place(self.place))] = True
        unknown = ("what other threads of the rank do in a pause: they go on as they were",)
        return rewritten(graph, nodes, unknown, change=latency_change(nodes, added_us=self.us))


@dataclass(frozen=True)
class ScaleNodes:
    """Each of the given nodes takes a multiple of its latency: for changes that no op name or rank selects."""

    nodes: tuple[int, ...]  # node ids of the graph
    factors: tuple[float, ...]  # one per node, 0 or more

    def __post_init__(self) -> None:
        require(len(self.nodes) == len(self.factors), "factors of nodes", len(self.factors), f"{len(self.nodes)}")
        require(len(set(self.nodes)) == len(self.nodes), "nodes to scale", self.nodes, "each node once")
        require(all(f >= 0 for f in self.factors), "factors of nodes", self.factors, "0 or more")

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Apply the edit."""
        inside = all(0 <= node < graph.num_nodes for node in self.nodes)
        require(inside, "nodes to scale", self.nodes, f"0 to {graph.num_nodes - 1}")
        factor, touched = np.ones(graph.num_nodes), np.zeros(graph.num_nodes, dtype=bool)
        factor[list(self.nodes)], touched[list(self.nodes)] = self.factors, True
        return rewritten(graph, touched, change=latency_change(touched, factor))


# Where in a step a change acts, by phase and order on each rank's main thread.
#
# main thread   | zero_grad, forward | backward | optimizers step |
#               START                BACKWARD   OPTIMIZER

ROOT_GRADIENT = "aten::ones_like"


class Place(StrEnum):
    """Positions in a step, named as in the cards of recorded programs (`research.recording`)."""

    START = "start"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


def gap_at(graph: ExecutionGraph, rank: int, place: Place) -> np.ndarray:
    """[num_steps] the gap (T1) of the rank's main thread at this place of every step.

    Raises InputError: the rank is not in the graph, or a step has no such place.
    """
    if rank not in graph.ranks:
        raise refusal(graph, f"rank {rank} is not in the graph", ", ".join(map(str, graph.ranks)))
    nodes = graph.nodes
    main = ((nodes["rank"] == rank) & (nodes["thread"] == 0)).to_numpy()
    is_gap = (nodes["segment"] == Segment.T1).to_numpy()
    own, optimizer = ((nodes["phase"] == phase).to_numpy() for phase in (Phase.BACKWARD, Phase.OPTIMIZER))
    # Backward itself, and the gaps of the main thread where it forks to and joins other threads.
    backward, thread, (src, dst) = own.copy(), nodes["thread"].to_numpy(), ends(graph, Relation.WAITS)
    between_threads = (thread[src] >= 0) & (thread[dst] >= 0)
    src, dst = src[between_threads], dst[between_threads]
    backward[src[own[dst] & (thread[src] == 0)]] = True
    backward[dst[own[src] & (thread[dst] == 0)]] = True
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
            raise refusal(graph, f"step {label.name} of rank {rank} has no place {str(place)!r}",
                          remedy="choose a place that the program passes")  # fmt: skip
        results.append(int(lane[at[0]]))
    return np.array(results, dtype=np.int64)


def _root_gradient(graph: ExecutionGraph, backward: np.ndarray) -> np.ndarray:
    """[num_nodes] bool: `backward()` makes the gradient of the loss before it enters the engine."""
    ones = (graph.nodes["op_name"] == ROOT_GRADIENT).to_numpy()
    before, after = consecutive(lane_keys(graph.nodes))
    result = np.zeros(graph.num_nodes, dtype=bool)
    result[before[ones[before] & backward[after]]] = True  # its last node
    for node, following in zip(before[::-1].tolist(), after[::-1].tolist(), strict=True):
        if ones[node] and result[following]:
            result[node] = True
    return result
