"""ExecutionGraph: every host segment, kernel, copy and collective of a run, all ranks in one graph."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gnnperf.core import TIMED_RELATIONS, Evidence, InputError, NodeType, Relation, Segment, schema
from gnnperf.graph.event_columns import by_category
from gnnperf.graph.tables import combined
from gnnperf.hardware import Placement

# How embedding tables were accessed in a recorded run, as its card counts it.

KEYS = ("rows", "dim", "batches", "lookups_per_batch")
KEY = "index_statistics"
ALLOWED = f"{', '.join(KEYS)}: integers above 0; reuse_histogram: counts of rows, not all 0"


@dataclass(frozen=True)
class TableCounts:
    """Tables of one size together: which of them a call looks up is not recorded."""

    rows: int  # of each whole table
    dim: int  # columns of each whole table
    lookups: int  # indices of one batch of one rank in one table
    batches: int  # that were counted, over tables and ranks
    # of all these batches, rows that a batch asks for once, twice, 3 to 4, 5 to 8, ... times
    reuse_histogram: tuple[int, ...]


def lookups_held(reuse_histogram: Sequence[float]) -> tuple[float, float]:
    """Lookups that a histogram holds at least and at most: each row as often as its bin allows."""
    bins = [(2 ** (place - 1) + 1 if place else 1, 2**place) for place in range(len(reuse_histogram))]
    least, most = (sum(rows * times[i] for rows, times in zip(reuse_histogram, bins, strict=True)) for i in (0, 1))
    return float(least), float(most)


def table_counts(card: Mapping[str, object] | None) -> tuple[TableCounts, ...]:
    """Of a recorder's card, by size in order of the first table; () without counts. Refuses what no recorder writes."""
    result: dict[tuple[int, int, int], TableCounts] = {}
    for one in _entries(card or {}):
        before = result.get((one.rows, one.dim, one.lookups))
        result[one.rows, one.dim, one.lookups] = one if before is None else _sum(before, one)
    return tuple(result.values())


def _sum(one: TableCounts, other: TableCounts) -> TableCounts:
    bins = max(len(one.reuse_histogram), len(other.reuse_histogram))
    padded = [(*t.reuse_histogram, *[0] * (bins - len(t.reuse_histogram))) for t in (one, other)]
    total = tuple(a + b for a, b in zip(*padded, strict=True))
    return TableCounts(one.rows, one.dim, one.lookups, one.batches + other.batches, total)


def _entries(card: Mapping[str, object]) -> Iterator[TableCounts]:
    ranks = card.get("ranks")
    for rank in ranks if isinstance(ranks, list) else []:
        listed = rank.get(KEY, []) if isinstance(rank, Mapping) else []
        if not isinstance(listed, list):
            raise InputError(f"{KEY} is no list", where="the run's card", allowed="a list, one entry per table")
        for place, entry in enumerate(listed):
            yield _entry(entry, f"the run's card, rank {rank.get('rank')}, {KEY} {place + 1}")


def _entry(entry: object, where: str) -> TableCounts:
    result = [entry.get(key) for key in KEYS] if isinstance(entry, Mapping) else []
    sizes = [n for n in result if isinstance(n, int) and not isinstance(n, bool) and n > 0]
    histogram = entry.get("reuse_histogram") if isinstance(entry, Mapping) else None
    counted = isinstance(histogram, list) and all(type(n) is int and n >= 0 for n in histogram) and any(histogram)
    if not counted or len(sizes) != len(KEYS):
        raise InputError("counts of a table are not as the recorder writes them", where=where, allowed=ALLOWED,
                         remedy="record the run again, or leave the counts out of the card")  # fmt: skip
    rows, dim, batches, lookups = sizes
    assert isinstance(histogram, list)
    least, most = lookups_held(histogram)
    if not least <= batches * lookups <= most or sum(histogram) > batches * rows:
        held = f"{sum(histogram)} rows and {least:.0f} to {most:.0f} lookups"
        raise InputError(f"reuse_histogram holds {held}", where=where,
                         allowed=f"of {batches} x {lookups} lookups in {rows} rows")  # fmt: skip
    return TableCounts(rows, dim, lookups, batches, tuple(histogram))


# What a step waits for of the step before: blocking calls, event waits and full launch queues across the boundary.
#
# step k-1  host |A|...            device  |------ K ------|
# step k    host        |sync ····· waits ·················|A|...        K of k-1 -> sync of k
#
# One step that is scheduled several times in a row keeps these waits as pairs of its own nodes: the node of the copy
# before, and the node that waits for its end. Threads and streams carry over by themselves.

