"""Collectives that run on host threads (gloo): what they follow, and who waits for them.

main    |c10d::alltoall_base_| T1 ···waiting···| next op          synchronous: the T1 right after waits
worker       |------ gloo:all_to_all ----------|
main    |AccumulateGrad: c10d::allreduce_| more backward ... | T1 ·waiting·| optimizer
worker                     |------ gloo:all_reduce ------------------------|     DDP: the end of backward waits
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnnperf.graph.device import Works
from gnnperf.graph.host import Pieces
from gnnperf.graph.rank_events import RankEvents, by_category
from gnnperf.schema import EventKind, Segment

WORKER_THREADS = 2  # gloo runs this many collectives of a process group at a time


@dataclass(frozen=True)
class HostCommEdges:
    """Edges around host collectives; all [2, n].

    Attributes:
        issued: (piece of the issuing op, work).
        awaited: (work, piece that waits for it).
        queued: (work, work that needs its worker thread).
    """

    issued: np.ndarray
    awaited: np.ndarray
    queued: np.ndarray


def host_comm_works(events: RankEvents) -> Works:
    """Collectives recorded on worker threads as works without a device, in order of start."""
    named = by_category(events.table.events["name"], lambda n: n.startswith("gloo:"), bool)
    index = np.flatnonzero(named & (events.kind == EventKind.ANNOTATION))
    index = index[np.lexsort((events.end_ns[index], events.start_ns[index]))]
    n = len(index)
    zero, one, no = np.zeros(n, np.int64), np.ones(n, np.int64), np.zeros(n, bool)
    return Works(
        index, np.full(n, -1), _issuers(events, index), events.start_ns[index], events.end_ns[index], zero,
        zero.astype(np.int32), no, ~no, one, zero.astype(np.int32), one.astype(np.int32), no,
    )  # fmt: skip


def _issuers(events: RankEvents, index: np.ndarray) -> np.ndarray:
    """[num_works] the c10d op that issued each collective: same kind and size, first come first served; -1 none.

    Two worker threads that take their collectives at the same time may begin them in either order: the size tells.
    """
    c10d = by_category(events.table.events["name"], lambda n: n.startswith("c10d::"), bool)
    kind, size = events.column("collective"), np.nan_to_num(events.column("in_elements"), nan=-1.0)
    ops = np.flatnonzero(c10d & (events.kind == EventKind.CPU_OP) & (kind != None))  # noqa: E711 (elementwise)
    result = np.full(len(index), -1, dtype=np.int64)
    for name in {k for k in kind[index].tolist() if k is not None}:
        mine, theirs = np.flatnonzero(kind[index] == name), ops[kind[ops] == name]
        stated = np.isin(size[index[mine]], size[theirs]).all()  # else some state it otherwise: the kind must do
        for elements in np.unique(size[index[mine]]) if stated else [None]:
            works = mine if elements is None else mine[size[index[mine]] == elements]
            issuing = theirs if elements is None else theirs[size[theirs] == elements]
            # Pair from the tail: the window may open between an issue and its start, never the other way round.
            n = min(len(works), len(issuing))
            if n:
                result[works[-n:]] = issuing[-n:]
    early = (result >= 0) & (events.start_ns[result] > events.start_ns[index])
    return np.where(early, -1, result)


def host_comm_edges(events: RankEvents, pieces: Pieces, works: Works, main_thread: int) -> tuple[HostCommEdges, Works]:
    """Issue, wait and queue edges, and the works with their ends as the waiting thread saw them.

    A worker may be preempted between waking the waiting thread and closing its range: the range then outlasts the
    wait. Where most ranges of a kind do, the kind is not awaited at that place at all (asynchronous use).
    """
    piece_of = np.full(len(events.op), -1, dtype=np.int64)
    whole = np.flatnonzero((pieces.op >= 0) & (pieces.segment != Segment.T1))
    piece_of[pieces.op[whole]] = whole
    known = np.flatnonzero(works.op >= 0)
    issuer = piece_of[events.op[works.op[known]]]
    known, issuer = known[issuer >= 0], issuer[issuer >= 0]
    hook = _in_autograd(events, works.op[known])
    waiter = _waiting_pieces(events, pieces, works.event[known], issuer, hook, main_thread)
    kind = events.column("collective")[works.event[known]]
    resumed_ns = pieces.end_ns[np.maximum(waiter, 0)]
    holds = (waiter >= 0) & (works.end_ns[known] <= resumed_ns)
    awaited = (waiter >= 0) & (works.begin_ns[known] < resumed_ns) & _mostly(holds, kind, hook)
    end = works.end_ns.copy()
    end[known[awaited]] = np.minimum(end[known[awaited]], resumed_ns[awaited])
    queue = known[np.argsort(works.begin_ns[known], kind="stable")]
    free = works.begin_ns[queue[WORKER_THREADS:]] >= end[queue[:-WORKER_THREADS]]
    edges = HostCommEdges(
        issued=np.stack([issuer, known]),
        awaited=np.stack([known[awaited], waiter[awaited]]),
        queued=np.stack([queue[:-WORKER_THREADS][free], queue[WORKER_THREADS:][free]]),
    )
    return edges, replace(works, end_ns=end)


def _mostly(holds: np.ndarray, kind: np.ndarray, hook: np.ndarray) -> np.ndarray:
    """[n] bool: at least half of the works of the same kind and place hold."""
    result = np.zeros(len(holds), dtype=bool)
    for name in set(kind.tolist()):
        for place in (False, True):
            same = (kind == name) & (hook == place)
            result[same] = same.any() and holds[same].mean() >= 0.5
    return result


def _in_autograd(events: RankEvents, op: np.ndarray) -> np.ndarray:
    """[n] bool: issued by a gradient hook (an AccumulateGrad range encloses the op)."""
    hook = by_category(events.table.events["name"], lambda n: "AccumulateGrad" in n, bool)
    inside, current = np.zeros(len(op), dtype=bool), op.copy()
    while (current >= 0).any():
        inside |= (current >= 0) & hook[current]
        current = np.where(current >= 0, events.parent[current], -1)
    return inside


def _waiting_pieces(
    events: RankEvents, pieces: Pieces, work_event: np.ndarray, issuer: np.ndarray, hook: np.ndarray, main_thread: int
) -> np.ndarray:
    """[n] the T1 that waits for each collective; -1 none.

    A synchronous call waits right after the issuing op. DDP waits when backward ends, bucket after bucket, and unpacks
    each as soon as it is there: bucket of n elements before `aten::as_strided [[n], ...]`. Buffers broadcast before
    forward are waited for before `aten::unflatten_dense_tensors`.
    """
    t1 = np.flatnonzero((pieces.segment == Segment.T1) & (pieces.thread == main_thread))
    following = np.where(pieces.op[t1] >= 0, events.name[pieces.op[t1]], "")
    unpacking, dims = _unpacking(events, pieces, t1), events.column("input_dims")
    unflatten = np.flatnonzero(following == "aten::unflatten_dense_tensors")
    leaves = np.flatnonzero(_leaves_backward(events, pieces, t1))
    broadcast = events.column("collective")[work_event] == "broadcast"
    after = np.searchsorted(t1, issuer, side="right")
    result = np.full(len(issuer), -1, dtype=np.int64)
    taken: dict[str, int] = {}  # the last place where a bucket of these dims is unpacked
    for row in np.argsort(issuer, kind="stable").tolist():
        place = int(after[row])
        if hook[row]:
            bucket, left = _bucket(dims[work_event[row]]), _next(leaves, place)
            place = _next(unpacking.get(bucket, leaves[:0]), max(left, taken.get(bucket, -1) + 1))
            taken[bucket] = place
            place = place if place < len(t1) else left
        elif broadcast[row] and _next(unflatten, place) < len(t1):
            place = _next(unflatten, place)
        result[row] = t1[place] if place < len(t1) else -1
    return result


def _unpacking(events: RankEvents, pieces: Pieces, t1: np.ndarray) -> dict[str, np.ndarray]:
    """Bucket -> positions in `t1` where unpacking one of its size begins: the first of consecutive views into it."""
    op, dims = pieces.op[t1], events.column("input_dims")
    views = np.flatnonzero((op >= 0) & (events.name[op] == "aten::as_strided"))
    bucket = np.array([_bucket(d) for d in dims[op[views]].tolist()], dtype=object)
    begins = np.ones(len(views), dtype=bool)
    begins[1:] = (views[1:] != views[:-1] + 1) | (bucket[1:] != bucket[:-1])
    return {str(b): views[begins & (bucket == b)] for b in set(bucket.tolist())}


def _bucket(dims: str | None) -> str:
    """`[[n]` of the shapes of a collective of n elements, `[[n]]`, and of a view into it, `[[n],[],[]]`."""
    return str(dims).split("]")[0] + "]"


def _next(positions: np.ndarray, at_least: int) -> int:
    """The first position not before `at_least`; a huge one if there is none."""
    slot = int(np.searchsorted(positions, at_least))
    return int(positions[slot]) if slot < len(positions) else np.iinfo(np.int32).max


def _leaves_backward(events: RankEvents, pieces: Pieces, t1: np.ndarray) -> np.ndarray:
    """[num_t1] bool: the piece before belongs to autograd, the piece after does not."""
    engine = by_category(events.table.events["name"], lambda n: n.startswith("autograd::engine"), bool)
    owner = np.where(pieces.op >= 0, pieces.op, 0)
    scope, inside = owner.copy(), np.zeros(len(owner), dtype=bool)
    for _ in range(16):
        inside |= (scope >= 0) & engine[scope]
        scope = np.where(scope >= 0, events.parent[scope], -1)
    inside &= pieces.op >= 0
    previous = np.maximum(t1 - 1, 0)
    return inside[previous] & ~inside[t1]
