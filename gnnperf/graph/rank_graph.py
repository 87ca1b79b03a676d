"""One rank: host segments and device work as nodes, and the edges within the rank."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core import MANY_ROWS, Evidence, Relation, return_freed_memory
from gnnperf.graph import waits
from gnnperf.graph.event_columns import RankEvents
from gnnperf.graph.host import Pieces
from gnnperf.graph.host_comm import HostComm, RankDraft
from gnnperf.graph.lanes import consecutive
from gnnperf.graph.matching import CommPart, comm_parts
from gnnperf.graph.node_tables import host_table, work_table
from gnnperf.graph.steps import StepWindows
from gnnperf.graph.tables import EdgeList, unique_pairs
from gnnperf.graph.works import Works


@dataclass(frozen=True)
class RankGraph:
    """Nodes and edges of one rank, numbered from 0."""

    rank: int
    works: Works
    nodes: tuple[pd.DataFrame, ...]  # host pieces, then works; a communication kernel is two nodes, arrive and exit
    edges: EdgeList  # edges within the rank, but for those of tensors
    feeds: EdgeList  # those of tensors
    first_node: np.ndarray  # [num_works] first node id of each work
    parts: list[CommPart]  # the rank's communication kernels in whole steps
    counts: dict[str, int]  # what was left out, by reason

    def __len__(self) -> int:
        return sum(map(len, self.nodes))

    def column(self, name: str) -> np.ndarray:
        """[num_nodes] of a column that has numbers."""
        return _column(self.nodes, name)


def _column(tables: Sequence[pd.DataFrame], name: str) -> np.ndarray:
    return np.concatenate([table[name].to_numpy() for table in tables])


def rank_graph(
    rank_index: int, draft: RankDraft, comm: HostComm | None, windows: StepWindows, elapsed: np.ndarray | None = None
) -> RankGraph:
    """Build one rank's part of the graph; without `comm`, which ties host collectives, it has device work.

    `rank_index` is its place among the traced ranks. `elapsed` is [2, n] (work, call event) of `waits.elapsed_waits`.
    """
    if len(draft.pieces) >= MANY_ROWS:  # it takes 20 ms among many ranks, also for a short one
        return_freed_memory()
    events, works = draft.events, draft.works
    elapsed = np.zeros((2, 0), dtype=np.int64) if elapsed is None else elapsed
    nodes, edges, of_work = _nodes_and_edges(draft, comm, windows, elapsed)
    del draft  # its pieces, before tensors are tied
    step, hidden = _column(nodes, "step")[of_work[0]], None if comm is None else comm.hidden
    parts = comm_parts(rank_index, events, works, step, hidden)
    feeds = _feeds(events, _op_nodes(events, works, nodes, of_work))
    return RankGraph(events.rank, works, nodes, edges, feeds, of_work[0], parts, _counts(events, works))


def _nodes_and_edges(
    draft: RankDraft, comm: HostComm | None, windows: StepWindows, elapsed: np.ndarray
) -> tuple[tuple[pd.DataFrame, ...], EdgeList, tuple[np.ndarray, np.ndarray]]:
    """Nodes, edges but for those of tensors, and [num_works] first and last node of each work."""
    events, pieces, works = draft.events, draft.pieces, draft.works
    # [num_events] first and last T4 piece of each call (they differ where it waits for its own copy); -1 none
    call_piece, copy_piece = np.full(len(events.start_ns), -1), np.full(len(events.start_ns), -1)
    index = np.flatnonzero(pieces.call >= 0)
    copy_piece[pieces.call[index]] = index
    call_piece[pieces.call[index[::-1]]] = index[::-1]
    work_step = _work_steps(works, draft.piece_step, call_piece, comm, windows)
    device, first, last = work_table(events, works, work_step, offset=len(pieces))
    edges = EdgeList()
    edges.add(*consecutive(pieces.thread), Relation.FOLLOWS, evidence=Evidence.ID)
    if comm is None:  # streams run in order
        before, after = consecutive(works.stream)
        edges.add(last[before], first[after], Relation.FOLLOWS, "stream", Evidence.ID)
    _launch(edges, works, (call_piece, copy_piece), first)
    edges.add(draft.bursts.fork, draft.bursts.first, Relation.WAITS)
    edges.add(draft.bursts.last, draft.bursts.join, Relation.WAITS)
    if comm is None:
        before = np.full(len(call_piece), -1)  # [num_events] the piece that precedes each call on its thread; -1 none
        calls = np.flatnonzero(call_piece > 0)
        piece = call_piece[calls]
        before[calls] = np.where(pieces.thread[piece - 1] == pieces.thread[piece], piece - 1, -1)
        blocked_until = _wait(edges, events, works, (call_piece, copy_piece, before), first, last, elapsed)
    else:
        edges.add(comm.issued[0], first[comm.issued[1]], Relation.LAUNCHES, "launch")
        edges.add(last[comm.awaited[0]], comm.awaited[1], Relation.WAITS)
        edges.add(last[comm.queued[0]], first[comm.queued[1]], Relation.WAITS, "stream")
        blocked_until = comm.awaited
    free_ns = _free_ns(pieces, works, blocked_until)
    host = host_table(events, pieces, draft.piece_step, draft.main_thread, free_ns, device_is_cpu=not draft.on_device)
    return (host, device), edges, (first, last)


def _counts(events: RankEvents, works: Works) -> dict[str, int]:
    on_device = events.is_device[works.event]
    return {
        "launched_before_window": int(works.before_window.sum()),
        "device_work_without_launch": int(((works.call < 0) & ~works.before_window & on_device).sum()),
        "kernels_tied_to_capture": int((works.recorded_op != works.op).sum()),
        "kernels_under_graph_launch": int(works.num_kernels[works.num_kernels > 1].sum()),
        "host_events": int((~events.is_device).sum()),
    }


def _work_steps(
    works: Works, piece_step: np.ndarray, call_piece: np.ndarray, comm: HostComm | None, windows: StepWindows
) -> np.ndarray:
    """[num_works] the step whose host code started the work; unknown: outside, or the one window."""
    piece = np.where(works.call >= 0, call_piece[works.call], -1)
    if comm is not None:
        piece[comm.issued[1]] = comm.issued[0]
    unknown = -1 if windows.has_marks else 0
    return np.where(piece >= 0, piece_step[piece] if len(piece_step) else unknown, unknown).astype(np.int32)


def _launch(edges: EdgeList, works: Works, piece_of: tuple[np.ndarray, np.ndarray], first: np.ndarray) -> None:
    """Launch edges. A blocking copy starts after the END of the piece that drains the stream."""
    call_piece, copy_piece = piece_of
    launched = np.flatnonzero((works.call >= 0) & (call_piece[works.call] >= 0))
    call = works.call[launched]
    split = call_piece[call] != copy_piece[call]
    whole, staged = launched[~split], launched[split]
    edges.add(call_piece[call[~split]], first[whole], Relation.LAUNCHES, "launch", Evidence.ID)
    edges.add(call_piece[call[split]], first[staged], Relation.WAITS, "copy", Evidence.ID)


def _wait(
    edges: EdgeList, events: RankEvents, works: Works, piece_of: tuple[np.ndarray, np.ndarray, np.ndarray],
    first: np.ndarray, last: np.ndarray, elapsed: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Add device -> host and device -> device waits; returns [2, n] (work, piece) that delay host pieces."""
    call_piece, copy_piece, before_call = piece_of
    result = waits.host_waits(events, works)
    delayed = []
    for pairs, pieces, evidence in (
        (result.before_call, call_piece, Evidence.ORDER),
        (result.own_copy, copy_piece, Evidence.ORDER),
        (elapsed, before_call, Evidence.ORDER),
        (result.guessed, call_piece, Evidence.TIMING),
    ):
        known = pieces[pairs[1]] >= 0
        delayed.append(np.stack([pairs[0][known], pieces[pairs[1][known]]]))
        edges.add(last[delayed[-1][0]], delayed[-1][1], Relation.WAITS, None, evidence)
    between, evidence = waits.event_waits(events, works)
    edges.add(last[between[0]], first[between[1]], Relation.WAITS, "event", evidence)
    # [num_works] ns: the latest moment that launch, stream order and event waits give for a work's start.
    moment = np.where(works.call >= 0, events.start_ns[works.call], np.iinfo(np.int64).min)
    before, after = consecutive(works.stream)
    np.maximum.at(moment, after, works.end_ns[before])
    np.maximum.at(moment, between[1], works.end_ns[between[0]])
    # A collective's kernel starts when its rank arrives; a work without any known cause is not late.
    moment = np.where(moment == np.iinfo(np.int64).min, works.begin_ns, moment)
    late = waits.timed_stream_waits(works, moment)
    edges.add(last[late[0]], first[late[1]], Relation.WAITS, "event", Evidence.TIMING)
    return np.concatenate(delayed, axis=1)