CONTENT_COLUMNS = ("node_type", "rank", "step", "thread", "device", "stream", "content_key")
STEP_END = "step_end"  # op_name of the host gap at the end of a step
NOTHING = np.zeros((2, 0), dtype=np.int64)


def cross_step_waits(nodes: pd.DataFrame, edges: pd.DataFrame, step: int) -> np.ndarray:
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
    external = 0 if repeated else 1  # the end that lies in the other step
    pairs[external] = _same(nodes, pairs[external], step)
    result = pairs[:, (pairs >= 0).all(axis=0)]
    return np.unique(result, axis=1) if result.size else NOTHING


def _same(nodes: pd.DataFrame, others: np.ndarray, step: int) -> np.ndarray:
    """[n] for nodes `others` [n] of another step, the node of `step` with the same content and position; else -1."""
    of, content = nodes["step"].to_numpy(), nodes["content_key"]
    rows = np.flatnonzero(((of == of[others[0]]) | (of == step)) & content.isin(content.to_numpy()[others]).to_numpy())
    here = of[rows] == step
    rank, key = (nodes[name].to_numpy()[rows] for name in ("rank", "content_key"))
    alike = combined([rank, pd.factorize(key)[0]])
    number = combined([alike, pd.Series(rank).groupby([alike, here]).cumcount().to_numpy()])
    _, at_there, at_here = np.intersect1d(number[~here], number[here], assume_unique=True, return_indices=True)
    same = np.full(len(nodes), -1, dtype=np.int64)
    same[rows[~here][at_there]] = rows[here][at_here]
    return same[others]


@dataclass(frozen=True)
class StepLabel:
    """Measured times of one whole step."""

    step: int  # ordinal in the window
    name: str  # the mark as written, e.g. ProfilerStep#12
    period_us: float | None  # C(k) - C(k-1); None for the first step of a window
    makespan_us: float  # latest completion minus the earliest rank's start
    rank_start_us: tuple[float, ...]  # [num_ranks] start of the step per traced rank, common clock
    # [num_ranks] later of CPU end and end of the last device work the step launched
    rank_completion_us: tuple[float, ...]


