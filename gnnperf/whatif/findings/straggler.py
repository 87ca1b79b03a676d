"""One rank comes last to the collectives, and the others wait for it.

rank 0   |-- work --|arrives ···· waits ····|== all_reduce ==|
rank 1   |--------- more work ------|arrives|== all_reduce ==|      late by 1 less the median of the others
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core import Segment
from gnnperf.whatif.chosen import ScaleNodes
from gnnperf.whatif.declared import Straggler
from gnnperf.whatif.findings.finding import Suspect, Way
from gnnperf.whatif.findings.observed import Observed

SUSPICIOUS = 0.05  # share of the step by which a rank is late in sum
PAIRS = ("send", "recv", "send_recv")  # a pipeline's stages wait for each other by design
REMEDY = "look at what only this rank does there (its data, its shard, its host); balance it, or move it off the rank"


def straggler(step: Observed) -> list[Suspect]:
    """The rank that is late by most in sum, if it has more work than the others."""
    late_us, times_last, num_met = lateness(step)
    if not late_us:
        return []
    rank = max(late_us, key=lambda one: (late_us[one], -one))
    work, own_us, others_us = _more_work(step, rank)
    if late_us[rank] < SUSPICIOUS * step.step_time_us or own_us <= others_us:
        return []
    at = _where(step, rank, work)
    evidence = (
        f"rank {rank} comes last to {times_last[rank]} of {num_met} collectives, {late_us[rank]:,.0f} us later than "
        "the others in the median, in sum",
        f"its {work} work takes {own_us:,.0f} us, that of the others {others_us:,.0f} us in the median",
        f"most of it at {at.name}: {at.own_us:,.0f} us, of the others {at.others_us:,.0f} us in the median",
    )
    cause = f"rank {rank} is slower than the others, which wait for it"
    return [
        Suspect("straggler", cause, evidence, REMEDY, _ways(rank, work, others_us / own_us, own_us - others_us, at))
    ]


@dataclass(frozen=True)
class _Place:
    """Where a rank takes longer than the others by most: its nodes there, its time and the others' median."""

    name: str
    nodes: np.ndarray
    own_us: float
    others_us: float


def _ways(rank: int, work: str, factor: float, more_us: float, at: _Place) -> tuple[Way, ...]:
    """The place, and all the rank's work of that kind, made as fast as the others'; what explains more comes first."""
    share = at.others_us / at.own_us
    there = Way((ScaleNodes(tuple(at.nodes.tolist()), (share,) * len(at.nodes)),),
                f"rank {rank} at {at.name} as fast as the others (x {share:.3g})")  # fmt: skip
    if factor <= 0:
        return (there,)
    whole = Way((Straggler(rank, factor, work),), f"{{straggler:{{rank:{rank},factor:{factor:.4g},work:{work}}}}}")
    return (there, whole) if at.own_us - at.others_us >= more_us / 2 else (whole, there)


def lateness(step: Observed) -> tuple[dict[int, float], dict[int, int], int]:
    """(rank -> us it was late in sum, rank -> how often it was last, number of collectives with several ranks)."""
    arrival, transfer = step.joins
    kind = step.graph.nodes["collective"].astype(str).to_numpy()[transfer]
    met = pd.DataFrame(
        {"transfer": transfer, "rank": step.rank[arrival], "us": step.schedule.end_us[arrival]}
    )[~np.isin(kind, PAIRS)]  # fmt: skip
    late_us: dict[int, float] = {}
    times: dict[int, int] = {}
    groups = [group for _, group in met.groupby("transfer") if len(group) > 1]
    for group in groups:
        last = int(group["us"].to_numpy().argmax())
        others = np.delete(group["us"].to_numpy(), last)
        rank = int(group["rank"].iloc[last])
        late_us[rank] = late_us.get(rank, 0.0) + float(group["us"].iloc[last] - np.median(others))
        times[rank] = times.get(rank, 0) + 1
    return late_us, times, len(groups)


def _more_work(step: Observed, rank: int) -> tuple[str, float, float]:
    """(host or device, this rank's work in us, median of the others'), of which it has more."""
    result = []
    for work, chosen in (("host", step.on_host), ("device", step.on_device)):
        sums = np.array([step.latency_us[chosen & (step.rank == one)].sum() for one in step.graph.ranks])
        own = step.graph.ranks.index(rank)
        result.append((work, float(sums[own]), float(np.median(np.delete(sums, own)))))
    return max(result, key=lambda one: one[1] - one[2])


def _where(step: Observed, rank: int, work: str) -> _Place:
    """The op, or the gap before one, at which this rank takes longer than the others by most."""
    nodes = np.flatnonzero(step.on_host if work == "host" else step.on_device)
    gap = (step.graph.nodes["segment"] == Segment.T1).to_numpy()[nodes]
    name = np.where(gap, "the gap before ", "") + step.op[nodes]
    sums = pd.DataFrame({"op": name, "rank": step.rank[nodes], "us": step.latency_us[nodes]})
    table = sums.pivot_table(index="op", columns="rank", values="us", aggfunc="sum", fill_value=0.0)
    table = table.reindex(columns=list(step.graph.ranks), fill_value=0.0)
    others_us = table.drop(columns=rank).median(axis=1)
    at = str((table[rank] - others_us).idxmax())
    mine = nodes[(name == at) & (step.rank[nodes] == rank)]
    return _Place(at, mine, float(table[rank][at]), float(others_us[at]))
