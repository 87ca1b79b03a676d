"""Transfers next to which a rank computes nothing.

stream 0   |--- gemm ---|              |--- gemm ---|
stream 1           |== all_reduce =====|
exposed                 |==============|
"""

from __future__ import annotations

import numpy as np

from gnnperf.core import NodeType
from gnnperf.whatif.declared import OpLatency
from gnnperf.whatif.findings.finding import Suspect, Way
from gnnperf.whatif.findings.observed import Observed
from gnnperf.whatif.wait_later import WaitLater

# Stretches of time as sets: unions, and what lies outside others. All spans are [n, 2] (start, end) in us.


def union(spans: np.ndarray) -> np.ndarray:
    """[m, 2] the same time without overlaps, ascending; empty spans are left out."""
    spans = spans[spans[:, 1] > spans[:, 0]]
    if not len(spans):
        return np.zeros((0, 2))
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reached = np.maximum.accumulate(spans[:, 1])
    opens = np.r_[True, spans[1:, 0] > reached[:-1]]
    closes = np.r_[opens[1:], True]
    return np.column_stack([spans[opens, 0], reached[closes]])


def length_us(spans: np.ndarray) -> float:
    """How much time they cover, overlaps once."""
    whole = union(spans)
    return float((whole[:, 1] - whole[:, 0]).sum())


def outside_us(spans: np.ndarray, others: np.ndarray) -> float:
    """How much of the time of `spans` is not covered by `others`."""
    return length_us(np.concatenate([spans, others])) - length_us(others)


SUSPICIOUS = 0.05  # share of the step that is exposed, mean over ranks
REMEDY = "issue it earlier or wait for it later, in smaller parts beside the work that is left; or send less"


def exposed_communication(step: Observed) -> list[Suspect]:
    """The kind of collective that is exposed for longest."""
    arrival, transfer = step.joins
    kinds = step.graph.nodes["collective"].astype(object).to_numpy()[transfer]
    known = np.array([isinstance(kind, str) for kind in kinds], dtype=bool)
    exposed_us = {str(kind): _exposed_us(step, arrival[kinds == kind], transfer[kinds == kind])
                  for kind in sorted(set(kinds[known]))}  # fmt: skip
    if not exposed_us:
        return []
    kind = max(exposed_us, key=lambda one: exposed_us[one][0])
    isolated_us, all_us = exposed_us[kind]
    if isolated_us < SUSPICIOUS * step.step_time_us:
        return []
    share = 100.0 * isolated_us / step.step_time_us
    evidence = (
        f"{kind}: {all_us:,.0f} us of transfers per rank, of which {isolated_us:,.0f} us ({share:.1f} % of the step) "
        "pass while the rank computes nothing (means over ranks)",
    )
    ways = (
        Way((WaitLater(kind),), f"{{overlap:{{collective:{kind}}}}}"),
        Way((OpLatency(kind, factor=0.0),), f"{{latency:{{op:{kind},factor:0}}}} (nothing left of it)", at_most=True),
    )
    return [Suspect("exposed_communication", f"{kind} is not hidden behind work", evidence, REMEDY, ways)]


def _exposed_us(step: Observed, arrival: np.ndarray, transfer: np.ndarray) -> tuple[float, float]:
    """Means over ranks of (us of these transfers while the rank computes nothing, us of these transfers)."""
    isolated, total = [], []
    for rank in step.graph.ranks:
        spans = step.spans(transfer[step.rank[arrival] == rank])
        work = step.spans(np.flatnonzero((step.kind == NodeType.COMPUTE) & (step.rank == rank)))
        isolated.append(outside_us(spans, work))
        total.append(length_us(spans))
    return float(np.mean(isolated)), float(np.mean(total))
