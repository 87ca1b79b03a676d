"""Collectives that run on host threads (gloo): what they follow, and who waits for them.

main    |c10d::alltoall_base_| T1 ···waiting···| next op          synchronous: the T1 right after waits
worker       |------ gloo:all_to_all ----------|
main    |AccumulateGrad: c10d::allreduce_| more backward ... | T1 ·waiting·| optimizer
worker                     |------ gloo:all_reduce ------------------------|     DDP: the end of backward waits
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnnperf.graph import host_waits, waits
from gnnperf.graph.event_columns import RankEvents
from gnnperf.graph.host import Bursts, Pieces, fork_and_join, host_pieces, split_calls
from gnnperf.graph.steps import StepWindows
from gnnperf.graph.works import Works, device_works, host_comm_works, is_direct, transport_threads

# One rank before it is joined with the others: its host pieces and device works, no edges yet.


@dataclass(frozen=True)
class RankDraft:
    """What one rank did."""

    events: RankEvents
    works: Works
    pieces: Pieces
    bursts: Bursts
    piece_step: np.ndarray  # [num_pieces] step of each piece; -1 outside whole steps
    main_thread: int  # the thread that carries the steps
    on_device: bool  # whether there is device work; else collectives run on host threads and ops are computed there


def rank_draft(events: RankEvents, windows: StepWindows, rank_index: int) -> RankDraft:
    """Cut one rank's time into pieces and works."""
    works = device_works(events)
    on_device = len(works) > 0
    main = int(windows.main_thread[rank_index])
    marks = np.unique(np.r_[windows.begin_ns[rank_index], windows.cpu_end_ns[rank_index]][: None if main >= 0 else 0])
    pieces = host_pieces(events, main, marks)
    if not on_device:
        works = host_comm_works(events)
        pieces = pieces.take(~np.isin(pieces.thread, transport_threads(events)))
    copies = waits.blocking_copies(events, works)
    pieces = split_calls(pieces, works.call[copies], works.begin_ns[copies])
    pieces, bursts = fork_and_join(events, pieces, main)
    step = windows.step_of(rank_index, pieces.begin_ns)
    return RankDraft(events, works, pieces, bursts, step, main, on_device)


WORKER_THREADS = 2  # gloo runs this many collectives of a process group at a time


@dataclass(frozen=True)
class HostComm:
    """What ties one rank's host collectives to its host pieces; [2, n] each, if not stated otherwise."""

    issued: np.ndarray  # (piece of the issuing op, work)
    awaited: np.ndarray  # (work, piece that waits for it)
    queued: np.ndarray  # (work, work that needs its worker thread)
    hidden: np.ndarray  # [num_works] bool, see matching.CommPart


def host_comm(drafts: Sequence[RankDraft]) -> list[tuple[RankDraft, HostComm]]:
    """Every rank with its works' ends as the waiting thread saw them, and its issue, wait and queue edges."""
    result = [host_waits.options(d.events, d.pieces, d.works, d.piece_step) for d in drafts]
    waiters = host_waits.choose(result, [(d.works.end_ns, d.pieces.end_ns) for d in drafts])
    return [_edges(d, o, w) for d, o, w in zip(drafts, result, waiters, strict=True)]


def _edges(draft: RankDraft, result: host_waits.Options, waiter: np.ndarray) -> tuple[RankDraft, HostComm]:
    """Edges of one rank.

    A worker may be preempted between waking the waiting thread and closing its range: the range then outlasts the
    wait, and is cut there.
    """
    works, pieces = draft.works, draft.pieces
    resumed_ns = pieces.end_ns[np.maximum(waiter, 0)]
    awaited = (waiter >= 0) & (works.begin_ns[result.work] < resumed_ns)
    end = works.end_ns.copy()
    end[result.work[awaited]] = np.minimum(end[result.work[awaited]], resumed_ns[awaited])
    comm = HostComm(
        issued=np.stack([result.issuer, result.work]),
        awaited=np.stack([result.work[awaited], waiter[awaited]]),
        queued=_queued(draft, result.work, end),
        hidden=np.zeros(len(works), dtype=bool),
    )
    at_once = awaited & (waiter == result.issuer + 1) & ~is_direct(draft.events, works)[result.work]
    pieces = _handed_over(pieces, result.issuer[at_once], works.begin_ns[result.work[at_once]])
    return replace(draft, works=replace(works, end_ns=end), pieces=pieces), comm


def _handed_over(pieces: Pieces, issuer: np.ndarray, begin_ns: np.ndarray) -> Pieces:
    """A call that waits at once ends when its collective begins: the worker may take its core before it returns.

    main    |c10d::allreduce_ .....                      ..| T1 |        the call lasts as long as the transfer;
    worker                    |-- gloo:all_reduce -----|                 all but its beginning is the wait, with T1
    """
    inside = begin_ns < pieces.end_ns[issuer]
    begin, end = pieces.begin_ns.copy(), pieces.end_ns.copy()
    end[issuer[inside]] = begin[issuer[inside] + 1] = begin_ns[inside]
    return pieces.replaced(begin_ns=begin, end_ns=end)


def _queued(draft: RankDraft, known: np.ndarray, end: np.ndarray) -> np.ndarray:
    """[2, n] works of one process group: the third needs a worker thread that has ended one of the two before it."""
    works, group = draft.works, draft.events.column("group")
    queued = known[~is_direct(draft.events, works)[known]]
    queued = queued[np.argsort(works.begin_ns[queued], kind="stable")]
    name = np.array([str(g) for g in group[works.event[queued]]], dtype=object)
    pairs = [np.zeros((2, 0), dtype=np.int64)]
    for one in sorted(set(name.tolist())):
        line = queued[name == one]
        before, after = line[:-WORKER_THREADS], line[WORKER_THREADS:]
        free = works.begin_ns[after] >= end[before]
        pairs.append(np.stack([before[free], after[free]]))
    return np.concatenate(pairs, axis=1)
