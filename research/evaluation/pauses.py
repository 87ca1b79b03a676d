"""One rank sleeps at a place of every step; its GPU, by a kernel that only counts clock cycles.

pause   | forward |T1| backward |  ->  | forward |T1 + sleep| backward |
spin    host |T4 launch|        stream |--- gemm ---|
        host |T4'|T4 launch|    stream |--- spin ---|--- gemm ---|
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnnperf.core import InputError, NodeType, Relation
from gnnperf.graph import ExecutionGraph, lane_keys
from gnnperf.whatif import Edited, Place
from gnnperf.whatif.declared import gap_at
from gnnperf.whatif.edit import ends, is_type, rewritten, unedited
from gnnperf.whatif.graph_rewrite import insert_copies, remove
from gnnperf.whatif.units import host_units


@dataclass(frozen=True)
class Pause:
    """One rank waits once per step.

    Attributes:
        rank: which.
        place: where in the step.
        sleep_us: how long; negative takes a sleep out again.
    """

    rank: int
    place: Place
    sleep_us: float

    def __call__(self, graph: ExecutionGraph) -> Edited:
        if self.sleep_us == 0:
            return unedited(graph)
        at = gap_at(graph, self.rank, self.place)
        latency = graph.nodes["latency_us"].to_numpy(copy=True)
        wanted = latency[at] + self.sleep_us
        latency[at] = np.maximum(wanted, 0.0)
        touched = np.zeros(graph.num_nodes, dtype=bool)
        touched[at] = True
        return rewritten(graph, touched, self._unknown(wanted), latency_us=latency)

    def _unknown(self, wanted_us: np.ndarray) -> tuple[str, ...]:
        short = wanted_us < 0
        if not short.any():
            return ()
        return (
            f"{short.sum()} of {len(short)} gaps are shorter than the sleep of {-self.sleep_us:g} us that is taken out "
            f"(by {-wanted_us[short].min():.1f} us at most): they become 0",
        )


SPIN_KERNEL = "spin_kernel"  # part of the name of what `torch.cuda._sleep` launches


@dataclass(frozen=True)
class Spin:
    """A kernel of a given length goes into the stream of the next kernel after a place, in every step.

    Attributes:
        rank: which.
        place: where in the step it is launched.
        spin_us: how long the kernel runs.
    """

    rank: int
    place: Place
    spin_us: float

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Insert the kernel and its launch, which takes as long as the next launch."""
        call, kernel = _next_launches(graph, gap_at(graph, self.rank, self.place))
        unit = np.full(graph.num_nodes, -1, dtype=np.int64)
        unit[call] = unit[kernel] = np.arange(len(call))
        edited, came_from, is_copy = insert_copies(graph, unit, 1)
        spin = is_copy & is_type(edited, NodeType.COMPUTE)
        latency = np.where(spin, self.spin_us, edited.nodes["latency_us"].to_numpy())
        unknown = ("how long the host takes beyond the launch call itself",)
        return Edited(replace(edited, nodes=edited.nodes.assign(latency_us=latency)), is_copy, came_from, unknown)


@dataclass(frozen=True)
class NoSpin:
    """Without the kernels that only count, and the calls that launch them.

    Attributes:
        rank: whose.
    """

    rank: int

    def __call__(self, graph: ExecutionGraph) -> Edited:
        gone = np.zeros(graph.num_nodes, dtype=bool)
        gone[spins(graph, self.rank)] = True
        src, dst = ends(graph, Relation.LAUNCHES)
        unit = host_units(graph)
        gone |= np.isin(unit, unit[src[gone[dst]]]) & (unit >= 0)
        edited, came_from = remove(graph, gone)
        unknown = ("what the host did around these launches",)
        return Edited(edited, np.zeros(edited.num_nodes, dtype=bool), came_from, unknown)


def spin_us(graph: ExecutionGraph, rank: int) -> float:
    """Median length of a rank's kernels that only count.

    Raises:
        InputError: the rank has none.
    """
    return float(np.median(graph.nodes["latency_us"].to_numpy()[spins(graph, rank)]))


def spins(graph: ExecutionGraph, rank: int) -> np.ndarray:
    """[n] a rank's kernels that only count.

    Raises:
        InputError: the rank has none.
    """
    names = graph.nodes["event_name"].astype("str").fillna("")
    result = names.str.contains(SPIN_KERNEL) & (graph.nodes["rank"] == rank)
    result &= (graph.nodes["node_type"] == NodeType.COMPUTE) & graph.nodes["step"].ge(0)
    if not result.any():
        raise InputError(f"rank {rank} runs no {SPIN_KERNEL}", where=f"graph {graph.name!r}",
                         allowed="a program with torch.cuda._sleep in every step")  # fmt: skip
    return np.flatnonzero(result.to_numpy())


def _next_launches(graph: ExecutionGraph, gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[num_steps] the call after each gap whose kernel is the first to run, and that kernel.

    After a gap come the rest of its thread, and the threads that it forks there.
    """
    nodes, edges = graph.nodes, graph.edges
    src, dst = edges["src"].to_numpy(), edges["dst"].to_numpy()
    is_kernel = (nodes["node_type"] == NodeType.COMPUTE).to_numpy() & (nodes["stream"] >= 0).to_numpy()
    launch = np.flatnonzero((edges["relation"] == Relation.LAUNCHES).to_numpy() & is_kernel[dst])
    step, lane = nodes["step"].to_numpy(), lane_keys(nodes)
    result = []
    for gap in gaps.tolist():
        forked = dst[(src == gap) & (edges["relation"] == Relation.WAITS).to_numpy()]
        after = np.zeros(len(launch), dtype=bool)
        for begin in [gap, *forked.tolist()]:
            after |= (lane[src[launch]] == lane[begin]) & (src[launch] >= begin)
        candidates = launch[after & (step[src[launch]] == step[gap])]
        if not len(candidates):
            raise InputError(f"nothing is launched after node {gap}", where=f"graph {graph.name!r}",
                             allowed="a program that runs on a GPU")  # fmt: skip
        result.append(int(candidates[np.argmin(dst[candidates])]))
    return src[result], dst[result]
