"""Rules on hosts: slower than their devices, kernels shorter than their launches, waits for input, stalls.

host_bound     host     |-- op --|-- op --|-- op --|
               device      |k|      |k|      |k|           idle, and the host busy, for most of the step
launch_bound   host     |T1|T2|-T4-|T3|T1|T2|-T4-|T3|      8 us per call; the device 3 us
input_stall    thread   |······ T1 ······|op|T1|op|T1|op
stalls         host     |op|op|··· cudaMalloc, 320 ms ···|op|op|
"""

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType, Segment
from gnnperf.graph import WINDOW
from gnnperf.whatif.declared import Place, gap_at
from gnnperf.whatif.findings.communication import length_us, outside_us
from gnnperf.whatif.findings.finding import SUSPICIOUS, Basis, Observed, Suspect, Way, scaling
from gnnperf.whatif.units import host_units, with_launched

# Of the step: idle devices next to a busy host (median over ranks), or launches of small kernels (mean).
HOST_SHARE = 0.2
FASTER = 0.5  # of the host time: what the edit tries
MOST = 0.5  # share of the calls with kernels that are small


def host_bound(step: Observed) -> list[Suspect]:
    """Devices idle while their host works."""
    if not step.graph.runs_on_gpu:
        return []
    shares = np.array([_shares(step, rank) for rank in step.graph.ranks])  # [num_ranks, 2]
    idle, host = np.median(shares, axis=0) / max(step.step_time_us, 1e-9)
    if host < HOST_SHARE:
        return []
    sums = pd.Series(step.latency_us[step.host_work]).groupby(step.op[step.host_work]).sum().nlargest(3)
    evidence = (
        f"devices are idle for {100.0 * idle:.1f} % of the step; for {100.0 * host:.1f} % of it their host works "
        "meanwhile (medians over ranks)",
        "most host time, all ranks: " + ", ".join(f"{name} {us:,.0f} us" for name, us in sums[sums > 0].items()),
    )
    remedy = "issue less from Python (larger ops, torch.compile, CUDA graphs), or run on a host with a faster core"
    way = scaling(np.flatnonzero(step.host_work), FASTER, f"all host work x {FASTER:g}")
    return [Suspect("host_bound", "the host is slower than the devices it feeds", evidence, remedy, (way,))]


def _shares(step: Observed, rank: int) -> tuple[float, float]:
    """(us the devices of a rank are idle, us of these in which its host works), within the step."""
    mine = step.rank == rank
    device = step.spans(np.flatnonzero(mine & (step.graph.nodes["stream"] >= 0).to_numpy()))
    arrival, transfer = step.joins
    busy = _inside(np.concatenate([device, step.spans(transfer[step.rank[arrival] == rank])]), step)
    host = _inside(step.spans(np.flatnonzero(mine & step.host_work)), step)
    return step.step_time_us - length_us(busy), outside_us(host, busy)


def _inside(spans: np.ndarray, step: Observed) -> np.ndarray:
    """The parts of the spans that lie in the last `step_time_us` before the step's completion."""
    closes_us = step.schedule.makespan_us
    return np.clip(spans, closes_us - step.step_time_us, closes_us)


def launch_bound(step: Observed) -> list[Suspect]:
    """Most calls keep the device busy for less time than the host needs to issue them."""
    unit = with_launched(step.graph, host_units(step.graph))
    calls = _calls(step, unit)
    small = calls[calls["device_us"] < calls["host_us"]]
    host_us = small["host_us"].sum() / step.num_ranks
    if not len(small) or len(small) < MOST * len(calls) or host_us < HOST_SHARE * step.step_time_us:
        return []
    counts = small["op"].value_counts().head(3)
    evidence = (
        f"{len(small):,} of {len(calls):,} calls with kernels keep the device busy for less time than the host: "
        f"{small['device_us'].median():.1f} us against {small['host_us'].median():.1f} us in the median",
        f"{host_us:,.0f} us of a rank's step go into issuing them (mean over ranks); most often "
        + ", ".join(f"{name} ({count:,})" for name, count in counts.items()),
    )
    remedy = "replay them as one CUDA graph, or have torch.compile fuse them; larger batches make them longer"
    nodes = np.flatnonzero(np.isin(unit, small.index.to_numpy()) & step.host_work)
    text = f"no host time for these {len(small):,} calls (one graph launch in their stead)"
    cause = "kernels are too small for the host to keep up"
    return [Suspect("launch_bound", cause, evidence, remedy, (scaling(nodes, 0.0, text, at_most=True),))]


