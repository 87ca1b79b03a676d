"""GPUs have nothing to do while their host works.

host     |-- op --|-- op --|-- op --|-- op --|
device      |k|      |k|      |k|      |k|           idle, and the host busy, for most of the step
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.whatif.chosen import ScaleNodes
from gnnperf.whatif.findings.exposed_communication import length_us, outside_us
from gnnperf.whatif.findings.finding import Suspect, Way
from gnnperf.whatif.findings.observed import Observed

SUSPICIOUS = 0.2  # share of the step in which devices idle and the host works, median over ranks: one slow rank is none
FASTER = 0.5  # of the host time: what the edit tries
REMEDY = "issue less from Python (larger ops, torch.compile, CUDA graphs), or run on a host with a faster core"


def host_bound(step: Observed) -> list[Suspect]:
    """The host holds its devices up."""
    if not step.graph.runs_on_gpu:
        return []
    shares = np.array([_shares(step, rank) for rank in step.graph.ranks])  # [num_ranks, 2]
    idle, host = np.median(shares, axis=0) / max(step.step_time_us, 1e-9)
    if host < SUSPICIOUS:
        return []
    evidence = (
        f"devices are idle for {100.0 * idle:.1f} % of the step; for {100.0 * host:.1f} % of it their host works "
        "meanwhile (medians over ranks)",
        f"most host time, all ranks: {_most(step)}",
    )
    nodes = np.flatnonzero(step.on_host)
    way = Way((ScaleNodes(tuple(nodes.tolist()), (FASTER,) * len(nodes)),), f"all host work x {FASTER:g}")
    return [Suspect("host_bound", "the host is slower than the devices it feeds", evidence, REMEDY, (way,))]


def _shares(step: Observed, rank: int) -> tuple[float, float]:
    """(us the devices of a rank are idle, us of these in which its host works), within the step."""
    mine = step.rank == rank
    device = step.spans(np.flatnonzero(mine & (step.graph.nodes["stream"] >= 0).to_numpy()))
    arrival, transfer = step.joins
    busy = _inside(np.concatenate([device, step.spans(transfer[step.rank[arrival] == rank])]), step)
    host = _inside(step.spans(np.flatnonzero(mine & step.on_host)), step)
    return step.step_time_us - length_us(busy), outside_us(host, busy)


def _inside(spans: np.ndarray, step: Observed) -> np.ndarray:
    """The parts of the spans that lie in the last `step_time_us` before the step's completion."""
    closes_us = step.schedule.makespan_us
    return np.clip(spans, closes_us - step.step_time_us, closes_us)


def _most(step: Observed) -> str:
    """The three ops with most host time."""
    chosen = step.on_host
    sums = pd.Series(step.latency_us[chosen]).groupby(step.op[chosen]).sum().nlargest(3)
    return ", ".join(f"{name} {us:,.0f} us" for name, us in sums[sums > 0].items())
