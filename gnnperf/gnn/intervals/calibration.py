"""All intervals of one trained model, as it carries them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gnnperf.gnn.intervals.nodes import NodeIntervals
from gnnperf.gnn.intervals.steps import StepIntervals

LEVEL = 0.9


@dataclass(frozen=True)
class Intervals:
    """Attributes: nodes: by who answered; steps: mode of prediction -> intervals of its steps."""

    nodes: NodeIntervals
    steps: Mapping[str, StepIntervals]

    def to_plain(self) -> dict[str, Any]:
        """What JSON can say."""
        return asdict(self)
