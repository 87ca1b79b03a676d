"""fold(graph): ranks with equal roles once, with their number.

before   rank 0 .. rank 7, each [T1|gemm|...|arrive]>[all_reduce of 8]>[exit|...]      8 x nodes
after    rank 0 (stands for 8)  [T1|gemm|...|arrive]>[all_reduce of 8]>[exit|...]      1 x nodes, groups of 8
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gnnperf.core import NodeType
from gnnperf.graph import ExecutionGraph, content_keys
from gnnperf.hardware import machines_of

# A graph taken apart by ranks: what each rank has by itself, and where ranks meet.
# rank 0   a0 - a1 -.        own edges a0 -> a1, b0 -> b1
#                    >[c]    meeting edges a1 -> c, b1 -> c
# rank 1   b0 - b1 -'        places a0 = b0 = 0, a1 = b1 = 1

# What predictors see of a node, less who it belongs to. Labels, row numbers, ranks and device ordinals are not here.
CONTENT = (
    "node_type", "step", "thread", "stream", "op_name", "event_name", "segment", "phase", "family", "dtype",
    "input_dims", "ordinal", "num_siblings", "flops", "bytes", "message_bytes", "group_size", "group_stride",
    "collective",
)  # fmt: skip
EDGE_LABEL = ("relation", "evidence", "lag_class")
GRAPH_LAUNCH = " kernels]"  # end of the name of a launched graph, which states how many kernels it holds
SHARED = -1


@dataclass(frozen=True)
class Structure:
    """Nodes by rank, and edges as arrays."""

    num_ranks: int  # ranks in the graph
    owner: np.ndarray  # [num_nodes] position of the node's rank in `graph.ranks`; SHARED for collectives and links
    place: np.ndarray  # [num_nodes] number of the node among its rank's; SHARED for shared ones
    content: np.ndarray  # [num_nodes] uint64, equal for nodes that predictors cannot tell apart
    meets: np.ndarray  # [num_nodes] bool, transfers: what ranks meet in
    # src, dst: [num_edges] node ids, those of `graph.cross_step` included
    src: np.ndarray
    dst: np.ndarray
    label: np.ndarray  # [num_edges] uint64, equal for edges of equal relation, evidence and lag class


def structure_of(graph: ExecutionGraph, ranks_per_node: int | None) -> Structure:
    """The structure of a graph."""
    at = {rank: position for position, rank in enumerate(graph.ranks)}
    rank, inverse = np.unique(graph.nodes["rank"].to_numpy(), return_inverse=True)
    owner = np.array([at.get(int(r), SHARED) for r in rank], dtype=np.int64)[inverse]
    cross_step = np.zeros((2, 0), dtype=np.int64) if graph.cross_step is None else graph.cross_step
    src, dst = (graph.edges[end].to_numpy() for end in ("src", "dst"))
    label = content_keys(graph.edges, EDGE_LABEL).view(np.uint64)
    return Structure(
        num_ranks=len(graph.ranks),
        owner=owner,
        place=np.where(owner == SHARED, SHARED, places_among(owner)),
        content=_content(graph.nodes, ranks_per_node),
        meets=(graph.nodes["node_type"] == NodeType.COLLECTIVE).to_numpy(),
        src=np.concatenate([src, cross_step[0]]),
        dst=np.concatenate([dst, cross_step[1]]),
        label=np.concatenate([label, np.ones(cross_step.shape[1], dtype=np.uint64)]),
    )


def seen(nodes: pd.DataFrame) -> pd.DataFrame:
    """The columns of CONTENT. Of a kernel's name predictors see no more than how many kernels a graph launch holds."""
    names = nodes["event_name"].astype(object).where(nodes["event_name"].notna(), "")
    hidden = (nodes["node_type"] == NodeType.COMPUTE).to_numpy() & ~names.str.endswith(GRAPH_LAUNCH).to_numpy(bool)
    return nodes[list(CONTENT)].assign(event_name=pd.Categorical(names.mask(hidden, "")))


def _content(nodes: pd.DataFrame, ranks_per_node: int | None) -> np.ndarray:
    result = content_keys(seen(nodes), CONTENT).view(np.uint64)
    if ranks_per_node is None:
        return result
    size, first, stride = (nodes[column].to_numpy() for column in ("group_size", "group_first", "group_stride"))
    return mixed(result, machines_of(size, first, stride, ranks_per_node))


