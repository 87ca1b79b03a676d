"""Rules on transfers: exposed ones, a rank that the others wait for, also for its tables, and slow copies.

exposed     stream 0   |--- gemm ---|              |--- gemm ---|
            stream 1           |== all_reduce =====|
straggler   rank 0     |-- work --|arrives ···· waits ····|== all_reduce ==|
            rank 1     |--------- more work ------|arrives|== all_reduce ==|      late by 1 less the others' median
tables      rank 0     |= lookups =|arrives ···········|== all_to_all ==|
            rank 1     |======== lookups =======|arrives|== all_to_all ==|
slow copy   link       |------------ 9 ms ------------|       64 MB; at the rate that the link sustains: 2 ms
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.analytic import CopyPath, path_of
from gnnperf.core import NodeType, OpFamily
from gnnperf.whatif.declared import OpLatency, Straggler
from gnnperf.whatif.findings.finding import SUSPICIOUS, Observed, Suspect, Way, scaling
from gnnperf.whatif.waits import WaitLater

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
    return float(np.diff(union(spans)).sum())


def outside_us(spans: np.ndarray, others: np.ndarray) -> float:
    """How much of the time of `spans` is not covered by `others`."""
    return length_us(np.concatenate([spans, others])) - length_us(others)


def exposed_communication(step: Observed) -> list[Suspect]:
    """The kind of collective with the longest transfers during which a rank computes nothing."""
    arrival, transfer = step.joins
    kinds = step.graph.nodes["collective"].astype(object).to_numpy()[transfer]
    exposed_us = {kind: _exposed_us(step, arrival[kinds == kind], transfer[kinds == kind])
                  for kind in sorted({kind for kind in kinds if isinstance(kind, str)})}  # fmt: skip
    if not exposed_us:
        return []
    kind = max(exposed_us, key=lambda one: exposed_us[one][0])
    own_us, all_us = exposed_us[kind]
    if own_us < SUSPICIOUS * step.step_time_us:
        return []
    share = 100.0 * own_us / step.step_time_us
    evidence = (
        f"{kind}: {all_us:,.0f} us of transfers per rank, of which {own_us:,.0f} us ({share:.1f} % of the step) "
        "pass while the rank computes nothing (means over ranks)",
    )
    remedy = "issue it earlier or wait for it later, in smaller parts next to the work that is left; or send less"
    ways = (
        Way((WaitLater(kind),), f"{{overlap:{{collective:{kind}}}}}"),
        Way((OpLatency(kind, factor=0.0),), f"{{latency:{{op:{kind},factor:0}}}} (nothing left of it)", at_most=True),
    )
    return [Suspect("exposed_communication", f"{kind} is not hidden behind work", evidence, remedy, ways)]


def _exposed_us(step: Observed, arrival: np.ndarray, transfer: np.ndarray) -> tuple[float, float]:
    """Means over ranks of (us of these transfers while the rank computes nothing, us of these transfers)."""
    result = []
    for rank in step.graph.ranks:
        spans = step.spans(transfer[step.rank[arrival] == rank])
        work = step.spans(np.flatnonzero((step.kind == NodeType.COMPUTE) & (step.rank == rank)))
        result.append((outside_us(spans, work), length_us(spans)))
    own_us, all_us = np.mean(result, axis=0)
    return float(own_us), float(all_us)


PAIRS = ("send", "recv", "send_recv")  # a pipeline's stages wait for each other by design


def straggler(step: Observed) -> list[Suspect]:
    """The rank that is late by most in sum, if it has more work than the others."""
    late_us, times_last, num_met = lateness(step)
    if not late_us:
        return []
    rank = max(late_us, key=lambda one: (late_us[one], -one))
    work, own_us, others_us = _more_work(step, rank)
    if late_us[rank] < SUSPICIOUS * step.step_time_us or own_us <= others_us:
        return []
    at = _slowest(step, rank, work)
    evidence = (
        f"rank {rank} comes last to {times_last[rank]} of {num_met} collectives, {late_us[rank]:,.0f} us later than "
        "the others in the median, in sum",
        f"its {work} work takes {own_us:,.0f} us, that of the others {others_us:,.0f} us in the median",
        f"most of it at {at.name}: {at.own_us:,.0f} us, of the others {at.others_us:,.0f} us in the median",
    )
    remedy = (
        "look at what only this rank does there (its data, its shard, its host); balance it, or move it off the rank"
    )
    cause = f"rank {rank} is slower than the others, which wait for it"
    ways = _ways(rank, work, others_us / own_us, own_us - others_us, at)
    return [Suspect("straggler", cause, evidence, remedy, ways)]


@dataclass(frozen=True)
class _Slowest:
    """Where a rank takes longer than the others by most: its nodes there, its time and the others' median."""

    name: str
    nodes: np.ndarray
    own_us: float
    others_us: float


def _ways(rank: int, work: str, factor: float, more_us: float, at: _Slowest) -> tuple[Way, ...]:
    """The slowest op, and all the rank's work of that kind, made as fast as the others'; the larger part first."""
    share = at.others_us / at.own_us
    there = scaling(at.nodes, share, f"rank {rank} at {at.name} as fast as the others (x {share:.3g})")
    if factor <= 0:
        return (there,)
    whole = Way((Straggler(rank, factor, work),), f"{{straggler:{{rank:{rank},factor:{factor:.4g},work:{work}}}}}")
    return (there, whole) if at.own_us - at.others_us >= more_us / 2 else (whole, there)