def _free_ns(pieces: Pieces, works: Works, blocked_until: np.ndarray) -> np.ndarray:
    """[num_pieces] until when each piece waited for device work, else its begin; its latency begins here."""
    until = pieces.begin_ns.copy()
    np.maximum.at(until, blocked_until[1], works.end_ns[blocked_until[0]])
    return np.minimum(until, pieces.end_ns)


# Tensor dependencies: from an execution trace's tensor ids, else from forward/backward links.


def _feeds(events: RankEvents, op_nodes: tuple[np.ndarray, np.ndarray]) -> EdgeList:
    """`feeds` from the last node of the producing op to the first node of the consuming op."""
    feeds, forward = events.table.feeds, events.column("forward_event")
    consumer = np.flatnonzero(forward >= 0)  # backward ops
    producer = forward[consumer]
    if len(feeds):
        producer, consumer = feeds["producer_event"].to_numpy(), feeds["consumer_event"].to_numpy()
    src, dst = op_nodes[1][producer], op_nodes[0][consumer]
    known = (src >= 0) & (dst >= 0) & (src != dst)
    edges = EdgeList()
    pairs = unique_pairs(np.stack([src[known], dst[known]]))
    edges.add(pairs[0], pairs[1], Relation.FEEDS, evidence=Evidence.ID)
    return edges