def places_among(group: np.ndarray) -> np.ndarray:
    """[n] number of each member of a group [n] among those of its group, in order."""
    return pd.Series(group).groupby(group).cumcount().to_numpy()


def mixed(*parts: np.ndarray) -> np.ndarray:
    """[n] uint64 hash of arrays [n] of whole numbers, in order (splitmix64: Steele, Lea, Flood 2014)."""
    result = np.zeros(1, dtype=np.uint64)
    for part in parts:
        result = result * np.uint64(0x9E3779B97F4A7C15) + np.asarray(part).astype(np.uint64)
        result = (result ^ (result >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        result = (result ^ (result >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        result ^= result >> np.uint64(31)
    return result


def summed(values: np.ndarray, where: np.ndarray, count: int) -> np.ndarray:
    """[count] uint64 sums of hashes `values` [n] at `where` [n]: the hash of a multiset."""
    result = np.zeros(count, dtype=np.uint64)
    np.add.at(result, where, values)
    return result


# Which ranks have equal roles: color refinement over ranks and what they meet in.
#
# Start: ranks with equal nodes, in order, and equal edges among them have one color. Round by round a rank's color
# takes in what it meets: of every transfer the colors of all its ranks and the places of their parts, of every edge
# to another rank that rank's color. When no color splits any more, ranks of one color see equal surroundings, however
# far one looks (the coarsest equitable partition: Cardon, Crochemore 1982; Grohe 2017, chapter 3).
#
# Whatever gives equal nodes equal latencies then gives equal starts to the nodes of equal ranks: a start is the maximum
# over what a node waits for, and that is the same multiset of (color, place). So one rank per color is enough.


def refine(
    structure: Structure, stands_for: np.ndarray, machine: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[num_ranks] class by own nodes and edges; [num_ranks] coarsest class; [num_nodes] uint64 color of what is shared.

    `stands_for` [num_ranks]: ranks that each one stands for already; `machine` [num_ranks]: the machine whose ranks
    stay together because they share what the graph does not hold (processor cores), each its own where they do not.
    """
    isolated = mixed(_classes_own(structure), stands_for)
    _, seat, ranks_there = np.unique(machine, return_inverse=True, return_counts=True)
    color = mixed(isolated, places_among(machine), ranks_there[seat])
    count = 0
    while (result := len(np.unique(color))) > count:
        count = result
        color = mixed(color, _met(structure, color), summed(mixed(color), seat, len(machine))[seat])
    of_isolated, of_rank = (np.unique(c, return_inverse=True)[1] for c in (isolated, color))
    return of_isolated, of_rank, _shared(structure, color)


def _classes_own(s: Structure) -> np.ndarray:
    """[num_ranks] color of a rank by itself: its nodes in order, its edges, the links it crosses."""
    inside = s.owner >= 0
    nodes = summed(mixed(s.place[inside], s.content[inside]), s.owner[inside], s.num_ranks)
    own = (s.owner[s.src] == s.owner[s.dst]) & (s.owner[s.src] >= 0)
    within = mixed(s.place[s.src[own]], s.place[s.dst[own]], s.label[own])
    return mixed(nodes, summed(within, s.owner[s.src[own]], s.num_ranks))


def _shared(s: Structure, color: np.ndarray) -> np.ndarray:
    """[num_nodes] color of what is shared: its content and, of a transfer, its ranks' colors and places."""
    result = np.where(s.owner == SHARED, s.content, np.uint64(0))
    for here, there, way in ((s.dst, s.src, 1), (s.src, s.dst, 2)):
        joins = s.meets[here] & (s.owner[there] >= 0)
        rank = s.owner[there[joins]]
        parts = mixed(np.full(len(rank), way), s.label[joins], s.place[there[joins]], color[rank])
        result = result + summed(parts, here[joins], len(result))
    return result


def _met(s: Structure, color: np.ndarray) -> np.ndarray:
    """[num_ranks] what a rank meets: transfers and links by their colors, other ranks by theirs."""
    shared = _shared(s, color)
    result = np.zeros(s.num_ranks, dtype=np.uint64)
    for here, there, way in ((s.src, s.dst, 3), (s.dst, s.src, 4)):
        leaves = (s.owner[here] >= 0) & (s.owner[here] != s.owner[there])
        ends, others = here[leaves], there[leaves]
        seen = np.where(s.owner[others] == SHARED, shared[others], mixed(s.place[others], color[s.owner[others]]))
        given = mixed(np.full(len(ends), way), s.label[leaves], s.place[ends], seen)
        result = result + summed(given, s.owner[ends], s.num_ranks)
    return result


# The graph with one rank per class: the others' nodes go, and what they met is met by those that stand for them.


def stand_ins(structure: Structure, rank_class: np.ndarray, shared_color: np.ndarray) -> np.ndarray:
    """[num_nodes] the node that stands for each one: of the first rank of its class, of the first like transfer."""
    s = structure
    _, first = np.unique(rank_class, return_index=True)  # [num_classes] the first rank of each
    owned, shared = s.owner >= 0, s.owner == SHARED
    result = np.arange(len(s.owner))
    begin = np.full(s.num_ranks, -1, dtype=np.int64)
    by_rank = np.argsort(s.owner[owned], kind="stable")
    nodes = np.flatnonzero(owned)[by_rank]  # by rank, in order
    ranks, start = np.unique(s.owner[nodes], return_index=True)
    begin[ranks] = start
    result[owned] = nodes[begin[first[rank_class[s.owner[owned]]]] + s.place[owned]]
    retained = _met_by(s, np.isin(np.arange(s.num_ranks), first))
    candidates = np.flatnonzero(shared & (retained | ~s.meets))
    alike, at = np.unique(shared_color[candidates], return_index=True)
    transfers = np.flatnonzero(shared & s.meets)
    result[transfers] = candidates[at[np.searchsorted(alike, shared_color[transfers])]]
    return result


def _met_by(s: Structure, ranks: np.ndarray) -> np.ndarray:
    """[num_nodes] bool: shared nodes that some of `ranks` [num_ranks] bool, or that no one, has an edge to or from."""
    met, anybody = np.zeros(len(s.owner), dtype=bool), np.zeros(len(s.owner), dtype=bool)
    for here, there in ((s.src, s.dst), (s.dst, s.src)):
        joins = (s.owner[here] == SHARED) & (s.owner[there] >= 0)
        anybody[here[joins]] = True
        met[here[joins][ranks[s.owner[there[joins]]]]] = True
    return met | ~anybody


def reduced(graph: ExecutionGraph, structure: Structure, stands_in: np.ndarray) -> tuple[ExecutionGraph, np.ndarray]:
    """The graph of stand-ins only, and [num_nodes] which of its nodes stands for each node of `graph`.

    An edge stays where its end does (the other end moves to its stand-in), edges into shared nodes where their begin
    does: what a kept node waits for is then complete.
    """
    keep = stands_in == np.arange(len(stands_in))
    new_id = np.cumsum(keep) - 1
    src, dst = (graph.edges[end].to_numpy() for end in ("src", "dst"))
    stays = np.where(structure.owner[dst] == SHARED, keep[src], keep[dst])
    nodes = graph.nodes[keep].reset_index(drop=True)
    nodes = nodes.assign(node_id=np.arange(len(nodes), dtype=np.int64))
    edges = graph.edges[stays].reset_index(drop=True)
    edges = edges.assign(src=new_id[stands_in[src[stays]]], dst=new_id[stands_in[dst[stays]]])
    cross_step = graph.cross_step
    if cross_step is not None:
        cross_step = new_id[stands_in[cross_step[:, keep[cross_step[1]]]]]
    return replace(graph, nodes=nodes, edges=edges, cross_step=cross_step), new_id[stands_in]


def of_ranks(graph: ExecutionGraph, chosen: np.ndarray) -> ExecutionGraph:
    """`graph` with the attributes of the ranks at positions `chosen` only; its nodes are theirs already."""
    names = tuple(graph.device_names[i] for i in chosen) if graph.device_names else ()
    steps = tuple(
        replace(step, rank_start_us=tuple(step.rank_start_us[i] for i in chosen),
                rank_completion_us=tuple(step.rank_completion_us[i] for i in chosen))
        for step in graph.steps
    )  # fmt: skip
    return replace(graph, ranks=tuple(graph.ranks[i] for i in chosen), device_names=names, steps=steps)


# Why two ranks are no class: the first difference, in words.


def why_apart(graph: ExecutionGraph, isolated: np.ndarray, machine: np.ndarray, position: int, other: int) -> str:
    """What distinguishes the rank at `position` from the one at `other`, both among `graph.ranks`.

    `isolated` [num_ranks]: class by own nodes and edges; `machine` [num_ranks]: whose ranks stay together.
    """
    rank, base = graph.ranks[position], graph.ranks[other]
    if isolated[position] != isolated[other]:
        mine, others = (seen(graph.nodes[graph.nodes["rank"] == r]).reset_index(drop=True) for r in (rank, base))
        return _difference(mine, others, base)
    if machine[position] == machine[other]:
        return f"does the same as rank {base}, but they share the cores of one machine"
    return f"does the same as rank {base}, but meets other ranks"


def _difference(mine: pd.DataFrame, others: pd.DataFrame, base: int) -> str:
    """The first node that differs, and in what; else how many there are, else that edges differ."""
    both = min(len(mine), len(others))
    a, b = (_texts(frame)[:both] for frame in (mine, others))  # [both, columns]
    if (a != b).any():
        row, column = np.argwhere(a != b)[0]
        name, op = mine.columns[column], str(mine["op_name"].iloc[row])
        have = a[row, column] or "unknown", b[row, column] or "unknown"
        return f"node {row} ({op}) has {name} {have[0]}, rank {base} has {have[1]}"
    if len(mine) != len(others):
        return f"has {len(mine)} nodes, rank {base} has {len(others)}"
    return f"has the nodes of rank {base}, but other edges among them"


def _texts(frame: pd.DataFrame) -> np.ndarray:
    return np.column_stack([c.astype(object).where(c.notna(), "").astype(str) for _, c in frame.items()])


@dataclass(frozen=True)
class RankClass:
    """Ranks that nothing in the graph tells apart."""

    rank: int  # the one in the folded graph
    ranks: tuple[int, ...]  # all of them, ascending
    why: str = ""  # what distinguishes them from rank classes before; "" for the first class


@dataclass(frozen=True)
class Folded:
    """A folded graph."""

    graph: ExecutionGraph  # one rank of each class; `stands_for` has their numbers
    classes: tuple[RankClass, ...]  # in order of their ranks in the graph
    node: np.ndarray  # [num_nodes of the graph before] the folded graph's node that stands for each one
    came_from: np.ndarray  # [num_nodes of the folded graph] the node of the graph before that each one is


def fold(graph: ExecutionGraph, ranks_per_node: int | None = None) -> Folded:
    """One rank per role: schedules of the folded and of the whole graph are the same.

    That holds for all latencies that are equal on equal nodes, as those of the analytical model are; recorded latencies
    stay those of the rank that is kept. Ranks on CPUs share their machine's cores, so machines are folded there,
    not ranks.

    `ranks_per_node`: of a machine. Ranks whose groups span unequal numbers of machines are then kept apart; None: as
    the graph's card states, and nothing where it does not.
    """
    hosts = None if graph.placement is None else graph.placement.hosts
    per_machine = ranks_per_node or (max(graph.world_size // hosts, 1) if hosts else None)
    structure = structure_of(graph, per_machine)
    machine = np.arange(len(graph.ranks)) if graph.runs_on_gpu else _machines(graph, per_machine)
    before = np.array(list(graph.multiplicity.values()), dtype=np.int64)
    isolated, rank_class, shared = refine(structure, before, machine)
    stands_in = stand_ins(structure, rank_class, shared)
    small, node = reduced(graph, structure, stands_in)
    _, first = np.unique(rank_class, return_index=True)
    chosen = np.sort(first)  # positions of the kept ranks
    stands_for = tuple(int(before[rank_class == rank_class[i]].sum()) for i in chosen)
    small = of_ranks(small, chosen)
    small = replace(small, stands_for=stands_for)
    came_from = np.flatnonzero(stands_in == np.arange(len(stands_in)))
    classes = []
    for position in chosen.tolist():
        own = tuple(int(r) for r in np.array(graph.ranks)[rank_class == rank_class[position]])
        why = "" if position == chosen[0] else why_apart(graph, isolated, machine, position, int(chosen[0]))
        classes.append(RankClass(graph.ranks[position], own, why))
    return Folded(small.validate(), tuple(classes), node, came_from)


def _machines(graph: ExecutionGraph, per_machine: int | None) -> np.ndarray:
    """[num_ranks] who stays together: ranks of one machine, or bound to one core; all where nothing is known."""
    ranks = np.array(graph.ranks, dtype=np.int64)
    result = ranks // per_machine if per_machine else np.zeros(len(ranks), dtype=np.int64)
    cores = () if graph.placement is None else graph.placement.core_sets
    holders: dict[int, int] = {}  # core -> machine; hosts may be namespaces of one machine
    for position, rank in enumerate(ranks.tolist()):
        for core in cores[rank] if rank < len(cores) else ():
            result = np.where(result == result[position], holders.setdefault(core, int(result[position])), result)
    return result
