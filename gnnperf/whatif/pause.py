"""One rank sleeps at a place of every step.

before   | forward |T1| backward |
after    | forward |T1 + sleep     | backward |
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.edit import Edited, unedited
from gnnperf.whatif.places import Place, gap_at


@dataclass(frozen=True)
class Pause:
    """One rank waits once per step.

    Attributes:
        rank: which.
        place: where in the step.
        sleep_us: how long; negative takes a sleep out again.
    """

    rank: int
    place: Place
    sleep_us: float

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Lengthen (shorten) the gap at the place.

        Raises:
            InputError: the graph has no such rank or place.
        """
        if self.sleep_us == 0:
            return unedited(graph)
        at = gap_at(graph, self.rank, self.place)
        latency = graph.nodes["latency_us"].to_numpy(copy=True)
        wanted = latency[at] + self.sleep_us
        latency[at] = np.maximum(wanted, 0.0)
        touched = np.zeros(graph.num_nodes, dtype=bool)
        touched[at] = True
        edited = replace(graph, nodes=graph.nodes.assign(latency_us=latency))
        return Edited(edited, touched, np.arange(graph.num_nodes), self._unknown(wanted))

    def inverse(self) -> Pause:
        """The edit that takes this one back."""
        return replace(self, sleep_us=-self.sleep_us)

    def _unknown(self, wanted_us: np.ndarray) -> tuple[str, ...]:
        short = wanted_us < 0
        if not short.any():
            return ()
        return (
            f"{short.sum()} of {len(short)} gaps are shorter than the sleep of {-self.sleep_us:g} us that is taken out "
            f"(by {-wanted_us[short].min():.1f} us at most): they become 0",
        )
