"""One rank of a plan: its nodes, and the edges among them.

host     |T1|T2|T4|T3|T1|T2|T4|T3|            |wait|T1 ...
               `launches    `launches            ^
compute        |-- kernel --|          ,->|-- kernel --|
                            `->       |          |
tensor                       arrive ... exit     `waits
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, OpFamily, Phase, Relation, Segment
from gnnperf.generate.transformer.items import (
    Await,
    Copy,
    Group,
    HostAwait,
    HostWait,
    HostWork,
    Item,
    Lane,
    Op,
    Placed,
    Record,
    Transfer,
    Views,
)
from gnnperf.generate.transformer.plan import Parallelism
from gnnperf.graph import EdgeList, consecutive, node_table

# Nodes of each distinct item, once: a program then takes its rows from these.
#
# op         T1 T2 T4 T3   kernel             the call that launches it (T4) is the third of four host segments
# transfer   T1 T2 T4 T3   arrive exit
# copy       T1 T2 T4 T3   copy
# host wait  T4
# host work  T1 T5
# views      T1 T5 each
# events     nothing: what they cost the host is in the segments around them

LAUNCH_SEGMENTS = (Segment.T1, Segment.T2, Segment.T4, Segment.T3)
LAUNCH_AT = LAUNCH_SEGMENTS.index(Segment.T4)
FIRST_WORK = len(LAUNCH_SEGMENTS)  # where an item's device nodes begin
COPY_OP, MESSAGE = "aten::copy_", "send_recv"
LAUNCH, SYNCHRONIZE, COPY = "cudaLaunchKernel", "cudaDeviceSynchronize", "cudaMemcpyAsync"
TRANSFER_OPS = {"all_reduce": "c10d::allreduce_", "reduce_scatter": "c10d::_reduce_scatter_base_",
                "all_gather": "c10d::_allgather_base_", "all_to_all": "c10d::alltoall_base_",
                "broadcast": "c10d::broadcast_", "send": "c10d::send", "recv": "c10d::recv_",
                MESSAGE: "c10d::send"}  # fmt: skip
F, B = Phase.FORWARD, Phase.BACKWARD
MESSAGE_LANES = {
    ("send", Group.NEXT, F): Lane.SEND_NEXT, ("send", Group.NEXT, B): Lane.RETURN_SEND_NEXT,
    ("recv", Group.NEXT, B): Lane.RECV_NEXT, ("recv", Group.NEXT, F): Lane.RETURN_RECV_NEXT,
    ("send", Group.PREVIOUS, B): Lane.SEND_PREVIOUS, ("send", Group.PREVIOUS, F): Lane.RETURN_SEND_PREVIOUS,
    ("recv", Group.PREVIOUS, F): Lane.RECV_PREVIOUS, ("recv", Group.PREVIOUS, B): Lane.RETURN_RECV_PREVIOUS,
}  # fmt: skip
GATHER_LANES = dict.fromkeys((("all_gather", Group.DATA), ("all_gather", Group.EXPERT_DATA)), Lane.GATHER)
GROUP_LANES = {Group.TENSOR: Lane.TENSOR, Group.DATA: Lane.DATA, Group.EXPERT_DATA: Lane.DATA,
               Group.EXPERT: Lane.EXPERT, Group.EMBEDDING: Lane.EMBEDDING, Group.CONTEXT: Lane.CONTEXT}  # fmt: skip


@dataclass(frozen=True)
class ItemRows:
    """Rows of distinct items."""

    table: pd.DataFrame  # [num_rows] schema.NODE_COLUMNS; ranks and numbers are still to be set
    first: np.ndarray  # [num_items + 1] the rows of item i are first[i] to first[i + 1]


def extents(ways: Parallelism) -> dict[Group, tuple[int, int]]:
    """Ranks of a stage's groups, in the graph or not, and the distance of neighbors."""
    tensor = ways.tensor
    return {
        Group.TENSOR: (tensor, 1), Group.CONTEXT: (ways.context, tensor), Group.DATA: (ways.data_context, tensor),
        Group.EXPERT: (ways.expert, tensor), Group.EXPERT_DATA: (ways.expert_data, tensor * ways.expert),
    }  # fmt: skip


