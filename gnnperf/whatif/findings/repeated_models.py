"""Equal calls that do not need each other, one after the other: models or towers that could run as one batched op.

device   |mm|mm|mm|mm|     ->     |bmm|            Wang et al. 2021, "Horizontally Fused Training Array"
"""

from __future__ import annotations

from gnnperf.core import InputError
from gnnperf.whatif.findings.finding import Suspect, Way
from gnnperf.whatif.findings.observed import Observed
from gnnperf.whatif.horizontal import FuseHorizontally

REMEDY = "stack their inputs and weights and call the op once (torch.func.vmap, torch.bmm, grouped embedding bags)"


def repeated_models(step: Observed) -> list[Suspect]:
    """There are equal calls that are known not to need each other; whether one call is worth it, the edit says."""
    try:
        fused = FuseHorizontally()(step.graph)
    except InputError:  # none, or nothing shows it
        return []
    way = Way((FuseHorizontally(),), "{horizontal:{}}")
    cause = "equal calls that do not need each other run one by one"
    return [Suspect("repeated_models", cause, fused.found, REMEDY, (way,))]