def _calls(step: Observed, unit: np.ndarray) -> pd.DataFrame:
    """Calls that launch kernels whose latencies are known, by number: op, host_us, device_us."""
    kernel = (step.kind == NodeType.COMPUTE) & (step.graph.nodes["stream"] >= 0).to_numpy() & (unit >= 0)
    device = pd.Series(step.latency_us[kernel]).groupby(unit[kernel]).sum()
    host = step.host_work & np.isin(unit, device.index.to_numpy())
    time_us = pd.Series(step.latency_us[host]).groupby(unit[host]).sum()
    op = pd.Series(step.op[kernel]).groupby(unit[kernel]).first()
    unknown = np.unique(unit[kernel & ~step.known])  # a kernel of unknown latency is not a small one
    op, device = op.drop(unknown), device.drop(unknown)
    return pd.DataFrame({"op": op, "device_us": device, "host_us": time_us.reindex(device.index, fill_value=0.0)})


def input_stall(step: Observed) -> list[Suspect]:
    """The gap before the first op, beyond the usual gap of that thread. From recordings only."""
    if step.basis is not Basis.MEASURED or any(label.name == WINDOW for label in step.graph.steps):
        return []  # a window without step marks begins where the profiler did
    gaps = {rank: _first_gap(step, rank) for rank in step.graph.ranks}
    stalled = {rank: (node, us) for rank, (node, us) in gaps.items() if us >= SUSPICIOUS * step.step_time_us}
    if not stalled:
        return []
    longest = max(stalled, key=lambda rank: stalled[rank][1])
    evidence = (
        f"before its first op, rank {longest} does nothing that is recorded for {stalled[longest][1]:,.0f} us longer "
        f"than in its usual gap; so do {len(stalled)} of {len(gaps)} ranks",
    )
    remedy = "more loader workers, prefetching, pinned memory; or find what Python does between the steps"
    nodes, more_us = (np.array(values) for values in zip(*stalled.values(), strict=True))
    text = f"the first gap of rank {', '.join(map(str, stalled))} as long as the usual one"
    way = scaling(nodes, 1.0 - more_us / step.latency_us[nodes], text)
    return [Suspect("input_stall", "the step waits for its input", evidence, remedy, (way,))]


def _first_gap(step: Observed, rank: int) -> tuple[int, float]:
    """The first gap of the main thread, and how much longer it is than its median one; (-1, 0) without gaps."""
    try:
        first = int(gap_at(step.graph, rank, Place.START)[0])
    except InputError:  # a rank without a main thread, or without gaps: a plan's, or one that only serves
        return -1, 0.0
    nodes = step.graph.nodes
    gaps = (step.rank == rank) & (nodes["thread"] == 0).to_numpy() & (nodes["segment"] == Segment.T1).to_numpy()
    return first, float(step.latency_us[first] - np.median(step.latency_us[gaps]))


def stalls(step: Observed) -> list[Suspect]:
    """Stalls that the trace measured; the gain is the step predicted without them."""
    if step.stall_us is None or step.without_stalls_us is None or not (step.stall_us > 0).any():
        return []
    stalled = np.flatnonzero(step.stall_us > 0)
    us, where = step.stall_us[stalled], step.where[stalled]
    sums = pd.Series(us).groupby(where).agg(["sum", "size"]).nlargest(3, "sum")
    longest = int(us.argmax())
    ranks = sorted({int(rank) for rank in step.rank[stalled]})
    evidence = (
        "most stalled time: " + ", ".join(f"{name} {row['sum']:,.0f} us ({row['size']:.0f})"
                                         for name, row in sums.iterrows()),
        f"the longest takes {us[longest]:,.0f} us at {where[longest]}, rank {step.rank[stalled][longest]}; "
        f"{len(ranks)} of {len(step.graph.ranks)} ranks have stalls",
    )  # fmt: skip
    remedy = ("find out what stalls: first launches, data loading, allocations, garbage collection, other processes; "
              "stalls=remove predicts the step without them")  # fmt: skip
    verb = " takes" if len(stalled) == 1 else "s take"
    cause = f"{len(stalled):,} stall{verb} {us.sum() / 1e3:,.1f} ms, summed over ranks"
    return [
        Suspect("stalls", cause, evidence, remedy, (Way((), "stalls=remove", step_time_us=step.without_stalls_us),))
    ]
