"""How many profiler events open in each stretch of host time: each cost time that the program alone does not take.

thread  ---|  op A                          |--|  op B  |---
           ^   |op A1|   |op A2|               ^
    T1: A  |   A1 and A2 open in A             |  T1: B
The profiler reads the clock last when an event opens and first when it closes, so what an event costs lies outside of
its own interval: in what comes before it, or in the op around it.
"""

from __future__ import annotations

import numpy as np

from gnnperf.core import EventKind
from gnnperf.graph.event_columns import RankEvents
from gnnperf.graph.host import Pieces


def opened_events(events: RankEvents, pieces: Pieces, kind: EventKind) -> np.ndarray:
    """[num_pieces] int32, host events of a kind that open in each piece: after its begin, at the latest at its end.

    An event that opens where its thread has no piece (before its first op, or while it idles) is counted nowhere.
    """
    opened = np.flatnonzero((events.kind == kind) & (events.thread >= 0))
    order = np.lexsort((pieces.begin_ns, pieces.end_ns, pieces.thread))  # a piece of no length after what it follows
    result = np.zeros(len(pieces), dtype=np.int32)
    for thread in np.unique(pieces.thread).tolist():
        own = order[pieces.thread[order] == thread]
        start = events.start_ns[opened[events.thread[opened] == thread]]
        np.add.at(result, _pieces_at(pieces, own, start), 1)
    return result


def _pieces_at(pieces: Pieces, own: np.ndarray, moment_ns: np.ndarray) -> np.ndarray:
    """Pieces of one thread, sorted by end, around or at the end of which each moment lies; others are left out."""
    end = pieces.end_ns[own]
    slot = np.searchsorted(end, moment_ns, side="right")
    slot -= (slot > 0) & (end[np.maximum(slot - 1, 0)] == moment_ns)
    moment_ns, piece = moment_ns[slot < len(own)], own[slot[slot < len(own)]]
    begin = pieces.begin_ns[piece]
    # What opens where a piece begins is the piece itself, unless that has no length.
    return piece[(begin < moment_ns) | ((begin == moment_ns) & (pieces.end_ns[piece] == begin))]
