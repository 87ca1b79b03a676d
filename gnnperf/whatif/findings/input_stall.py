"""The host does nothing that the profiler sees before the first op of the step: it waits for data, mostly.

main thread   |······ T1 ······|op|T1|op|T1|op
"""

from __future__ import annotations

import numpy as np

from gnnperf.core import InputError, Segment
from gnnperf.graph import WINDOW
from gnnperf.whatif.findings.finding import Basis, Suspect, Way
from gnnperf.whatif.findings.observed import Observed
from gnnperf.whatif.pause import Pause
from gnnperf.whatif.places import Place, gap_at

SUSPICIOUS = 0.05  # share of the step by which the first gap is longer than usual ones
REMEDY = "more loader workers, prefetching, pinned memory; or find what Python does between the steps"


def input_stall(step: Observed) -> list[Suspect]:
    """The gap before the first op, beyond what gaps of that thread usually take. Told by recordings only."""
    if step.basis is not Basis.MEASURED or any(label.name == WINDOW for label in step.graph.steps):
        return []  # a window without step marks begins where the profiler did
    stall_us = {rank: _stall_us(step, rank) for rank in step.graph.ranks}
    stalled = {rank: us for rank, us in stall_us.items() if us >= SUSPICIOUS * step.step_time_us}
    if not stalled:
        return []
    longest = max(stalled, key=lambda rank: stalled[rank])
    evidence = (
        f"before its first op, rank {longest} does nothing that is recorded for {stalled[longest]:,.0f} us longer than "
        f"in its usual gap; so do {len(stalled)} of {len(stall_us)} ranks",
    )
    edits = tuple(Pause(rank, Place.START, -us) for rank, us in stalled.items())
    way = Way(edits, f"plan.Pause(rank, start, -us) for ranks {', '.join(map(str, stalled))}: the usual gap")
    return [Suspect("input_stall", "the step waits for its input", evidence, REMEDY, (way,))]


def _stall_us(step: Observed, rank: int) -> float:
    """How much longer the first gap of the main thread is than its median one; 0 without gaps."""
    try:
        first = gap_at(step.graph, rank, Place.START)
    except InputError:  # a rank without a main thread, or without gaps: a plan's, or one that only serves
        return 0.0
    nodes = step.graph.nodes
    gaps = (step.rank == rank) & (nodes["thread"] == 0).to_numpy() & (nodes["segment"] == Segment.T1).to_numpy()
    return float(step.latency_us[first].sum() - np.median(step.latency_us[gaps]))