def group_size(group: Group, ways: Parallelism) -> int:
    """Ranks in a transfer's group; of groups of stages two."""
    return extents(ways).get(group, (2, 0))[0]


def transfer_rows(transfers: Sequence[Transfer], places: Sequence[tuple[int, int]], ways: Parallelism) -> pd.DataFrame:
    """[num_transfers] nodes of what ranks exchange; `places`: lowest rank of each group and distance of neighbors."""
    direct = [t.kind in ("send", "recv") for t in transfers]
    both = list(zip(transfers, direct, strict=True))
    sizes = [t.message_bytes if t.busiest_bytes is None else t.busiest_bytes for t in transfers]
    return node_table(
        len(transfers), node_type=str(NodeType.COLLECTIVE), family=str(OpFamily.COLLECTIVE),
        op_name=np.array([TRANSFER_OPS["send" if d else t.kind] for t, d in both], dtype=object),
        phase=np.array([str(t.phase) for t in transfers], dtype=object),
        dtype=np.array([t.dtype for t in transfers], dtype=object),
        collective=np.array([MESSAGE if d else t.kind for t, d in both], dtype=object),
        message_bytes=np.array(sizes, dtype=np.float64),
        group_size=np.array([group_size(t.group, ways) for t in transfers], dtype=np.int64),
        group_first=np.array([first for first, _ in places], dtype=np.int64),
        group_stride=np.array([stride for _, stride in places], dtype=np.int64),
    )  # fmt: skip


def lane_of(item: Item) -> Lane | None:
    """Where an item's work on the device runs; None: it has none."""
    if isinstance(item, Transfer):
        kind, group = item.kind, item.group
        return MESSAGE_LANES.get((kind, group, item.phase)) or GATHER_LANES.get((kind, group)) or GROUP_LANES[group]
    return item.lane if isinstance(item, Op | Copy) else None


def item_rows(items: Sequence[Item], ways: Parallelism) -> ItemRows:
    """The rows of distinct items."""
    rows = [_rows(item, ways) for item in items]
    flat = [row for own in rows for row in own]
    names = list(dict.fromkeys(name for row in flat for name in row))
    columns = {name: _column([row.get(name) for row in flat]) for name in names}
    return ItemRows(node_table(len(flat), **columns), np.cumsum([0, *map(len, rows)]))


def _column(values: list[object]) -> np.ndarray:
    """Numbers as numbers, unknown ones as what their column holds for unknown; texts as objects."""
    if any(isinstance(v, str) for v in values):
        return np.array([None if v is None else str(v) for v in values], dtype=object)
    if all(isinstance(v, int | None) for v in values):
        return np.array([-1 if v is None else v for v in values], dtype=np.int64)
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


def _rows(item: Item, ways: Parallelism) -> list[dict[str, object]]:
    if isinstance(item, Record | Await):
        return []
    if isinstance(item, HostWait | HostAwait):
        return [_host(SYNCHRONIZE, Segment.T4, item.phase, None)]
    if isinstance(item, Views):
        return [_host(name, segment, item.phase, None) for name in item.names for segment in (Segment.T1, Segment.T5)]
    if isinstance(item, HostWork):
        work = {**_host(item.name, Segment.T5, item.phase, None), "bytes": item.moved_bytes}
        return [_host(item.name, Segment.T1, item.phase, None), work]
    if isinstance(item, Copy):
        return [*_launching(COPY_OP, item.phase, None, COPY), _copy(item)]
    if isinstance(item, Op):
        return [*_launching(item.name, item.phase, item.dims if item.stated_cost is None else None), _kernel(item)]
    lane = lane_of(item)
    assert lane is not None, "items with work have a lane"
    part = {
        "node_type": NodeType.COMM, "op_name": TRANSFER_OPS[item.kind], "phase": item.phase,
        "family": OpFamily.COLLECTIVE, "dtype": item.dtype, "device": 0, "stream": int(lane),
        "collective": item.kind, "message_bytes": item.message_bytes, "group_size": group_size(item.group, ways),
    }  # fmt: skip
    ends = ({**part, "segment": end} for end in (Segment.ARRIVE, Segment.EXIT))
    return [*_launching(TRANSFER_OPS[item.kind], item.phase, None), *ends]


