"""Forward, backward, optimizer: the phase of the step an event belongs to."""

from __future__ import annotations

import numpy as np

from gnnperf.core import Phase
from gnnperf.graph.event_columns import RankEvents, by_category

_CODES = (None, str(Phase.FORWARD), str(Phase.BACKWARD), str(Phase.OPTIMIZER))


def phases(events: RankEvents) -> np.ndarray:
    """[num_events] str: an event's own phase if its name tells one, else that of the range around it, else forward."""
    code = by_category(events.table.events["name"], _named_phase, np.int8)
    code[(events.column("forward_event") >= 0) & (code == 0)] = 2
    while True:
        inherits = (code == 0) & (events.parent >= 0)
        inherited = np.where(inherits, code[events.parent], 0)
        if not inherited.any():
            break
        code = np.where(inherits, inherited, code)
    return np.array([str(Phase.FORWARD), *_CODES[1:]], dtype=object)[code]


def _named_phase(name: str) -> int:
    """Position in _CODES; 0 if the name tells nothing."""
    if name.startswith(("Optimizer.", "## optimizer", "## zero_grad")):
        return 3
    if name.startswith(("autograd::engine::", "torch::autograd::", "## backward")) or name.endswith("Backward0"):
        return 2
    return 1 if name.startswith("## forward") else 0
