"""Elementwise ops in a row, each of which writes what the next one reads.

device   |add|mul|relu|     three times through memory      ->     |add mul relu|
"""

from __future__ import annotations

from gnnperf.core import InputError, NodeType, OpFamily
from gnnperf.whatif.findings.finding import Suspect, Way
from gnnperf.whatif.findings.observed import Observed
from gnnperf.whatif.fusion import FuseElementwise

SUSPICIOUS = 0.05  # share of the step in elementwise ops, mean over ranks
REMEDY = "torch.compile the part of the model they are in, or use a fused op"


def unfused_chains(step: Observed) -> list[Suspect]:
    """There is enough elementwise work, and some of it stands in chains."""
    chosen = (step.kind == NodeType.COMPUTE) & (step.graph.nodes["family"] == OpFamily.ELEMENTWISE).to_numpy()
    time_us = float(step.latency_us[chosen].sum()) / max(len(step.graph.ranks), 1)
    if time_us < SUSPICIOUS * step.step_time_us:
        return []
    try:
        fused = FuseElementwise()(step.graph)
    except InputError:  # none are in a row
        return []
    evidence = (
        f"{int(chosen.sum()):,} elementwise ops take {time_us:,.0f} us of a rank's step (mean over ranks); those that "
        f"stand in a row on one shape would become {int(fused.touched.sum()):,}",
    )
    way = Way((FuseElementwise(),), "{fuse:{}}")
    return [Suspect("unfused_chains", "elementwise ops pass tensors through memory", evidence, REMEDY, (way,))]