def _launching(name: str, phase: Phase, dims: str | None, call: str = LAUNCH) -> list[dict[str, object]]:
    return [_host(name, segment, phase, dims, call) for segment in LAUNCH_SEGMENTS]


def _host(name: str, segment: Segment, phase: Phase, dims: str | None, call: str = LAUNCH) -> dict[str, object]:
    event = SYNCHRONIZE if name == SYNCHRONIZE else call if segment is Segment.T4 else None
    return {"node_type": NodeType.HOST, "op_name": name, "segment": segment, "phase": phase, "thread": 0,
            "family": OpFamily.UNKNOWN, "event_name": event,
            "input_dims": None if segment is Segment.T1 else dims}  # fmt: skip


def _kernel(item: Op) -> dict[str, object]:
    cost = item.cost
    return {"node_type": NodeType.COMPUTE, "op_name": item.name, "phase": item.phase, "family": cost.family,
            "dtype": cost.dtype, "input_dims": item.dims, "device": 0, "stream": int(item.lane),
            "flops": cost.flops, "bytes": cost.bytes}  # fmt: skip


def _copy(item: Copy) -> dict[str, object]:
    return {"node_type": NodeType.MEMORY, "op_name": COPY_OP, "event_name": item.name, "phase": item.phase,
            "family": OpFamily.COPY, "dtype": item.dtype, "device": 0, "stream": int(item.lane),
            "bytes": item.moved_bytes}  # fmt: skip


# What waits for events: edges between streams that the order of launches only does not give.
#
# compute  |- k0 -| Record e        |- k2 -|
#                         \            ^ Await f
# other            Await e `->|- copy -| Record f
#
# An event is the last work that its lane had been given, and what the lane itself was instructed to wait for since.

NONE = -1
# Kinds of items: kernels of the compute stream; transfers that the compute stream waits for, or not; device work that
# waits for events only; blocking waits for all of it; records and waits of events; other work of the host.
KERNEL, AWAITED, UNAWAITED, ASIDE, WAIT, EVENT, HOST = range(7)
LAUNCHED = (KERNEL, AWAITED, UNAWAITED, ASIDE)
Result = list[tuple[int, int]]  # (position in the program, node)


