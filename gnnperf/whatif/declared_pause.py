"""One rank waits at a place of every step, whoever tells the latencies.

before   | forward |T1| backward |
after    | forward |T1 + us      | backward |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnperf.core import require
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.edit import Edited, delayed
from gnnperf.whatif.places import Place, gap_at

HIDDEN = "what other threads of the rank do in a pause: they go on as they were"


@dataclass(frozen=True)
class DeclarePause:
    """One rank waits once per step; `Pause` is the same for recorded latencies.

    Attributes:
        us: how long.
        rank: which.
        place: start, backward (before it) or optimizer (before it).
    """

    us: float
    rank: int
    place: str = "start"

    def __post_init__(self) -> None:
        """Refuse a negative pause and an unknown place."""
        require(self.us >= 0, "us of a pause", self.us, "0 or more")
        require(self.place in list(Place), "place of a pause", self.place, ", ".join(Place))

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Declare it.

        Raises:
            InputError: the graph has no such rank or place.
        """
        chosen = np.zeros(graph.num_nodes, dtype=bool)
        chosen[gap_at(graph, self.rank, Place(self.place))] = True
        return Edited(graph, chosen, np.arange(graph.num_nodes), (HIDDEN,), delayed(chosen, self.us))
