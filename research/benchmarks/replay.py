"""Strict replay of public runs: error of period and makespan next to the trivial answer, and how much is explained."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import product

import numpy as np

from gnnperf.graph import ExecutionGraph
from gnnperf.graph.build import correct_clocks, run_base_time_ns
from gnnperf.graph.event_columns import BLOCKING, CallClass, RankEvents, rank_events
from gnnperf.graph.host import segmenting_calls
from gnnperf.graph.rank_graph import consecutive
from gnnperf.graph.steps import step_windows
from gnnperf.graph.waits import LAUNCH_QUEUE_DEPTH, LaunchOrder, blocking_copies, event_waits, host_waits
from gnnperf.graph.works import Works, device_works
from gnnperf.schedule import ReplayResult, replay_step
from gnnperf.trace import RunTrace
from research.benchmarks._frame import print_head, print_row, run_main
from research.benchmarks._public_runs import graph_recordings, imported
from research.benchmarks._results import save_result

_NEAR_NS = 25_000
_LONG_NS = 30_000


@dataclass(frozen=True)
class ExplainedWaiting:
    """Sums over all ranks and whole steps.

    Attributes:
        blocked_us: time inside synchronizing calls, cudaMalloc/cudaFree and launches over 30 us (of a pageable copy:
            until the copy begins, or until its end if the call outlasts it).
        blocked_explained_us: of that, in calls for which an edge from program order ends inside and within 25 us.
        blocked_timing_us: additionally, by edges inferred from time distance (replay only).
        blocked_external_us: of what is not explained, calls that cannot be waiting for the device: it had nothing left
            to do; or it was still busy with earlier work when an allocation returned; or a launch found its queue less
            than half full. The allocator, module loading, staging of pageable memory and the scheduler are left.
        gap_us: device idle time in gaps of more than 30 us on a stream.
        gap_explained_us: of that, gaps that end within 25 us of a launch, an awaited event or a collective's arrival.
    """

    blocked_us: float
    blocked_explained_us: float
    blocked_timing_us: float
    blocked_external_us: float
    gap_us: float
    gap_explained_us: float


def explained_waiting(run: RunTrace) -> ExplainedWaiting:
    """Measure a run's waiting and how much of it edges explain."""
    run = correct_clocks(run)
    events = [rank_events(table, run_base_time_ns(run)) for table in run.tables]
    windows = step_windows(events)
    rows = []
    for i, rank in enumerate(events):
        works = device_works(rank)
        rows.append(np.r_[_blocked(rank, works, windows.step_of(i, rank.start_ns) >= 0), _gaps(rank, works)])
    return ExplainedWaiting(*(np.sum(rows, axis=0) / 1000.0).tolist())


def _blocked(events: RankEvents, works: Works, in_step: np.ndarray) -> np.ndarray:
    """[4] ns: blocked, explained by order, by timing, and unexplained but provably no wait for the device."""
    duration = _waiting_part(events, works)
    blocking = np.isin(events.calls, [int(c) for c in BLOCKING])
    launch = np.zeros(len(duration), dtype=bool)
    launch[segmenting_calls(events)] = True
    counted = in_step & (blocking | (launch & (duration > _LONG_NS))) & (events.parent != np.arange(len(duration)))
    result = host_waits(events, works)
    order, timing = np.zeros(len(duration), dtype=bool), np.zeros(len(duration), dtype=bool)
    for pairs, flags in ((result.before_call, order), (result.own_copy, order), (result.guessed, timing)):
        end, call = works.end_ns[pairs[0]], pairs[1]
        near = (end > events.start_ns[call]) & (events.start_ns[call] + duration[call] - end <= _NEAR_NS)
        flags[call[near]] = True
    unexplained = counted & ~order & ~timing
    external = unexplained & _waits_external(events, works, launch & ~blocking)
    masks = (counted, counted & order, counted & timing & ~order, external)
    return np.array([duration[mask].sum() for mask in masks], float)