@dataclass
class _Reader:
    """Goes through a program's events in order."""

    # program, begin, kind: of [num_items]; see event_waits
    program: Sequence[Placed]
    begin: np.ndarray
    kind: np.ndarray
    by_lane: dict[Lane, np.ndarray]  # lane -> positions of the items with work on it
    recorded: dict[str, tuple[int, ...]] = field(default_factory=dict)  # event -> nodes whose ends it is
    # lane -> what it was instructed to wait for, and where
    pending: dict[Lane, Result] = field(default_factory=lambda: defaultdict(list))
    edges: list[tuple[int, int, str]] = field(default_factory=list)  # (src, dst, lag class)

    def record(self, at: int, lane: Lane, event: str) -> None:
        """Name what the lane has been given so far."""
        last, _ = self._around(lane, at)
        ends = [self._end(last)] if last >= 0 else []
        self.recorded[event] = (*ends, *(node for place, node in self._held(lane, at) if place > last))

    def wait(self, at: int, lane: Lane, event: str) -> None:
        """The lane's next work begins after the event; on the compute stream, whatever follows it, too."""
        nodes = self.recorded.get(event, ())
        last, kernel = self._around(lane, at)
        self.pending[lane] = [*(held for held in self.pending[lane] if held[0] > last), *((at, node) for node in nodes)]
        # Transfers and blocking waits before the compute stream's next kernel wait for what it waits for.
        between = range(at + 1, min(kernel, len(self.program))) if lane is Lane.COMPUTE else ()
        heirs = [kernel, *(place for place in between if self.kind[place] in (AWAITED, UNAWAITED, WAIT))]
        for heir in heirs:
            if heir < len(self.program):
                blocking = self.kind[heir] == WAIT
                dst = int(self.begin[heir]) + (0 if blocking else FIRST_WORK)
                self.edges += [(node, dst, "sync" if blocking else "event") for node in nodes]

    def _held(self, lane: Lane, at: int) -> Result:
        """What holds the lane's next work back: its own waits, and transfers that the compute stream waits for."""
        held = self.pending[lane]
        if lane is not Lane.COMPUTE:
            return held
        last, _ = self._around(lane, at)
        return held + [(place, self._end(place)) for place in range(last + 1, at) if self.kind[place] == AWAITED]

    def _around(self, lane: Lane, at: int) -> tuple[int, int]:
        """Positions of the last item before with work on the lane (NONE: none), and of the next (the program's end)."""
        places = self.by_lane.get(lane, _NOTHING)
        number = int(np.searchsorted(places, at))
        after = int(places[number]) if number < len(places) else len(self.program)
        return int(places[number - 1]) if number else NONE, after

    def _end(self, place: int) -> int:
        """The node at whose end an item's device work is done: the exit of a transfer."""
        return int(self.begin[place]) + FIRST_WORK + int(isinstance(self.program[place].item, Transfer))


_NOTHING = np.zeros(0, dtype=np.int64)


def event_waits(edges: EdgeList, program: Sequence[Placed], begin: np.ndarray, kind: np.ndarray) -> None:
    """Add the waits of a program's events; [num_items] first node of each item, and KERNEL to HOST."""
    places = np.flatnonzero(kind == EVENT)
    if not len(places):
        return
    by_lane: dict[Lane, list[int]] = defaultdict(list)
    for place in np.flatnonzero(np.isin(kind, LAUNCHED)).tolist():
        lane = lane_of(program[place].item)
        assert lane is not None, "launched items have a lane"
        by_lane[lane].append(place)
    reader = _Reader(program, begin, kind, {lane: np.array(own, dtype=np.int64) for lane, own in by_lane.items()})
    for at in places.tolist():
        item = program[at].item
        if isinstance(item, Record):
            reader.record(at, item.lane, item.event)
        elif isinstance(item, Await):
            reader.wait(at, item.lane, item.event)
        elif isinstance(item, HostAwait):
            reader.edges += [(node, int(begin[at]), "sync") for node in reader.recorded.get(item.event, ())]
    for lag_class in sorted({lag for _, _, lag in reader.edges}):
        pairs = np.array(sorted({(src, dst) for src, dst, lag in reader.edges if lag == lag_class}), dtype=np.int64)
        edges.add(pairs[:, 0], pairs[:, 1], Relation.WAITS, lag_class)


@dataclass(frozen=True)
class Part:
    """One rank's part in a transfer: what it is, and the node where it arrives; it leaves at the next node."""

    transfer: Transfer
    tag: str
    arrive: int


@dataclass(frozen=True)
class RankNodes:
    """A rank's nodes, numbered from 0."""

    table: pd.DataFrame  # [num_nodes] rows; `rank` is still to be set
    edges: EdgeList  # among them
    parts: tuple[Part, ...]  # of transfers, in order


def rank_nodes(program: Sequence[Placed], ways: Parallelism) -> RankNodes:
    """The nodes of a program and what they wait for on their own rank."""
    (own,) = nodes_of_ranks([program], ways)
    return own