RANGES_AROUND = 7  # of an op, which have its device work, too


def _op_nodes(
    events: RankEvents, works: Works, nodes: Sequence[pd.DataFrame], of_work: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """[num_events] first and last node of each op: its device work if it has any, else its host pieces.

    An op inside a larger one shares the larger one's nodes; a scope takes its children's. `of_work` are [num_works]
    first and last nodes.
    """
    n = len(events.start_ns)
    event = _column(nodes, "event_id")
    host = np.flatnonzero((event >= 0) & (_column(nodes, "thread") >= 0))
    first, last = _spread(event[host], host, host, n)
    owners = [works.op]
    for _ in range(RANGES_AROUND):
        owners.append(np.where(owners[-1] >= 0, events.parent[owners[-1]], -1))
    owner = np.stack(owners, axis=1)  # [num_works, 1 + RANGES_AROUND]
    work = np.flatnonzero(owner >= 0) // owner.shape[1]
    device_first, device_last = _spread(owner[owner >= 0], of_work[0][work], of_work[1][work], n)
    outer = events.op
    inherit = (first < 0) & (outer >= 0)
    first[inherit], last[inherit] = first[outer[inherit]], last[outer[inherit]]
    return np.where(device_first >= 0, device_first, first), np.where(device_last >= 0, device_last, last)


def _spread(owner: np.ndarray, begin: np.ndarray, end: np.ndarray, num_events: int) -> tuple[np.ndarray, np.ndarray]:
    """[num_events] first begin and last end of each owner, given in ascending order; -1 none."""
    first, last = np.full(num_events, -1), np.full(num_events, -1)
    first[owner[::-1]], last[owner] = begin[::-1], end
    return first, last
