"""Sends and receives: when they really ended. Their ranges end when they are waited for, which may be much later.

rank 0   |isend|  other work ............  |wait|         the range of the send lasts to the wait: it tells nothing
rank 1         |recv ·····|                               the receive waits at once: the message had come when it ended
rank 2   |irecv|  other work ............  |wait|         came while the rank was busy: nobody saw it (hidden)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnnperf.graph.host_comm import HostComm
from gnnperf.graph.matching import SEND_RECV, CommPart, comm_parts, match
from gnnperf.graph.rank_draft import RankDraft

Tied = tuple[RankDraft, HostComm]


@dataclass(frozen=True)
class _Wait:
    """Where a part is waited for: the piece's begin, and whether it directly follows the issue; None: nowhere seen."""

    begin_ns: int | None
    at_once: bool


def settle(ranks: Sequence[Tied]) -> list[Tied]:
    """Every rank with the ends of its sends and receives as far as they can be known, and which stay hidden."""
    waits = [_waits(draft, comm) for draft, comm in ranks]
    ends = [draft.works.end_ns.copy() for draft, _ in ranks]
    hidden = [np.zeros(len(draft.works), dtype=bool) for draft, _ in ranks]
    drafts = [draft for draft, _ in ranks]
    for pair in match(comm_parts(drafts, [_steps(*tied) for tied in ranks])):
        if pair[0].key[0] != SEND_RECV or len(pair) != 2:
            continue
        last = max(p.begin_ns for p in pair)
        for part in pair:
            wait = waits[part.rank_index].get(part.work, _Wait(None, False))
            if part.sends:
                ends[part.rank_index][part.work] = _sent(part, last, wait)
            else:
                hidden[part.rank_index][part.work] = _is_hidden(part, last, wait)
                ends[part.rank_index][part.work] = _received(part, last, wait)
    return [
        (replace(draft, works=replace(draft.works, end_ns=end)), replace(comm, hidden=never_seen))
        for (draft, comm), end, never_seen in zip(ranks, ends, hidden, strict=True)
    ]


def _waits(draft: RankDraft, comm: HostComm) -> dict[int, _Wait]:
    issuer = dict(zip(comm.issued[1].tolist(), comm.issued[0].tolist(), strict=True))
    return {
        work: _Wait(int(draft.pieces.begin_ns[piece]), piece == issuer[work] + 1)
        for work, piece in comm.awaited.T.tolist()
    }


def _steps(draft: RankDraft, comm: HostComm) -> np.ndarray:
    """[num_works] step of the issuing op; -1 unknown or outside."""
    step = np.full(len(draft.works), -1, dtype=np.int32)
    step[comm.issued[1]] = draft.piece_step[comm.issued[0]]
    return step


def _sent(part: CommPart, last_ns: int, wait: _Wait) -> int:
    """When a send ended: seen if its rank was waiting when the receiver came, else as soon as that came."""
    seen = wait.at_once or (wait.begin_ns is not None and wait.begin_ns <= last_ns)
    return part.end_ns if seen else min(part.end_ns, last_ns)


def _is_hidden(part: CommPart, last_ns: int, wait: _Wait) -> bool:
    """Whether a message came unseen: its rank was busy for most of the time that it may have taken."""
    if wait.begin_ns is None:
        return True
    return not wait.at_once and part.end_ns - wait.begin_ns < wait.begin_ns - last_ns


def _received(part: CommPart, last_ns: int, wait: _Wait) -> int:
    """When a receive ended; unseen: no later than it was waited for."""
    if not _is_hidden(part, last_ns, wait):
        return part.end_ns
    return last_ns if wait.begin_ns is None else min(part.end_ns, wait.begin_ns)
