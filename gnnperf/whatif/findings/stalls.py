"""Host work far beyond its class, and starts that nothing in the graph explains.

host     |op|op|··· cudaMalloc, 320 ms ···|op|op|
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.core import Segment
from gnnperf.whatif.findings.finding import Suspect, Way
from gnnperf.whatif.findings.observed import Observed

REMEDY = (
    "find out what stalls: first launches, data loading, allocations, garbage collection, other processes; "
    "stalls=remove predicts the step without them"
)


def stalls(step: Observed) -> list[Suspect]:
    """Stalls that the trace measured; the gain is the step predicted without them."""
    if step.stall_us is None or step.without_stalls_us is None:
        return []
    stalled = np.flatnonzero(step.stall_us > 0)
    if not len(stalled):
        return []
    us, where = step.stall_us[stalled], _where(step)[stalled]
    sums = pd.Series(us).groupby(where).agg(["sum", "size"]).nlargest(3, "sum")
    longest = int(us.argmax())
    ranks = sorted({int(rank) for rank in step.rank[stalled]})
    evidence = (
        "most stalled time: " + ", ".join(f"{name} {row['sum']:,.0f} us ({row['size']:.0f})"
                                         for name, row in sums.iterrows()),
        f"the longest takes {us[longest]:,.0f} us at {where[longest]}, rank {step.rank[stalled][longest]}; "
        f"{len(ranks)} of {len(step.graph.ranks)} ranks have stalls",
    )  # fmt: skip
    verb = " takes" if len(stalled) == 1 else "s take"
    cause = f"{len(stalled):,} stall{verb} {us.sum() / 1e3:,.1f} ms, summed over ranks"
    way = Way((), "stalls=remove", step_time_us=step.without_stalls_us)
    return [Suspect("stalls", cause, evidence, REMEDY, (way,))]


def _where(step: Observed) -> np.ndarray:
    """[num_nodes] the op, or the gap before it."""
    gap = (step.graph.nodes["segment"] == Segment.T1).to_numpy()
    return np.where(gap, "the gap before ", "") + step.op
