"""One rank before it is joined with the others: its host pieces and device works, no edges yet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnperf.graph import waits
from gnnperf.graph.device import Works, device_works
from gnnperf.graph.event_columns import RankEvents
from gnnperf.graph.host import Pieces, host_pieces, split_calls
from gnnperf.graph.host_works import host_comm_works, transport_threads
from gnnperf.graph.steps import StepWindows
from gnnperf.graph.threads import Bursts, fork_and_join


@dataclass(frozen=True)
class RankDraft:
    """What one rank did.

    Attributes:
        events, works, pieces, bursts: see their classes.
        piece_step: [num_pieces] step of each piece; -1 outside whole steps.
        main_thread: the thread that carries the steps.
        on_device: whether there is device work; else collectives run on host threads and ops are computed there.
    """

    events: RankEvents
    works: Works
    pieces: Pieces
    bursts: Bursts
    piece_step: np.ndarray
    main_thread: int
    on_device: bool


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
