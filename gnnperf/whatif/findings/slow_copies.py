"""Copies between host and device far below what their link carries: pageable memory, or many small ones.

link     32 GB/s         copy of 64 MB   |-- 2 ms --|                     at the rate that the link sustains
measured                                 |------------ 9 ms ------------|
"""

from __future__ import annotations

import numpy as np

from gnnperf.analytic import CopyPath, path_of
from gnnperf.core import NodeType
from gnnperf.whatif.chosen import ScaleNodes
from gnnperf.whatif.findings.finding import Suspect, Way
from gnnperf.whatif.findings.observed import Observed

TIMES = 2.0  # as long as at the link's rate: slow
SUSPICIOUS = 0.02  # share of the step that slow copies lose, mean over ranks
REMEDY = "pin the host memory (pin_memory=True, non_blocking=True), and copy in few large pieces"


def slow_copies(step: Observed) -> list[Suspect]:
    """Copies that take twice as long as the link's sustained rate asks for."""
    if step.cluster is None:
        return []
    nodes, link = step.graph.nodes, step.cluster.host_link
    paths = np.array([path_of(name) for name in nodes["event_name"].astype(object).where(
        nodes["event_name"].notna(), None)], dtype=object)  # fmt: skip
    crosses = np.isin(step.kind, [NodeType.MEMORY]) & np.isin(paths, [CopyPath.HOST, CopyPath.HOST_PAGEABLE])
    best_us = link.latency_us + nodes["bytes"].to_numpy() / link.sustained_bytes_per_s * 1e6  # [num_nodes]
    slow = np.flatnonzero(crosses & (step.latency_us > TIMES * best_us))  # NaN where bytes are unknown: never slow
    lost_us = float((step.latency_us[slow] - best_us[slow]).sum()) / max(len(step.graph.ranks), 1)
    if not len(slow) or lost_us < SUSPICIOUS * step.step_time_us:
        return []
    moved = nodes["bytes"].to_numpy()[slow]
    rate = moved.sum() / step.latency_us[slow].sum() / 1e3  # GB/s
    pageable = int((paths[slow] == CopyPath.HOST_PAGEABLE).sum())
    evidence = (
        f"{len(slow):,} of {int(crosses.sum()):,} copies between host and device run at {rate:.3g} GB/s, of "
        f"{link.sustained_bytes_per_s / 1e9:.3g} GB/s that {link.name} sustains; {lost_us:,.0f} us of a rank's step "
        "are lost (mean over ranks)",
        f"{pageable:,} of them from or to pageable memory; median size {np.median(moved) / 1e3:.3g} kB",
    )
    edit = ScaleNodes(tuple(slow.tolist()), tuple((best_us[slow] / step.latency_us[slow]).tolist()))
    way = Way((edit,), f"these {len(slow):,} copies at the rate of the link")
    return [Suspect("slow_copies", "copies use little of their link", evidence, REMEDY, (way,))]
