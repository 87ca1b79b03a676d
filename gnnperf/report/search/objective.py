"""What a search looks for."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnnperf.generate import TransformerPlan


class By(StrEnum):
    """What is best."""

    STEP = "step"
    TOKENS_PER_S = "tokens_per_s"
    COST = "cost"

    def weight(self, plan: TransformerPlan) -> float:
        """Of a plan's step: every candidate has the same tokens, so the fastest step has the most tokens per second."""
        return float(plan.parallelism.world_size) if self is By.COST else 1.0
