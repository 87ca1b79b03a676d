"""One rank sleeps at a place of every step.

| forward |T1| backward |  ->  | forward |T1 + sleep| backward |
"""

from dataclasses import dataclass

import numpy as np

from gnnperf.graph import ExecutionGraph
from gnnperf.whatif import Edited, Place
from gnnperf.whatif.declared import gap_at
from gnnperf.whatif.edit import rewritten, unedited


@dataclass(frozen=True)
class Pause:
    """One rank waits once per step."""

    rank: int  # which
    place: Place  # where in the step
    sleep_us: float  # how long; negative takes a sleep out again

    def __call__(self, graph: ExecutionGraph) -> Edited:
        if self.sleep_us == 0:
            return unedited(graph)
        at = gap_at(graph, self.rank, self.place)
        latency = graph.nodes["latency_us"].to_numpy(copy=True)
        wanted = latency[at] + self.sleep_us
        latency[at] = np.maximum(wanted, 0.0)
        touched = np.zeros(graph.num_nodes, dtype=bool)
        touched[at] = True
        return rewritten(graph, touched, self._unknown(wanted), latency_us=latency)

    def _unknown(self, wanted_us: np.ndarray) -> tuple[str, ...]:
        short = wanted_us < 0
        if not short.any():
            return ()
        return (
            f"{short.sum()} of {len(short)} gaps are shorter than the sleep of {-self.sleep_us:g} us that is taken out "
            f"(by {-wanted_us[short].min():.1f} us at most): they become 0",
        )