def _waits_external(events: RankEvents, works: Works, is_launch: np.ndarray) -> np.ndarray:
    """[num_events] bool: a call that cannot be waiting for the device (see ExplainedWaiting)."""
    launches = LaunchOrder(events, works)
    last_end = np.maximum.accumulate(works.end_ns[launches.work])
    launched = np.searchsorted(launches.launched_ns, events.start_ns, side="left")  # works launched before
    ended = np.searchsorted(np.sort(works.end_ns[launches.work]), events.start_ns, side="right")
    never = np.iinfo(np.int64).min
    until = np.r_[never, last_end][launched]  # when the device is done with what was launched before
    idle = until <= events.start_ns
    outlasted = (events.calls == CallClass.ALLOCATE) & (until > events.end_ns)
    return idle | outlasted | (is_launch & (launched - ended < LAUNCH_QUEUE_DEPTH // 2))


def _waiting_part(events: RankEvents, works: Works) -> np.ndarray:
    """[num_events] ns a call may be waiting: all of it; of a copy that outlasts the call, until it begins."""
    duration = (events.end_ns - events.start_ns).copy()
    copies = blocking_copies(events, works)
    call = works.call[copies]
    staging = works.end_ns[copies] > events.end_ns[call]
    until = np.clip(works.begin_ns[copies], events.start_ns[call], events.end_ns[call])
    duration[call[staging]] = (until - events.start_ns[call])[staging]
    return duration


def _gaps(events: RankEvents, works: Works) -> np.ndarray:
    """[2] ns: idle time in gaps over 30 us on a stream, and the part that ends near a cause."""
    before, after = consecutive(works.stream)
    gap = works.begin_ns[after] - works.end_ns[before]
    cause = np.where(works.call >= 0, events.start_ns[works.call], np.iinfo(np.int64).min)
    copies = blocking_copies(events, works)  # a blocking copy starts when its call has drained the stream
    cause[copies] = np.maximum(
        cause[copies], works.begin_ns[copies] * (works.begin_ns[copies] <= events.end_ns[works.call[copies]])
    )
    between, _ = event_waits(events, works)
    np.maximum.at(cause, between[1], works.end_ns[between[0]])
    explained = works.begin_ns[after] - cause[after] <= _NEAR_NS
    wide = gap > _LONG_NS
    return np.array([gap[wide].sum(), gap[wide & explained].sum()], float)


MAX_PAIRS = 20


@dataclass(frozen=True)
class Row:
    """One run: [num_pairs] relative errors, and shares."""

    name: str
    period: np.ndarray
    makespan: np.ndarray
    trivial_period: np.ndarray
    trivial_makespan: np.ndarray
    start_error_us: float
    aligned: float
    medians: float
    peers: float
    num_unknown: int
    explained: ExplainedWaiting
    cause: str

    @property
    def error(self) -> float:
        """Median over pairs of |error| of the period, or of the makespan where a run has one step."""
        known = self.period[~np.isnan(self.period)]
        return float(np.median(np.abs(known if len(known) else self.makespan)))

    @property
    def worst(self) -> float:
        known = self.period[~np.isnan(self.period)]
        return float(np.max(np.abs(known if len(known) else self.makespan)))


def pairs(graph: ExecutionGraph) -> list[tuple[int, int]]:
    """(structure step, latency step); a single step replays itself with medians of the other ranks."""
    steps = range(len(graph.steps))
    if len(graph.steps) == 1:
        return [(0, 0)]
    all_pairs = [(i, j) for j, i in product(steps, steps) if i != j and j > 0]
    return [all_pairs[k] for k in np.unique(np.linspace(0, len(all_pairs) - 1, MAX_PAIRS).astype(int))]


def measure(name: str, graph: ExecutionGraph, explained: ExplainedWaiting) -> Row:
    """Replay every pair of steps of one run."""
    results = [replay_step(graph, i, j) for i, j in pairs(graph)]
    labels = [(graph.steps[i], graph.steps[j]) for i, j in pairs(graph)]
    row = Row(
        name=name,
        period=np.array([_ratio(r.period_us, r.measured.period_us) for r in results]),
        makespan=np.array([_ratio(r.makespan_us, r.measured.makespan_us) for r in results]),
        trivial_period=np.array([_ratio(i.period_us, j.period_us) for i, j in labels]),
        trivial_makespan=np.array([_ratio(i.makespan_us, j.makespan_us) for i, j in labels]),
        start_error_us=float(np.nanmedian(np.concatenate([_start_errors(r) for r in results]))),
        aligned=float(np.mean([r.aligned_share for r in results])),
        medians=float(np.mean([r.median_time_share for r in results])),
        peers=float(np.mean([r.peer_time_share for r in results])),
        num_unknown=max(r.num_unknown for r in results),
        explained=explained, cause="",
    )  # fmt: skip
    return Row(**{**row.__dict__, "cause": cause(graph, results) if row.worst > 0.03 else ""})


def _ratio(predicted: float | None, measured: float | None) -> float:
    return float("nan") if predicted is None or measured is None else predicted / measured - 1


def _start_errors(result: ReplayResult) -> np.ndarray:
    return np.abs(result.schedule.start_us - result.measured_start_us)


def cause(graph: ExecutionGraph, results: list[ReplayResult]) -> str:
    """What the worst pair's error comes from: nodes only one step has, and gaps no edge explains."""
    worst = max(results, key=lambda r: abs(r.makespan_us - r.measured.makespan_us))
    missing = 1 - worst.aligned_share
    lag = graph.edges["lag_us"].to_numpy()
    long = np.flatnonzero(lag > 1000.0)
    if not len(long):
        return f"{missing:.1%} of nodes are in one of the two steps only"
    target = graph.nodes.iloc[graph.edges["dst"].to_numpy()[long]]
    busiest = target["event_name"].astype("str").str.slice(0, 28).value_counts().index[0]
    return (
        f"{len(long)} device starts {np.median(lag[long]) / 1000:.1f} ms (median) after every known cause, most often "
        f"{busiest!r}; {missing:.1%} of nodes in one step only"
    )


def share(part: float, whole: float) -> str:
    """A percentage, or a dash where there is nothing to explain."""
    return f"{part / whole:4.0%}" if whole > 0 else "   -"


COLUMNS = (
    "run", "pairs", "period error, median / max", "makespan error, median / max",
    "other step as it is, period / makespan", "nodes aligned", "time from medians",
    "untraced peers, as measured", "unknown nodes", "start error, median us",
    "blocked ms", "explained", "of waits for the device", "with timing", "gaps explained",
)  # fmt: skip


def texts(row: Row) -> tuple[object, ...]:
    """One row of the table."""
    e = row.explained
    waiting = e.blocked_us - e.blocked_external_us
    known = row.period[~np.isnan(row.period)]
    period = f"{np.median(np.abs(known)):.2%} / {np.abs(known).max():.2%}" if len(known) else "-"
    trivial = f"{np.nanmedian(np.abs(row.trivial_period)):.1%}" if len(known) else "-"
    return (
        row.name, len(row.makespan), period,
        f"{np.median(np.abs(row.makespan)):.2%} / {np.abs(row.makespan).max():.2%}",
        f"{trivial} / {np.median(np.abs(row.trivial_makespan)):.1%}", f"{row.aligned:.1%}", f"{row.medians:.1%}",
        f"{row.peers:.1%}", row.num_unknown, f"{row.start_error_us:.0f}", f"{e.blocked_us / 1000:.1f}",
        share(e.blocked_explained_us, e.blocked_us), share(e.blocked_explained_us, waiting),
        share(e.blocked_explained_us + e.blocked_timing_us, waiting), share(e.gap_explained_us, e.gap_us),
    )  # fmt: skip


def main() -> None:
    """Print the table and its medians."""
    warnings.simplefilter("ignore", RuntimeWarning)  # medians of runs that have no period
    print_head(*COLUMNS)
    rows = []
    for recording in graph_recordings():
        run, graph = imported(recording)
        rows.append(measure(recording.name, graph, explained_waiting(run)))
        print_row(*texts(rows[-1]))
    errors = np.array([r.error for r in rows])
    full = np.array([r.error for r in rows if r.aligned >= 0.99])
    raw = [r.explained.blocked_explained_us / r.explained.blocked_us for r in rows if r.explained.blocked_us > 0]
    of_waits = [
        r.explained.blocked_explained_us / (r.explained.blocked_us - r.explained.blocked_external_us)
        for r in rows
        if r.explained.blocked_us > r.explained.blocked_external_us
    ]
    save_result("replay", 100 * float(np.median(errors)), 100 * float(np.quantile(errors, 0.9)))
    save_result("replay_explained", 100 * float(np.median(raw)), 100 * float(np.median(of_waits)))
    print(f"\nmedian error over {len(rows)} runs {np.median(errors):.2%}, p90 {np.quantile(errors, 0.9):.2%}, ", end="")
    print(f"worst pair {max(r.worst for r in rows):.2%}; ", end="")
    print(f"over the {len(full)} runs that align >= 99 %: {np.median(full):.2%}")
    print(f"blocked host time explained, median over runs: {np.median(raw):.0%} of all of it, ", end="")
    print(f"{np.median(of_waits):.0%} of the calls that can be waiting for the device (not: device idle, still busy")
    print("when an allocation returned, or a launch queue less than half full)")
    for row in rows:
        if row.cause:
            print(f"above 3 %: {row.name} ({row.worst:.1%}): {row.cause}")


if __name__ == "__main__":
    run_main(main)
