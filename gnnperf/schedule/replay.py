"""Strict replay: the structure of step i with the latencies of step j, and class medians for every gap and wait.

The boundary of step j stays measured: when each rank began, and until when earlier work kept a stream busy. Reasons:
docs/concepts/schedule.md, "How a graph is validated".
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gnnperf.core import TIMED_RELATIONS, Segment
from gnnperf.graph import (
    BLOCKING,
    ExecutionGraph,
    StepLabel,
    by_category,
    call_class,
    is_host_transfer,
    measured_end_us,
)
from gnnperf.schedule.alignment import align
from gnnperf.schedule.longest_path import Schedule, is_work, schedule
from gnnperf.schedule.medians import ClassMedians, fit_medians, in_peer_wait, measured_latency_us


@dataclass(frozen=True)
class ReplayResult:
    """One strict replay."""

    graph: ExecutionGraph  # the structure that was scheduled (one step)
    latency_us: np.ndarray  # [num_nodes] latencies used; lag_us: [num_edges] lags used
    lag_us: np.ndarray
    schedule: Schedule  # the resulting schedule, time 0 = earliest rank's start of step j
    measured: StepLabel  # label of step j
    measured_start_us: np.ndarray  # [num_nodes] measured start of the aligned node of step j; NaN unaligned
    makespan_us: float  # replayed makespan of step j
    period_us: float | None  # replayed period of step j; None for the first step of a window
    aligned_share: float  # share of nodes of the structure that step j has too
    from_median: np.ndarray  # [num_nodes] bool, the latency is a class median
    median_time_share: float  # share of the critical path's time that comes from class medians instead of step j
    # share of it that is time in collectives whose peers were not traced: wait and transfer cannot be distinguished
    # there, and keep their measured sum
    peer_time_share: float
    # nodes and edges that neither step j nor a class median knows; they take no time in the schedule
    num_unknown: int = 0


def replay_step(graph: ExecutionGraph, structure_step: int, latency_step: int) -> ReplayResult:
    """Strictly replay step `latency_step` on the structure of step `structure_step`.

    Args:
        graph: a run with its recorded labels; edges inferred from time distances are welcome here.
        structure_step: the step whose nodes and edges are scheduled.
        latency_step: the step whose latencies are used, and whose measured times the result is compared with.
    """
    structure, other = graph.step(structure_step), graph.step(latency_step)
    matched = align(structure, other)
    latency, from_median = _latencies(graph, structure, other, matched, latency_step)
    of_target = structure.nodes["rank"].to_numpy()[structure.edges["dst"].to_numpy()]  # [num_edges]
    lag = _medians_of(graph, of_target, latency_step, lambda m: m.lag_us(structure))
    num_unknown = int((np.isnan(latency) & is_work(structure)).sum() + np.isnan(lag).sum())
    latency, lag = np.nan_to_num(latency), np.nan_to_num(lag)
    label = other.steps[0]
    origin = min(label.rank_start_us)
    ready = _boundary(graph, other, structure, matched, latency_step, origin)
    result = schedule(structure, latency, lag, ready_us=ready)
    before = [s for s in graph.steps if s.step == latency_step - 1 and label.period_us is not None]
    completion = result.end_us[is_work(structure)].max()
    return ReplayResult(
        graph=structure, latency_us=latency, lag_us=lag, schedule=result, measured=label,
        measured_start_us=np.where(matched >= 0, other.nodes["start_us"].to_numpy()[matched] - origin, np.nan),
        makespan_us=float(completion),
        period_us=float(completion + origin - max(before[0].rank_completion_us)) if before else None,
        aligned_share=float((matched >= 0)[is_work(structure)].mean()),
        from_median=from_median,
        median_time_share=_share(result, latency, from_median),
        peer_time_share=_share(result, latency, (structure.nodes["segment"] == Segment.PEER_WAIT).to_numpy()),
        num_unknown=num_unknown,
    )  # fmt: skip


def _share(result: Schedule, latency: np.ndarray, from_median: np.ndarray) -> float:
    path = result.on_critical_path
    return float(latency[path & from_median].sum() / max(latency[path].sum(), 1e-9))


def _is_wait(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes] bool: blocking calls and exits from kernels of collectives, whose latency is what a wait left over.

    The exit from a collective of host threads is no wait: every peer has come. It is what is left of the transfer on
    the rank's own side of the link (0 or 15 ms, by chance, where two ranks exchange 1 MB at 0.25 Gbit/s).
    """
    names = graph.nodes["event_name"]
    blocking = by_category(names, lambda name: call_class(name) in BLOCKING, bool)
    segment = graph.nodes["segment"]
    t4 = (segment == Segment.T4).to_numpy()
    waited = t4 & (blocking | (graph.nodes["blocked_us"].to_numpy() > 0))
    on_host = by_category(names, is_host_transfer, bool)
    return waited | ((segment == Segment.EXIT).to_numpy() & ~on_host)