def nodes_of_ranks(programs: Sequence[Sequence[Placed]], ways: Parallelism) -> Iterator[RankNodes]:
    """The same of several programs, whose rows are made once for each item that they share."""
    numbers: dict[int, int] = {}  # by identity: a program repeats the same few items
    index = [np.array([numbers.setdefault(id(p.item), len(numbers)) for p in program]) for program in programs]
    by_number = {numbers[id(p.item)]: p.item for program in programs for p in program}
    distinct = [by_number[n] for n in range(len(numbers))]
    rows = item_rows(distinct, ways)
    kinds = np.array([_kind(item) for item in distinct])
    for program, own in zip(programs, index, strict=True):
        width = np.diff(rows.first)[own]  # [num_items]
        begin = np.cumsum(width) - width  # [num_items] first node of each item
        row = np.repeat(rows.first[own] - begin, width) + np.arange(int(width.sum()))  # [num_nodes]
        table = rows.table.take(row).reset_index(drop=True)
        parts = tuple(Part(p.item, p.tag, int(b) + FIRST_WORK) for p, b in zip(program, begin, strict=True)
                      if isinstance(p.item, Transfer))  # fmt: skip
        edges = _edges(table, begin, kinds[own])
        event_waits(edges, program, begin, kinds[own])
        yield RankNodes(table, edges, parts)


def _kind(item: object) -> int:
    if isinstance(item, Op):
        return KERNEL if item.lane is Lane.COMPUTE else ASIDE
    if isinstance(item, Transfer):
        return (AWAITED if item.awaited else UNAWAITED) if item.follows_compute else ASIDE
    if isinstance(item, Copy):
        return ASIDE
    if isinstance(item, Record | Await | HostAwait):
        return EVENT
    return WAIT if isinstance(item, HostWait) else HOST


def _edges(table: pd.DataFrame, begin: np.ndarray, kind: np.ndarray) -> EdgeList:
    """Order of thread and streams, launches, and waits between streams and of the host."""
    edges = EdgeList()
    thread, stream = table["thread"].to_numpy(), table["stream"].to_numpy()
    edges.add(*consecutive(thread), Relation.FOLLOWS)
    src, dst = consecutive(stream)
    between = (table["segment"] != "exit").to_numpy()[dst]  # an exit is released by its transfer
    edges.add(src[between], dst[between], Relation.FOLLOWS, "stream")
    launching = np.isin(kind, LAUNCHED)
    edges.add(begin[launching] + LAUNCH_AT, begin[launching] + FIRST_WORK, Relation.LAUNCHES, "launch")
    work = begin + FIRST_WORK  # [num_items] kernel, or arrival
    kernels, exits = np.where(kind == KERNEL, work, NONE), np.where(kind == AWAITED, work + 1, NONE)
    transfers = np.where(np.isin(kind, (AWAITED, UNAWAITED)), work, NONE)
    waits = np.where(kind == WAIT, begin, NONE)
    _before(edges, kernels, transfers, "event")
    _before(edges, kernels, waits, "sync")
    _after(edges, exits, kernels, "event")  # what holds the compute stream holds all that is issued after it
    _after(edges, exits, transfers, "event")
    _after(edges, exits, waits, "sync")
    return edges


def _before(edges: EdgeList, src: np.ndarray, dst: np.ndarray, lag_class: str) -> None:
    """Every `dst` waits for the last `src` before it; both are [num_items] nodes, NONE where an item is none."""
    latest = np.r_[NONE, np.maximum.accumulate(src)[:-1]]
    known = (dst != NONE) & (latest != NONE)
    edges.add(latest[known], dst[known], Relation.WAITS, lag_class)


def _after(edges: EdgeList, src: np.ndarray, dst: np.ndarray, lag_class: str) -> None:
    """The first `dst` after each `src` waits for it."""
    never = np.iinfo(np.int64).max
    result = np.where(dst == NONE, never, dst)
    following = np.r_[np.minimum.accumulate(result[::-1])[::-1][1:], never]
    known = (src != NONE) & (following != never)
    edges.add(src[known], following[known], Relation.WAITS, lag_class)