def lateness(step: Observed) -> tuple[dict[int, float], dict[int, int], int]:
    """(rank -> us it was late in sum, rank -> how often it was last, number of collectives with several ranks)."""
    arrival, transfer = step.joins
    kind = step.graph.nodes["collective"].astype(str).to_numpy()[transfer]
    met = pd.DataFrame({"transfer": transfer, "rank": step.rank[arrival], "us": step.schedule.end_us[arrival]})
    groups = [group for _, group in met[~np.isin(kind, PAIRS)].groupby("transfer") if len(group) > 1]
    late_us: dict[int, float] = {}
    times: dict[int, int] = {}
    for group in groups:
        us = group["us"].to_numpy()
        last = int(us.argmax())
        rank = int(group["rank"].iloc[last])
        late_us[rank] = late_us.get(rank, 0.0) + float(us[last] - np.median(np.delete(us, last)))
        times[rank] = times.get(rank, 0) + 1
    return late_us, times, len(groups)


def _more_work(step: Observed, rank: int) -> tuple[str, float, float]:
    """(host or device, this rank's work in us, median of the others'), of which it has more."""
    result = []
    for work, nodes in (("host", step.on_host), ("device", step.on_device)):
        sums = np.array([step.latency_us[nodes & (step.rank == one)].sum() for one in step.graph.ranks])
        own = step.graph.ranks.index(rank)
        result.append((work, float(sums[own]), float(np.median(np.delete(sums, own)))))
    return max(result, key=lambda one: one[1] - one[2])


def _slowest(step: Observed, rank: int, work: str) -> _Slowest:
    """The op, or the gap before one, at which this rank takes longer than the others by most."""
    nodes = np.flatnonzero(step.on_host if work == "host" else step.on_device)
    name = step.where[nodes]
    sums = pd.DataFrame({"op": name, "rank": step.rank[nodes], "us": step.latency_us[nodes]})
    table = sums.pivot_table(index="op", columns="rank", values="us", aggfunc="sum", fill_value=0.0)
    table = table.reindex(columns=list(step.graph.ranks), fill_value=0.0)
    others_us = table.drop(columns=rank).median(axis=1)
    at = str((table[rank] - others_us).idxmax())
    mine = nodes[(name == at) & (step.rank[nodes] == rank)]
    return _Slowest(at, mine, float(table[rank][at]), float(others_us[at]))


PLACE = "place the tables by their lookups, not by their sizes or in turn (gnnperf shard), or divide the largest ones"


def skewed_tables(step: Observed) -> list[Suspect]:
    """The rank that works for its tables for longest, for more bytes, if the others wait for it."""
    ranks = step.graph.ranks
    if len(ranks) < 2:
        return []
    works = step.on_device & (step.graph.nodes["family"] == OpFamily.EMBEDDING).to_numpy()
    sums_us = np.array([step.latency_us[works & (step.rank == rank)].sum() for rank in ranks])
    most = int(sums_us.argmax())
    others_us = float(np.median(np.delete(sums_us, most)))
    moved = step.graph.nodes["bytes"].to_numpy()
    megabytes = [float(np.nansum(moved[works & (step.rank == rank)])) / 1e6 for rank in ranks]
    others_mb = float(np.median(np.delete(megabytes, most)))
    for_more_us = sums_us[most] * (1.0 - others_mb / max(megabytes[most], 1e-9))
    late_us = lateness(step)[0].get(ranks[most], 0.0)
    if min(sums_us[most] - others_us, for_more_us, late_us) < SUSPICIOUS * step.step_time_us:
        return []
    evidence = (
        f"rank {ranks[most]} works {sums_us[most]:,.0f} us for embedding tables, the others {others_us:,.0f} us in the "
        f"median; it comes {late_us:,.0f} us later to collectives than the others, in sum",
        f"it reads and writes {megabytes[most]:.3g} MB for them, the others {others_mb:.3g} MB in the median",
    )
    cause = f"rank {ranks[most]} holds the embedding tables with most work, and the others wait for it"
    # What an even placement would gain, at most: one that no table hinders.
    factor = np.divide(sums_us.mean(), sums_us, out=np.ones_like(sums_us), where=sums_us > 0)  # [num_ranks]
    nodes = np.flatnonzero(works)
    factors = factor[np.searchsorted(ranks, step.rank[nodes])]
    way = scaling(nodes, factors, "the work for tables divided evenly over the ranks", at_most=True)
    return [Suspect("skewed_tables", cause, evidence, PLACE, (way,))]


TIMES = 2.0  # as long as at the link's rate: slow
LOST = 0.02  # share of the step that slow copies lose, mean over ranks


def slow_copies(step: Observed) -> list[Suspect]:
    """Copies between host and device that take twice as long as at the link's sustained rate."""
    if step.cluster is None:
        return []
    nodes, link = step.graph.nodes, step.cluster.host_link
    paths = np.array([path_of(name) for name in nodes["event_name"].astype(object).where(
        nodes["event_name"].notna(), None)], dtype=object)  # fmt: skip
    crosses = (step.kind == NodeType.MEMORY) & np.isin(paths, [CopyPath.HOST, CopyPath.HOST_PAGEABLE])
    best_us = link.latency_us + nodes["bytes"].to_numpy() / link.sustained_bytes_per_s * 1e6  # [num_nodes]
    slow = np.flatnonzero(crosses & (step.latency_us > TIMES * best_us))  # NaN where bytes are unknown: never slow
    lost_us = float((step.latency_us[slow] - best_us[slow]).sum()) / step.num_ranks
    if not len(slow) or lost_us < LOST * step.step_time_us:
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
    remedy = "pin the host memory (pin_memory=True, non_blocking=True), and copy in few large pieces"
    way = scaling(slow, best_us[slow] / step.latency_us[slow], f"these {len(slow):,} copies at the rate of the link")
    return [Suspect("slow_copies", "copies use little of their link", evidence, remedy, (way,))]