@dataclass(frozen=True)
class ExecutionGraph:
    """All traced ranks of a run."""

    name: str  # the run's name
    nodes: pd.DataFrame  # [num_nodes] table with schema.NODE_COLUMNS
    edges: pd.DataFrame  # [num_edges] table with schema.EDGE_COLUMNS
    # labels of the whole steps, in order; a trace without marks has one step named "window"
    steps: tuple[StepLabel, ...]
    # traced ranks, ascending; `rank_start_us` and `rank_completion_us` of a step are in this order
    ranks: tuple[int, ...]
    world_size: int  # ranks of the run, traced or not
    device_names: tuple[str, ...] = ()  # device name per traced rank as the trace gives it ("" unknown)
    placement: Placement | None = None  # hosts and links of the ranks as in the run's card; None unknown
    # what was left out or is not covered, by reason (e.g. "launched_before_window": 12)
    counts: dict[str, int] | None = None
    warnings: tuple[str, ...] = ()  # sentences for the user
    fingerprint: str = ""  # hash of the code and inputs this graph was built from
    # of a single step, [2, num_carried] (node of the step before, node that waits for its end), next to what follows on
    # threads and streams; None: a window, which has these waits as edges
    cross_step: np.ndarray | None = None
    # how embedding tables were accessed, as the run's card counts it; () not counted
    tables: tuple[TableCounts, ...] = ()
    # per rank of `ranks` the number of ranks with its role that it stands for, itself included; (): each for itself
    stands_for: tuple[int, ...] = ()

    @property
    def multiplicity(self) -> dict[int, int]:
        """Rank in the graph -> ranks that it stands for, itself included."""
        return dict(zip(self.ranks, self.stands_for or (1,) * len(self.ranks), strict=True))

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all types."""
        return len(self.nodes)

    def num_nodes_by_type(self) -> dict[str, int]:
        """Node count for every node type, zero included."""
        counts = self.nodes["node_type"].value_counts()
        return {str(t): int(counts.get(str(t), 0)) for t in NodeType}

    def ops_without_cost(self) -> dict[str, int]:
        """Op name -> number of `compute` nodes whose FLOPs and bytes are both unknown, most frequent first."""
        nodes = self.nodes
        unknown = (nodes["node_type"] == NodeType.COMPUTE) & nodes["flops"].isna() & nodes["bytes"].isna()
        names = nodes["op_name"][unknown].astype("str").fillna("unknown")
        return {str(name): int(count) for name, count in names.value_counts().items()}

    @property
    def runs_on_gpu(self) -> bool:
        """Whether ops or copies sit on device streams; a gloo collective has a stream of its own on a CPU too."""
        work = self.nodes["node_type"].isin([NodeType.COMPUTE, NodeType.MEMORY])
        return bool((work & (self.nodes["stream"] >= 0)).any())

    def step(self, step: int) -> "ExecutionGraph":
        """The subgraph of one step with the hardware nodes, renumbered from 0."""
        isolated = self.by_itself(step)
        if self.cross_step is not None:  # it was one step already
            return isolated
        new_id = np.cumsum(self._of_step(step)) - 1  # [num_nodes]
        return replace(isolated, cross_step=new_id[cross_step_waits(self.nodes, self.edges, step)])

    def by_itself(self, step: int) -> "ExecutionGraph":
        """`step(step)` without what it waits for of the step before: for one that is compared and not scheduled."""
        nodes, edges = take(self.nodes, self.edges, self._of_step(step))
        return replace(self, nodes=nodes, edges=edges, steps=tuple(s for s in self.steps if s.step == step))

    def rows_of_step(self, step: int) -> np.ndarray:
        """[num_nodes of the step] rows that the nodes of `step(step)` have here."""
        return np.flatnonzero(self._of_step(step))

    def _of_step(self, step: int) -> np.ndarray:
        hardware = by_category(self.nodes["node_type"], (NodeType.DEVICE, NodeType.LINK).__contains__, bool)
        return np.asarray((self.nodes["step"].to_numpy() == step) | hardware)

    def for_predictors(self) -> "ExecutionGraph":
        """The same graph without edges inferred from time distances (no leakage)."""
        retained = (self.edges["evidence"] != Evidence.TIMING).to_numpy()
        return self if retained.all() else replace(self, edges=self.edges[retained].reset_index(drop=True))

    def for_alignment(self) -> "ExecutionGraph":
        """The same graph with only the columns that identify nodes: rows of few columns are taken quickly."""
        return replace(self, nodes=self.nodes[[*CONTENT_COLUMNS]], edges=self.edges[["src", "dst", "relation"]])

    def validate(self) -> "ExecutionGraph":
        """Check columns, node numbers and edge ends; return self.

        Raises:
            InputError: a column is missing or of another dtype, a node is not numbered by row, an edge ends nowhere.
        """
        schema.validate(self.nodes, schema.NODE_COLUMNS, f"graph {self.name!r}, nodes")
        schema.validate(self.edges, schema.EDGE_COLUMNS, f"graph {self.name!r}, edges")
        ends = self.edges[["src", "dst"]].to_numpy()  # [num_edges, 2]
        numbered = np.array_equal(self.nodes["node_id"], np.arange(len(self.nodes)))
        if not numbered or (ends.size and (ends.min() < 0 or ends.max() >= len(self.nodes))):
            raise InputError(
                "nodes are not numbered by row, or an edge ends at no node", where=f"graph {self.name!r}",
                remedy="import the trace again",
            )  # fmt: skip
        return self


def take(nodes: pd.DataFrame, edges: pd.DataFrame, keep: np.ndarray) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Nodes where `keep` [num_nodes] bool, and the edges between them, renumbered from 0."""
    if keep.all():
        return nodes, edges
    new_id = np.full(len(nodes), -1, dtype=np.int64)  # [num_nodes]
    new_id[keep] = np.arange(int(keep.sum()))
    src, dst = new_id[edges["src"].to_numpy()], new_id[edges["dst"].to_numpy()]
    inside = (src >= 0) & (dst >= 0)  # [num_edges]
    retained_nodes = nodes[keep].reset_index(drop=True).assign(node_id=np.arange(int(keep.sum()), dtype=np.int64))
    retained_edges = edges[inside].reset_index(drop=True).assign(src=src[inside], dst=dst[inside])
    return retained_nodes, retained_edges


def measured_end_us(nodes: pd.DataFrame) -> np.ndarray:
    """[num_nodes] start + latency; NaN unknown. An exit of unknown latency starts where it ends."""
    unknown_exit = (nodes["segment"] == Segment.EXIT) & nodes["latency_us"].isna()
    return (nodes["start_us"] + nodes["latency_us"].mask(unknown_exit, 0.0)).to_numpy()