def _latencies(
    graph: ExecutionGraph, structure: ExecutionGraph, other: ExecutionGraph, matched: np.ndarray, latency_step: int
) -> tuple[np.ndarray, np.ndarray]:
    """Latencies of step j where aligned; class medians for waits and for what is not aligned; NaN where neither is."""
    measured = measured_latency_us(other)
    aligned = np.where(matched >= 0, measured[matched], np.nan)
    aligned = np.where(np.isnan(aligned) & in_peer_wait(structure), 0.0, aligned)
    medians = _medians_of(graph, structure.nodes["rank"].to_numpy(), latency_step, lambda m: m.latency_us(structure))
    use_median = (np.isnan(aligned) | _is_wait(structure)) & ~np.isnan(medians)
    return np.where(use_median, medians, aligned), use_median & is_work(structure)


def _medians_of(
    graph: ExecutionGraph, owner: np.ndarray, latency_step: int, ask: Callable[[ClassMedians], np.ndarray]
) -> np.ndarray:
    """Class medians fitted on other steps; in a single-step run, for each rank those of the other ranks.

    `ask` maps fitted medians to [n] latencies; `owner` [n]: rank of each. Collectives are no rank's (-1): what no rank
    owns is requested of all.
    """
    step, of_rank = graph.nodes["step"].to_numpy(), graph.nodes["rank"].to_numpy()
    if len(graph.steps) > 1:
        return ask(fit_medians(graph, (step >= 0) & (step != latency_step)))
    if len(graph.ranks) == 1:
        return ask(ClassMedians((), ()))
    result = np.full(len(owner), np.nan)
    for rank in np.unique(owner).tolist():
        fitted = ask(fit_medians(graph, (step >= 0) & (of_rank != rank)))
        result[owner == rank] = fitted[owner == rank]
    return result


def _boundary(
    graph: ExecutionGraph, other: ExecutionGraph, structure: ExecutionGraph, matched: np.ndarray, step: int,
    origin: float,
) -> np.ndarray:  # fmt: skip
    """[num_nodes of structure] earliest starts: rank offsets, and ends of earlier work that step j waits for."""
    label, nodes = other.steps[0], structure.nodes
    start_of = dict(zip(graph.ranks, label.rank_start_us, strict=True))
    ready = np.array([start_of.get(r, origin) - origin for r in nodes["rank"].tolist()])
    back = np.full(other.num_nodes, -1, dtype=np.int64)  # node of step j -> node of the structure
    back[matched[matched >= 0]] = np.flatnonzero(matched >= 0)
    # Timed edges into the step from device work outside it (host threads begin with their rank).
    of, src, dst = graph.nodes["step"].to_numpy(), graph.edges["src"].to_numpy(), graph.edges["dst"].to_numpy()
    timed = graph.edges["relation"].isin([str(r) for r in TIMED_RELATIONS]).to_numpy()
    on_device = graph.nodes["stream"].to_numpy()[src] >= 0
    crossing = timed & on_device & (of[dst] == step) & (of[src] != step)
    end = measured_end_us(graph.nodes)[src[crossing]] - origin
    target = back[np.searchsorted(graph.rows_of_step(step), dst[crossing])]
    usable = (target >= 0) & ~np.isnan(end)
    np.maximum.at(ready, target[usable], end[usable])
    return ready
